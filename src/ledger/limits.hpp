// Limits per user: how many GPUs and bytes a user may hold at a time, and how many commands may run and wait. Root
// writes them into one file (docs/guide/run.md describes it). Every program applies its own user's limits when it
// writes the ledger, so commands, jobs and pools all respect them; a program that does not use Berth does not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
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

// The file as it was written. Users and groups are given by name or number.
struct LimitsFile {
  using Section = PerLimit<std::optional<std::uint64_t>>;
  std::map<std::string, Section> users, groups;
  Section others{};  // [default]
};
// Pure. invalid_argument names the place of the mistake.
Result<LimitsFile> parse_limits(std::string_view text, std::string_view path = limits_path);
// No file: no limits. unavailable: users other than root could have written it.
Result<LimitsFile> read_limits(const std::string& path = limits_path);

// The user database's answer about a user.
struct LimitedUser {
  std::uint32_t user = 0;
  std::string name;              // the number if there is no name
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
// For each limit, the lowest value in the sections about the user and the user's groups, or else the value in
// [default]. Root is limited only by name. Pure.
UserLimits limits_of(const LimitsFile& file, const LimitedUser& user);
// The limits of this process's user; the file is read again when it has changed. An error if the file is invalid.
Result<UserLimits> own_limits();

// What counts towards the limits. The processor is not a GPU, and leases inside a lease are part of it.
struct Usage {
  std::set<std::string> gpus;  // memory domains
  std::uint64_t memory_bytes = 0, running = 0, waiting = 0;
  void add(const LedgerEntry& entry);
  std::uint64_t amount(LimitKind kind) const;
};
Usage usage_of(const LedgerSnapshot& snapshot, std::uint32_t user, const LeaseReference& except = {});
// One sentence for each limit: "you may have 50.0 GiB at a time (memory in [default] of ...) and have 20.0 GiB".
std::vector<std::string> limits_in_use(const UserLimits& limits, const Usage& usage);

struct LimitReached {
  LimitKind kind = LimitKind::gpus;
  bool never = false;  // it would be too much even if the user held nothing else
  std::string text;    // one sentence, which names the limit
  Error error() const;
};
// Checks a user who has `present` and requests `more`. Pure.
std::optional<LimitReached> limit_reached(const UserLimits& limits, LimitKind kind, std::uint64_t present,
                                          std::uint64_t more);
// The limit that keeps the user from having `wanted`, a new or changed entry of the snapshot. An entry that does not
// grow is never refused. Pure.
std::optional<LimitReached> limit_reached(const UserLimits& limits, const LedgerSnapshot& snapshot,
                                          const LedgerEntry& wanted);

// The limit that a lease on any `count` of these claims would exceed even if the user held nothing else. Pure.
std::optional<LimitReached> limit_exceeded_alone(const UserLimits& limits, std::size_t count,
                                                 std::span<const Claim> claims);

// The claims of a request waiting for `count` devices that the limits allow, so that it does not keep the others
// from other users. Pure.
std::vector<Claim> claims_within(const UserLimits& limits, const LedgerSnapshot& snapshot, std::uint32_t user,
                                 std::size_t count, std::vector<Claim> claims);

}  // namespace berth::ledger
