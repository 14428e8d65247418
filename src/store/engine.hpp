// Engine: keys with text values, in order, changed by transactions with conditions. This is the little that every
// database can do, so that memory, SQLite and (later) etcd serve the same Store and pass the same contract suite
// (engine_contract_test.cpp). It is independent of fleets.
//
// The store counts its changes: every transaction that changes something has the next change number. The version of a
// key is the change number of the transaction that wrote it last, so that a key that was removed and created again
// never has an earlier version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/clock.hpp"
#include "berth/result.hpp"

namespace berth::store {

// Within etcd's default limits (128 operations, 1.5 MiB), with room for the overhead of a transaction.
inline constexpr std::size_t operations_max = 100;                // conditions, and writes, of a transaction
inline constexpr std::size_t transaction_bytes_max = 1280 << 10;  // keys and values
inline constexpr std::size_t value_bytes_max = 1 << 20;
inline constexpr std::size_t key_bytes_max = 512;

struct Entry {
  std::string key, value;
  std::uint64_t version = 0;
  friend bool operator==(const Entry&, const Entry&) = default;
};

struct Listing {
  std::vector<Entry> entries;       // in the order of their keys, byte by byte
  std::uint64_t change_number = 0;  // number of the last change that they include
};

struct Condition {
  std::string key;
  std::uint64_t version = 0;  // 0: there is no such key
};

struct Write {
  std::string key;
  std::optional<std::string> value;  // absent: the key is removed, if there is one
};

struct Transaction {
  std::vector<Condition> conditions;
  std::vector<Write> writes;  // each key at most once in a transaction
};

// How long a migration, a restore or a copy of a large store may take; on SQLite, the kernel shows when it has ended.
inline constexpr Duration hold_duration = std::chrono::minutes(5);

// Thread-safe. Errors: io means that the medium failed (full, damaged, not readable) and that nothing was
// changed; timeout means that another process kept it busy.
class Engine {
 public:
  virtual ~Engine() = default;

  // "memory", "sqlite:/var/lib/berth/store.db"; for messages.
  virtual std::string name() const = 0;

  // The entries whose keys begin with `prefix` and come after `after`, as a consistent snapshot; the first `limit` of
  // them.
  virtual Result<Listing> list(std::string_view prefix, std::string_view after = {}, std::size_t limit = SIZE_MAX) = 0;

  // Commits all of it or nothing. Returns its change number once it can no longer be lost; absent: a condition
  // does not hold. A transaction that changes nothing returns the last change number. invalid_argument: it is
  // larger than the bounds above, or writes a key twice.
  virtual Result<std::optional<std::uint64_t>> commit(const Transaction& transaction) = 0;

  // Sleeps until the store may have changed since `change_number`, at most for `timeout`. A hint: it can miss a
  // change, of another process for example, and can return without one. The caller lists again in either case. It is
  // for servers that follow a leader; a server that leads alone knows its own changes.
  virtual void wait_for_change(std::uint64_t change_number, Duration timeout) = 0;

  // Makes `owner` the only one who may change this store, or confirms it. It lasts for `duration`, unless the engine
  // can tell by itself whether the owner is alive. unavailable names the other owner. This keeps two servers from
  // interfering with each other; the conditions of its transactions make changes by a former owner impossible.
  virtual Result<void> hold(const std::string& owner, Duration duration) = 0;
  // Does nothing if `owner` is not the owner.
  virtual void release(const std::string& owner) = 0;
};

// invalid_argument if a transaction exceeds the bounds above; every engine checks this first.
Result<void> check_bounds(const Transaction& transaction);

// "memory" or "sqlite:PATH". not_supported: this build has no SQLite. io: the file cannot be used, with the reason.
Result<std::shared_ptr<Engine>> open_engine(std::string_view kind);

}  // namespace berth::store
