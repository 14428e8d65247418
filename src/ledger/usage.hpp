// Bytes counted once: which entry a process belongs to, and how much of the
// promises its entries have not taken up yet. What telemetry reports as free
// already lacks what running commands have allocated, so of a promise only the
// rest is subtracted. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/ledger.hpp"
#include "berth/telemetry.hpp"
#include "ledger/process.hpp"

namespace berth::ledger {

// A process on a device, and what is known of where it comes from.
struct ObservedProcess {
  std::uint32_t pid = 0;
  std::uint64_t memory_bytes = 0;
  ProcessTrace trace;
};

// The one entry the process belongs to: of all that its cgroup, its descriptors,
// its environment or its ancestors name, the innermost. Null: none.
const LedgerEntry* owner_of(const ProcessTrace& trace, const LedgerSnapshot& snapshot);

// Entries without another sign of life that a process with memory of one of their
// devices keeps: it belongs to them, or it is an orphan of the same user, started
// since, that belongs to none. They move to `entries`; the rest of `ended` is over.
// Where a driver that lists processes did not do so, entries are kept as well.
struct DeviceProcesses {
  DeviceId device;
  std::span<const ObservedProcess> processes;
  bool unknown = false;
};
void keep_entries_in_use(LedgerSnapshot& snapshot, std::span<const DeviceProcesses> devices, const BootTime& time);

// Ended entries that were taken since the ledger was read before the devices were
// looked at, and whose processes this one cannot see: a process that keeps one may
// have got its memory after the look. They count for this once.
void keep_entries_added_since(LedgerSnapshot& snapshot, TimePoint since,
                              const std::function<bool(const LedgerEntry&)>& can_see_processes_of);

// What one memory has to offer.
struct MemoryState {
  std::string_view domain;
  std::uint64_t free = 0;
  std::optional<std::uint64_t> used;  // bounds what can have been taken up
  std::span<const ObservedProcess> processes;
};

// Promised and not yet allocated, by everybody but `except` (an entry, with what
// draws on it, or the lease it draws on).
std::uint64_t unallocated_bytes(const LedgerSnapshot& snapshot, const MemoryState& memory,
                                std::optional<LeaseReference> except = {});

// Of a lease, what requests made inside it can still be given: its bytes less
// what its processes use and what was promised inside it and is not allocated.
// `except`: an entry inside whose promise and use are not counted.
std::uint64_t bytes_left_within(const LedgerSnapshot& snapshot, const LeaseReference& lease, const MemoryState& memory,
                                std::optional<LeaseReference> except = {});

// Bytes that the processes of an entry, and of what draws on it, use.
std::uint64_t bytes_in_use(const LedgerSnapshot& snapshot, const LedgerEntry& entry,
                           std::span<const ObservedProcess> processes);

// The later copy, with what only the earlier one has: ended entries, and claims
// that were larger.
LedgerSnapshot merged(const LedgerSnapshot& before, LedgerSnapshot after);

}  // namespace berth::ledger
