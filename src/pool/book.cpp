// What can be read off a copy of the ledger. Pure.
#include <algorithm>

#include "berth/ledger.hpp"

namespace berth {
namespace {

bool holds(const LedgerEntry& entry) { return entry.state != EntryState::waiting; }

// A pool's row names every device it may use; it holds those it promised bytes of.
bool holds(const LedgerEntry& entry, const DeviceId& device) {
  return holds(entry) && std::any_of(entry.claims.begin(), entry.claims.end(), [&](const Claim& claim) {
           return claim.device == device && (entry.state != EntryState::pool || claim.memory_bytes != 0);
         });
}

bool is_ahead(const LedgerEntry& entry, std::uint64_t me, Priority priority) {
  if (entry.state != EntryState::waiting || entry.id == me) return false;
  if (entry.priority != priority) return entry.priority > priority;
  return me == 0 || entry.id < me;
}

}  // namespace

std::string_view to_string(EntryState state) noexcept {
  switch (state) {
    case EntryState::reserved: return "reserved";
    case EntryState::taken: return "running";
    case EntryState::pool: return "pool";
    case EntryState::waiting: return "waiting";
  }
  return "unknown";
}

const LedgerEntry* Book::find(std::uint64_t id) const noexcept {
  const auto at =
      std::find_if(entries.begin(), entries.end(), [&](const LedgerEntry& entry) { return entry.id == id; });
  return at == entries.end() ? nullptr : &*at;
}

std::uint64_t Book::promised(const std::string& memory_domain) const noexcept {
  std::uint64_t sum = 0;
  for (const LedgerEntry& entry : entries) {
    if (!holds(entry)) continue;
    for (const Claim& claim : entry.claims) {
      if (claim.memory_domain == memory_domain) sum += claim.memory_bytes;
    }
  }
  return sum;
}

std::uint32_t Book::holders(const DeviceId& device) const noexcept {
  return static_cast<std::uint32_t>(
      std::count_if(entries.begin(), entries.end(), [&](const LedgerEntry& entry) { return holds(entry, device); }));
}

bool Book::held_exclusively(const DeviceId& device) const noexcept {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const LedgerEntry& entry) { return entry.exclusive && holds(entry, device); });
}

bool Book::is_loading(const DeviceId& device, TimePoint now) const noexcept {
  return std::any_of(entries.begin(), entries.end(), [&](const LedgerEntry& entry) {
    return entry.loads_until && *entry.loads_until > now && holds(entry, device);
  });
}

Intent Book::intent(const DeviceId& device) const noexcept {
  const auto at = intents.find(device);
  return at == intents.end() ? Intent::in_service : at->second;
}

bool Book::others_first(std::uint64_t me, Priority priority, TimePoint my_last, TimePoint now,
                        Duration silence) const noexcept {
  return std::any_of(entries.begin(), entries.end(), [&](const LedgerEntry& entry) {
    return is_ahead(entry, me, priority) && (entry.tried != changes || entry.tried_at <= my_last) &&
           now - std::max(entry.tried_at, entry.since) < silence;
  });
}

std::vector<DeviceId> Book::kept_for_others(std::uint64_t me, Priority priority, TimePoint now,
                                            Duration patience) const {
  std::vector<DeviceId> kept;
  for (const LedgerEntry& entry : entries) {
    if (!is_ahead(entry, me, priority) || now - entry.since < patience) continue;
    for (const Claim& claim : entry.claims) kept.push_back(claim.device);
  }
  return kept;
}

}  // namespace berth
