#include "ledger/limits.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <tuple>

#include "berth/bytes.hpp"
#include "ledger/folders.hpp"
#include "ledger/nesting.hpp"
#include "world/user_name.hpp"

namespace berth::ledger {
namespace {

// The memory domain of the processor, for every back end that lists it.
constexpr std::string_view processor = "host";
constexpr const char* limits_folder = "/etc/berth";

std::size_t index_of(LimitKind kind) { return static_cast<std::size_t>(kind); }

std::uint64_t bounded_sum(std::uint64_t a, std::uint64_t b) { return a + b < a ? ~std::uint64_t{0} : a + b; }
std::uint64_t bounded_product(std::uint64_t a, std::uint64_t b) {
  return b != 0 && a > ~std::uint64_t{0} / b ? ~std::uint64_t{0} : a * b;
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string amount_text(LimitKind kind, std::uint64_t amount) {
  switch (kind) {
    case LimitKind::gpus: return counted(amount, "GPU");
    case LimitKind::memory: return bytes_text(amount);
    case LimitKind::running: return counted(amount, "running command");
    case LimitKind::waiting: return counted(amount, "waiting request");
  }
  return {};
}

// What a user asks for: a job that would wait is not a request yet.
std::string more_text(LimitKind kind, std::uint64_t more) {
  return (kind == LimitKind::waiting ? std::to_string(more) : amount_text(kind, more)) + " more";
}

std::string limit_text(LimitKind kind, const Limit& limit) {
  return "may have " + amount_text(kind, limit.most) + " at a time (" + std::string(to_string(kind)) + " in " +
         limit.section + " of " + limits_path + ")";
}

// The id of this process's user in the machine's user database, also in a user namespace. Inside several nested
// namespaces the outermost one is not visible; the result is then an unknown user's id, never root's.
std::uint32_t machine_user() {
  const std::uint32_t unmapped = unmapped_user();
  std::uint64_t user = geteuid();
  std::ifstream map("/proc/self/uid_map");
  for (std::uint64_t inside = 0, outside = 0, count = 0; map >> inside >> outside >> count;) {
    if (user < inside || user - inside >= count) continue;
    user = outside + (user - inside);
    break;
  }
  return user == 0 && unmapped != 0 ? unmapped : static_cast<std::uint32_t>(user);
}

}  // namespace

std::string_view to_string(LimitKind kind) noexcept {
  static constexpr std::string_view names[] = {"gpus", "memory", "running", "waiting"};
  return names[index_of(kind)];
}

bool UserLimits::any() const {
  return std::any_of(limits.begin(), limits.end(), [](const std::optional<Limit>& limit) { return limit.has_value(); });
}

UserLimits limits_of(const LimitsFile& file, const LimitedUser& user) {
  UserLimits found;
  found.user = user.name;
  const auto apply = [&](const LimitsFile::Section& section, const std::string& title) {
    for (std::size_t i = 0; i < limit_kinds; ++i) {
      std::optional<Limit>& limit = found.limits[i];
      if (section[i] && (!limit || *section[i] < limit->most)) limit = Limit{*section[i], title};
    }
  };
  for (const auto& [name, section] : file.users) {
    if (name == user.name || name == std::to_string(user.user)) apply(section, "[user." + name + "]");
  }
  for (const auto& [name, section] : file.groups) {
    if (user.groups.contains(name)) apply(section, "[group." + name + "]");
  }
  if (user.user == 0) return found;
  for (std::size_t i = 0; i < limit_kinds; ++i) {
    if (!found.limits[i] && file.others[i]) found.limits[i] = Limit{*file.others[i], "[default]"};
  }
  return found;
}

Result<UserLimits> own_limits() {
  // The user database may be a directory service, so it is queried once for each version of the file.
  static std::mutex mutex;  // guards version and known
  using Version = std::tuple<dev_t, ino_t, off_t, std::int64_t, long, std::uint32_t>;
  static std::optional<Version> version;
  static Result<UserLimits> known = UserLimits{};
  const std::lock_guard lock(mutex);
  struct stat about{};
  if (::lstat(limits_path, &about) != 0) return UserLimits{};
  const Version now{about.st_dev, about.st_ino, about.st_size, about.st_ctim.tv_sec, about.st_ctim.tv_nsec, geteuid()};
  if (version == now) return known;
  version = now;
  Result<LimitsFile> file = read_limits();
  // If other users cannot enter the folder, only root can see the file; for them it does not exist.
  if (struct stat folder{}; file && ::stat(limits_folder, &folder) == 0 && (folder.st_mode & S_IXOTH) == 0)
    file =
        Error{ErrorCode::unavailable, std::string("users cannot enter ") + limits_folder + ", where their limits are",
              std::string("sudo chmod 755 ") + limits_folder};
  if (!file) {
    known = Error{file.error().code, file.error().message + "; no limit per user applies until that is corrected",
                  file.error().advice};
    return known;
  }
  const std::uint32_t user = machine_user();
  known = limits_of(*file, {user, world::user_name(user), world::groups_of(user)});
  return known;
}

void Usage::add(const LedgerEntry& entry) {
  if (entry.kind == EntryKind::waiting) {
    ++waiting;
    return;
  }
  bool is_holding = entry.kind == EntryKind::command;
  for (const Claim& claim : entry.claims) {
    // An open pool has an entry with a claim on each of its devices, even if it holds nothing.
    if (entry.kind == EntryKind::pool && claim.memory_bytes == 0 && !claim.exclusive) continue;
    is_holding = true;
    if (claim.memory_domain == processor) continue;
    gpus.insert(claim.memory_domain);
    memory_bytes = bounded_sum(memory_bytes, claim.memory_bytes);
  }
  running += is_holding ? 1 : 0;
}

std::uint64_t Usage::amount(LimitKind kind) const {
  switch (kind) {
    case LimitKind::gpus: return gpus.size();
    case LimitKind::memory: return memory_bytes;
    case LimitKind::running: return running;
    case LimitKind::waiting: return waiting;
  }
  return 0;
}

Usage usage_of(const LedgerSnapshot& snapshot, std::uint32_t user, const LeaseReference& except) {
  Usage usage;
  Nesting nesting(snapshot);
  for (const LedgerEntry& entry : snapshot.entries) {
    if (entry.user == user && entry.reference != except && !nesting.outer_of(entry)) usage.add(entry);
  }
  return usage;
}

Error LimitReached::error() const {
  return {ErrorCode::no_eligible_device, text,
          never ? "ask for less, or ask the administrator"
                : "wait until some of your entries in berth ps end, or ask the administrator"};
}

std::vector<std::string> limits_in_use(const UserLimits& limits, const Usage& usage) {
  std::vector<std::string> sentences;
  for (std::size_t i = 0; i < limit_kinds; ++i) {
    const auto kind = static_cast<LimitKind>(i);
    if (limits.limits[i])
      sentences.push_back("you " + limit_text(kind, *limits.limits[i]) + " and have " +
                          amount_text(kind, usage.amount(kind)));
  }
  return sentences;
}

std::optional<LimitReached> limit_reached(const UserLimits& limits, LimitKind kind, std::uint64_t present,
                                          std::uint64_t more) {
  const std::optional<Limit>& limit = limits.limits[index_of(kind)];
  if (!limit || more == 0 || (present <= limit->most && more <= limit->most - present)) return std::nullopt;
  LimitReached reached{kind, more > limit->most, {}};
  reached.text = limits.user + " " + limit_text(kind, *limit);
  if (reached.never && kind != LimitKind::waiting)
    reached.text += " and asks for " + amount_text(kind, more);
  else
    reached.text += ", has " + amount_text(kind, present) + " and asks for " + more_text(kind, more);
  return reached;
}

std::optional<LimitReached> limit_reached(const UserLimits& limits, const LedgerSnapshot& snapshot,
                                          const LedgerEntry& wanted) {
  if (!limits.any() || Nesting(snapshot).outer_of(wanted)) return std::nullopt;
  const Usage others = usage_of(snapshot, wanted.user, wanted.reference);
  Usage before = others, after = others, alone;
  if (const LedgerEntry* const present = snapshot.find(wanted.reference)) before.add(*present);
  after.add(wanted);
  alone.add(wanted);
  for (std::size_t i = 0; i < limit_kinds; ++i) {
    const auto kind = static_cast<LimitKind>(i);
    if (after.amount(kind) <= before.amount(kind)) continue;
    if (auto never = limit_reached(limits, kind, 0, alone.amount(kind))) return never;
    if (auto reached = limit_reached(limits, kind, others.amount(kind), after.amount(kind) - others.amount(kind)))
      return reached;
  }
  return std::nullopt;
}

std::optional<LimitReached> limit_exceeded_alone(const UserLimits& limits, std::size_t count,
                                                 std::span<const Claim> claims) {
  if (count == 0 || claims.size() < count || !limits.any()) return std::nullopt;
  // The least that any choice of devices needs: as few GPUs as possible, and the smallest amounts of memory.
  std::map<std::string_view, std::size_t> devices_of;
  std::vector<std::uint64_t> bytes;
  for (const Claim& claim : claims) {
    ++devices_of[claim.memory_domain];
    bytes.push_back(claim.memory_domain == processor ? 0 : claim.memory_bytes);
  }
  std::vector<std::size_t> sizes;
  std::size_t left = count - std::min(count, devices_of.contains(processor) ? devices_of[processor] : 0);
  devices_of.erase(processor);
  for (const auto& [domain, devices] : devices_of) sizes.push_back(devices);
  std::sort(sizes.rbegin(), sizes.rend());
  std::size_t gpus = 0;
  for (; left > 0; ++gpus) left -= std::min(left, sizes[gpus]);
  std::sort(bytes.begin(), bytes.end());
  std::uint64_t memory_bytes = 0;
  for (const std::uint64_t more : std::span(bytes).first(count)) memory_bytes = bounded_sum(memory_bytes, more);
  for (const auto& [kind, least] : {std::pair(LimitKind::gpus, std::uint64_t{gpus}),
                                    {LimitKind::memory, memory_bytes},
                                    {LimitKind::running, std::uint64_t{1}}}) {
    if (auto exceeded = limit_reached(limits, kind, 0, least)) return exceeded;
  }
  return std::nullopt;
}

std::vector<Claim> claims_within(const UserLimits& limits, const LedgerSnapshot& snapshot, std::uint32_t user,
                                 std::size_t count, std::vector<Claim> claims) {
  if (!limits.any()) return claims;
  const Usage held = usage_of(snapshot, user);
  if (limit_reached(limits, LimitKind::running, held.running, 1)) return {};
  std::erase_if(claims, [&](const Claim& claim) {
    if (claim.memory_domain == processor) return false;
    const std::uint64_t gpus = held.gpus.contains(claim.memory_domain) ? 0 : count;
    return limit_reached(limits, LimitKind::gpus, held.gpus.size(), gpus) ||
           limit_reached(limits, LimitKind::memory, held.memory_bytes, bounded_product(claim.memory_bytes, count));
  });
  return claims;
}

}  // namespace berth::ledger
