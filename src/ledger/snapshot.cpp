// Queries on a snapshot of the ledger. Pure.
#include <algorithm>
#include <charconv>

#include "berth/ledger.hpp"
#include "berth/random.hpp"
#include "ledger/nesting.hpp"

namespace berth {

std::size_t ledger::LeaseHash::operator()(const LeaseReference& lease) const noexcept {
  return splitmix64(lease.file ^ splitmix64(lease.id ^ splitmix64(lease.user)));
}

const LedgerEntry* ledger::Nesting::find(const LeaseReference& lease) {
  if (entries_.empty()) {
    // If two entries have the same reference, which only a forged file can cause, the first one counts.
    for (const LedgerEntry& entry : snapshot_.entries) entries_.try_emplace(entry.reference, &entry);
  }
  const auto found = entries_.find(lease);
  return found == entries_.end() ? nullptr : found->second;
}

const LedgerEntry* ledger::Nesting::outer_of(const LedgerEntry& entry) {
  if (!entry.within) return nullptr;
  // Only the user of a lease and root, which runs containers, may nest leases in it.
  const LedgerEntry* const outer = find(*entry.within);
  return outer && outer != &entry && (outer->user == entry.user || entry.user == 0) ? outer : nullptr;
}

const LedgerEntry& ledger::Nesting::outermost(const LedgerEntry& entry) {
  const LedgerEntry* at = &entry;
  for (int depth = 0; depth < depth_max; ++depth) {
    const LedgerEntry* const outer = outer_of(*at);
    if (!outer) break;
    at = outer;
  }
  return *at;
}

namespace {

bool holds(const LedgerEntry& entry) { return entry.kind != EntryKind::waiting; }

}  // namespace

// In the order of the enumerators.
std::string_view to_string(EntryKind kind) noexcept {
  static constexpr std::string_view names[] = {"running", "pool", "waiting"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view to_string(Liveness liveness) noexcept {
  static constexpr std::string_view names[] = {"none", "descriptor", "cgroup", "holder", "environment", "device"};
  return names[static_cast<std::size_t>(liveness)];
}

std::string to_string(const LeaseReference& lease) {
  char text[17];
  std::string file(text, std::to_chars(text, text + sizeof text, lease.file, 16).ptr);
  return file.insert(0, 16 - file.size(), '0') + ":" + std::to_string(lease.id);
}

std::optional<LeaseReference> parse_lease(std::string_view text) {
  LeaseReference lease;
  const char* const end = text.data() + text.size();
  const auto [colon, wrong_file] = std::from_chars(text.data(), end, lease.file, 16);
  if (wrong_file != std::errc() || colon == end || *colon != ':') return std::nullopt;
  const auto [rest, wrong_id] = std::from_chars(colon + 1, end, lease.id);
  if (wrong_id != std::errc() || rest != end || lease.id == 0) return std::nullopt;
  return lease;
}

const Claim* LedgerEntry::claim_on(const DeviceId& device) const noexcept {
  const auto at =
      std::find_if(claims.begin(), claims.end(), [&](const Claim& claim) { return claim.device == device; });
  return at == claims.end() ? nullptr : &*at;
}

bool LedgerEntry::is_exclusive() const noexcept {
  return std::any_of(claims.begin(), claims.end(), [](const Claim& claim) { return claim.exclusive; });
}

const LedgerEntry* LedgerSnapshot::find(const LeaseReference& lease) const noexcept {
  const auto at =
      std::find_if(entries.begin(), entries.end(), [&](const LedgerEntry& entry) { return entry.reference == lease; });
  return at == entries.end() ? nullptr : &*at;
}

const LedgerEntry* LedgerSnapshot::outer_of(const LedgerEntry& entry) const noexcept {
  return ledger::Nesting(*this).outer_of(entry);
}

const LedgerEntry& LedgerSnapshot::outermost(const LedgerEntry& entry) const noexcept {
  return ledger::Nesting(*this).outermost(entry);
}

namespace {

template <class Use>
void each_holder(const LedgerSnapshot& snapshot, const DeviceId& device, std::optional<LeaseReference> except,
                 Use&& use) {
  ledger::Nesting nesting(snapshot);
  for (const LedgerEntry& entry : snapshot.entries) {
    if (!holds(entry)) continue;
    const Claim* const claim = entry.claim_on(device);
    if (!claim) continue;
    const LedgerEntry& outer = nesting.outermost(entry);
    if (except && (entry.reference == *except || outer.reference == *except)) continue;
    // A lease nested in another lease on the same device is part of that lease.
    if (&outer != &entry && outer.claim_on(device)) continue;
    use(*claim);
  }
}

}  // namespace

std::uint32_t LedgerSnapshot::holders(const DeviceId& device, std::optional<LeaseReference> except) const noexcept {
  std::uint32_t count = 0;
  each_holder(*this, device, except, [&](const Claim&) { ++count; });
  return count;
}

bool LedgerSnapshot::held_exclusively(const DeviceId& device, std::optional<LeaseReference> except) const noexcept {
  bool held = false;
  each_holder(*this, device, except, [&](const Claim& claim) { held = held || claim.exclusive; });
  return held;
}

bool LedgerSnapshot::is_loading(const DeviceId& device, TimePoint now) const noexcept {
  return std::any_of(entries.begin(), entries.end(), [&](const LedgerEntry& entry) {
    return holds(entry) && entry.loads_until && *entry.loads_until > now && entry.claim_on(device);
  });
}

const DeviceIntent* LedgerSnapshot::intent(const DeviceId& device) const noexcept {
  const DeviceIntent* strictest = nullptr;
  for (const DeviceIntent& intent : intents) {
    if (intent.device == device && (!strictest || intent.intent > strictest->intent)) strictest = &intent;
  }
  return strictest;
}

bool LedgerSnapshot::has_waiting() const noexcept {
  return std::any_of(entries.begin(), entries.end(),
                     [](const LedgerEntry& entry) { return entry.kind == EntryKind::waiting; });
}

}  // namespace berth
