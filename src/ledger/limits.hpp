// Limits per user: how many GPUs and bytes a user may hold at a time, and how many commands may run and wait. Root
// writes them into one file (docs/guide/run.md describes it). Every program applies those of its own user where it
// writes the ledger, so commands, jobs and pools all keep to them; a program that does not use Berth does not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "berth/ledger.hpp"

namespace berth::ledger {

// Fixed: a user who could name another file would not be limited.
inline constexpr const char* limits_path = "/etc/berth/limits.toml";

// In the order in which they are checked. The names are the keys of the file.
enum class LimitKind : std::uint8_t { gpus, memory, running, waiting };
inline constexpr std::size_t limit_kinds = 4;
std::string_view to_string(LimitKind kind) noexcept;

template <class Value>
using PerLimit = std::array<Value, limit_kinds>;  // by LimitKind

// The file as it was written. Users and groups are named or numbered.
struct LimitsFile {
  using Section = PerLimit<std::optional<std::uint64_t>>;
  std::map<std::string, Section> users, groups;
  Section others{};  // [default]
};
// Pure. invalid_argument names the place of the mistake.
Result<LimitsFile> parse_limits(std::string_view text, std::string_view path = limits_path);
// No file: no limits. unavailable: other users than root could have written it.
Result<LimitsFile> read_limits(const std::string& path = limits_path);

// The user database's answer about a user.
struct LimitedUser {
  std::uint32_t user = 0;
  std::string name;              // the number where there is no name
  std::set<std::string> groups;  // names and numbers
};

struct Limit {
  std::uint64_t most = 0;
  std::string section;  // "[user.anna]"
};
struct UserLimits {
  std::string user;  // name, for messages
  PerLimit<std::optional<Limit>> limits;
  bool any() const;
};
// Of the sections about the user and the user's groups, the lowest value of each limit; [default] where none of them
// has the limit. Root is limited only by name. Pure.
UserLimits limits_of(const LimitsFile& file, const LimitedUser& user);
// Of the user of this process; the file is read again when it has changed. The error of a file that does not count.
Result<UserLimits> own_limits();

// What counts towards the limits. The processor is not a GPU, and leases inside a lease are part of it.
struct Usage {
  std::set<std::string> gpus;  // memory domains
  std::uint64_t memory_bytes = 0, running = 0, waiting = 0;
  void add(const LedgerEntry& entry);
  std::uint64_t amount(LimitKind kind) const;
};
Usage usage_of(const LedgerSnapshot& snapshot, std::uint32_t user, const LeaseReference& except = {});

struct LimitReached {
  LimitKind kind = LimitKind::gpus;
  bool never = false;  // it would also be too much if the user held nothing else
  std::string text;    // one sentence, which names the limit
  Error error() const;
};
// For a user who has `present` and asks for `more`. Pure.
std::optional<LimitReached> limit_reached(const UserLimits& limits, LimitKind kind, std::uint64_t present,
                                          std::uint64_t more);
// What keeps the user from having `wanted`, which is a new entry or a changed one of the snapshot. An entry that grows
// in nothing is never refused. Pure.
std::optional<LimitReached> limit_reached(const UserLimits& limits, const LedgerSnapshot& snapshot,
                                          const LedgerEntry& wanted);

// Of the claims of a request that waits for `count` devices, those that the limits leave to it, so that it keeps no
// others from other users. Pure.
std::vector<Claim> claims_within(const UserLimits& limits, const LedgerSnapshot& snapshot, std::uint32_t user,
                                 std::size_t count, std::vector<Claim> claims);

}  // namespace berth::ledger
