#include "ledger/usage.hpp"

#include <algorithm>
#include <limits>

#include "ledger/nesting.hpp"

namespace berth::ledger {
namespace {

std::uint64_t sum_of(std::uint64_t a, std::uint64_t b) {
  return a > std::numeric_limits<std::uint64_t>::max() - b ? std::numeric_limits<std::uint64_t>::max() : a + b;
}
std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

bool names(const LeaseReference& lease, const LedgerEntry& entry) {
  return lease.file == entry.reference.file && lease.id == entry.reference.id;
}

bool is_below(const std::string& cgroup, const std::string& of) {
  return cgroup == of || (cgroup.starts_with(of) && cgroup[of.size()] == '/');
}

// Whether a process belongs to an entry. `by_name`: BERTH_LEASE in its environment is accepted.
bool belongs(const ProcessTrace& trace, const LedgerEntry& entry, bool by_name = true) {
  if (entry.kind == EntryKind::waiting) return false;
  // Root may run parts of another user's command, for example a container. A command of root may switch to another
  // user, whose environment is not accepted, because any user can write it.
  const bool is_of_user = !trace.user || *trace.user == entry.user || *trace.user == 0;
  if (!is_of_user && entry.user != 0) return false;
  // Child processes of a program do not belong to its pool.
  if (entry.kind == EntryKind::pool) return !trace.lineage.empty() && trace.lineage.front() == entry.holder;
  if (!entry.cgroup.empty() && is_below(trace.cgroup, entry.cgroup)) return true;
  if (by_name && is_of_user && trace.lease && names(*trace.lease, entry)) return true;
  if (std::find(trace.descriptors.begin(), trace.descriptors.end(), entry.reference) != trace.descriptors.end())
    return true;
  return std::find(trace.lineage.begin(), trace.lineage.end(), entry.holder) != trace.lineage.end();
}

bool draws_on(Nesting& nesting, const LedgerEntry& entry, const LeaseReference& lease) {
  const LedgerEntry* at = &entry;
  for (int depth = 0; at && depth < Nesting::depth_max; ++depth) {
    if (at->reference == lease) return true;
    at = nesting.outer_of(*at);
  }
  return false;
}

struct Promise {
  std::uint64_t bytes = 0;
  std::uint64_t outside = 0;
};
Promise promise_of(const LedgerEntry& entry, std::string_view domain) {
  Promise promise;
  for (const Claim& claim : entry.claims) {
    if (claim.memory_domain != domain) continue;
    promise.bytes = sum_of(promise.bytes, claim.memory_bytes);
    promise.outside = sum_of(promise.outside, claim.memory_bytes_outside);
  }
  return promise;
}

std::uint64_t taken_up(const ProcessOwners& owners, const LedgerEntry& entry, const Promise& promise) {
  const std::uint64_t used = owners.bytes_in_use(entry);
  return std::min(promise.bytes, less(used, entry.kind == EntryKind::pool ? promise.outside : 0));
}

}  // namespace

const LedgerEntry* owner_of(const ProcessTrace& trace, const LedgerSnapshot& snapshot) {
  const LedgerEntry* found = nullptr;
  // A process of root may belong to any user's lease. If two users have a lease with
  // the same file number and id, BERTH_LEASE is ambiguous.
  const auto is_ambiguous = [&](const LedgerEntry& entry) {
    return trace.lease && trace.user != entry.user && names(*trace.lease, entry) &&
           std::any_of(snapshot.entries.begin(), snapshot.entries.end(), [&](const LedgerEntry& other) {
             return other.user != entry.user && names(*trace.lease, other);
           });
  };
  for (const LedgerEntry& entry : snapshot.entries) {
    if (!belongs(trace, entry, !is_ambiguous(entry))) continue;
    if (!found || std::pair(found->since, found->id()) < std::pair(entry.since, entry.id())) found = &entry;
  }
  return found;
}

ProcessOwners::ProcessOwners(const LedgerSnapshot& snapshot, std::span<const ObservedProcess> processes) {
  Nesting nesting(snapshot);
  for (const ObservedProcess& process : processes) {
    const LedgerEntry* at = owner_of(process.trace, snapshot);
    owners_.push_back(at);
    for (int depth = 0; at && depth < Nesting::depth_max; ++depth, at = nesting.outer_of(*at))
      used_[at] = sum_of(used_[at], process.memory_bytes);
  }
}

std::uint64_t ProcessOwners::bytes_in_use(const LedgerEntry& entry) const {
  const auto found = used_.find(&entry);
  return found == used_.end() ? 0 : found->second;
}

std::uint64_t unallocated_bytes(const LedgerSnapshot& snapshot, const MemoryState& memory,
                                std::optional<LeaseReference> except) {
  Nesting nesting(snapshot);
  const ProcessOwners owners(snapshot, memory.processes);
  const LedgerEntry* const self = except ? snapshot.find(*except) : nullptr;
  const LedgerEntry* const mine = self ? &nesting.outermost(*self) : nullptr;
  std::uint64_t promised = 0, taken = 0;
  for (const LedgerEntry& entry : snapshot.entries) {
    if (entry.kind == EntryKind::waiting || &nesting.outermost(entry) != &entry || &entry == mine) continue;
    const Promise promise = promise_of(entry, memory.domain);
    promised = sum_of(promised, promise.bytes);
    taken = sum_of(taken, taken_up(owners, entry, promise));
  }
  // Processes and free memory are not read at the same instant, so limit the allocated bytes to the memory in use.
  return less(promised, memory.used ? std::min(taken, *memory.used) : taken);
}

std::uint64_t bytes_left_within(const LedgerSnapshot& snapshot, const LeaseReference& lease, const MemoryState& memory,
                                std::optional<LeaseReference> except) {
  const LedgerEntry* const outer = snapshot.find(lease);
  if (!outer) return 0;
  Nesting nesting(snapshot);
  const ProcessOwners owners(snapshot, memory.processes);
  std::uint64_t left = promise_of(*outer, memory.domain).bytes;
  for (std::size_t i = 0; i < memory.processes.size(); ++i) {
    const LedgerEntry* const owner = owners.owner(i);
    if (!owner || !draws_on(nesting, *owner, lease) || (except && draws_on(nesting, *owner, *except))) continue;
    left = less(left, memory.processes[i].memory_bytes);
  }
  for (const LedgerEntry& entry : snapshot.entries) {
    if (nesting.outer_of(entry) != outer) continue;
    if (entry.kind == EntryKind::waiting || entry.reference == except) continue;
    const Promise promise = promise_of(entry, memory.domain);
    left = less(left, less(promise.bytes, taken_up(owners, entry, promise)));
  }
  return left;
}

void use_current_ids(LedgerSnapshot& snapshot, const inventory::FormerIds& ids) {
  if (ids.empty()) return;
  for (std::vector<LedgerEntry>* const entries : {&snapshot.entries, &snapshot.ended}) {
    for (LedgerEntry& entry : *entries) {
      for (Claim& claim : entry.claims) {
        claim.device = ids.current(claim.device);
        claim.memory_domain = ids.current_domain(claim.memory_domain);
      }
    }
  }
  for (DeviceIntent& intent : snapshot.intents) intent.device = ids.current(intent.device);
}

LedgerSnapshot merged(const LedgerSnapshot& before, LedgerSnapshot after) {
  std::unordered_map<LeaseReference, std::size_t, LeaseHash> positions;
  for (std::size_t i = 0; i < after.entries.size(); ++i) positions.try_emplace(after.entries[i].reference, i);
  for (const LedgerEntry& earlier : before.entries) {
    if (earlier.kind == EntryKind::waiting) continue;
    const auto [found, is_new] = positions.try_emplace(earlier.reference, after.entries.size());
    if (is_new) {
      after.entries.push_back(earlier);
      continue;
    }
    LedgerEntry* const same = &after.entries[found->second];
    for (const Claim& claim : earlier.claims) {
      const auto now = std::find_if(same->claims.begin(), same->claims.end(),
                                    [&](const Claim& other) { return other.device == claim.device; });
      if (now == same->claims.end())
        same->claims.push_back(claim);
      else
        now->memory_bytes = std::max(now->memory_bytes, claim.memory_bytes);
    }
  }
  return after;
}

void keep_entries_in_use(LedgerSnapshot& snapshot, std::span<const DeviceProcesses> devices, const BootTime& time) {
  const auto started_since = [&](const ProcessTrace& trace, TimePoint since) {
    if (trace.lineage.empty() || time.ticks_now == 0) return true;
    const std::uint64_t ticks = less(time.ticks_now, trace.lineage.front().start_time);
    const Duration age = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(static_cast<double>(ticks) / static_cast<double>(time.ticks_per_second)));
    return time.now - age + std::chrono::seconds(1) >= since;
  };
  const auto keeps = [&](const ObservedProcess& process, const LedgerEntry& entry) {
    if (belongs(process.trace, entry) || process.trace.hidden) return true;
    return process.trace.orphan && process.trace.user == entry.user && started_since(process.trace, entry.since);
  };
  // Processes that use memory and belong to no living entry.
  std::vector<std::vector<const ObservedProcess*>> unowned(devices.size());
  for (std::size_t i = 0; i < devices.size() && !snapshot.ended.empty(); ++i) {
    for (const ObservedProcess& process : devices[i].processes) {
      if (process.memory_bytes > 0 && !owner_of(process.trace, snapshot)) unowned[i].push_back(&process);
    }
  }
  std::vector<LedgerEntry> over, kept;
  for (LedgerEntry& entry : snapshot.ended) {
    bool is_unknown = false;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (!entry.claim_on(devices[i].device)) continue;
      is_unknown = is_unknown || devices[i].unknown;
      for (const ObservedProcess* const process : unowned[i]) {
        if (keeps(*process, entry)) entry.kept_by.push_back(process->pid);
      }
    }
    const bool is_kept = !entry.kept_by.empty() || is_unknown;
    if (is_kept) entry.alive_by = Liveness::device;
    (is_kept ? kept : over).push_back(std::move(entry));
  }
  snapshot.ended = std::move(over);
  for (LedgerEntry& entry : kept) snapshot.entries.push_back(std::move(entry));
}

void keep_entries_added_since(LedgerSnapshot& snapshot, TimePoint since,
                              const std::function<bool(const LedgerEntry&)>& can_see_processes_of) {
  const auto is_kept = [&](const LedgerEntry& entry) { return entry.since >= since && !can_see_processes_of(entry); };
  for (const LedgerEntry& entry : snapshot.ended) {
    if (is_kept(entry)) snapshot.entries.push_back(entry);
  }
  std::erase_if(snapshot.ended, is_kept);
}

}  // namespace berth::ledger
