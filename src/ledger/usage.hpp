// Counts each byte once: which entry a process belongs to, and how many promised
// bytes are not yet allocated. The free memory in telemetry already excludes what
// running commands have allocated, so only the rest of a promise is subtracted. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "berth/ledger.hpp"
#include "berth/telemetry.hpp"
#include "inventory/former_ids.hpp"
#include "ledger/process.hpp"

namespace berth::ledger {

// A process on a device, and what is known about its origin.
struct ObservedProcess {
  std::uint32_t pid = 0;
  std::uint64_t memory_bytes = 0;
  ProcessTrace trace;
};

// The entry the process belongs to: the innermost of those that its cgroup, descriptors,
// environment or ancestors identify. Null if the process belongs to no entry.
const LedgerEntry* owner_of(const ProcessTrace& trace, const LedgerSnapshot& snapshot);

// Moves entries from `ended` back to `entries` if a process with memory on one of
// their devices belongs to them, or may: an orphan of the same user that started
// later and belongs to no entry. If a driver that should list processes did not
// (`unknown`), the entries of its device are kept as well.
struct DeviceProcesses {
  DeviceId device;
  std::span<const ObservedProcess> processes;
  bool unknown = false;
};
void keep_entries_in_use(LedgerSnapshot& snapshot, std::span<const DeviceProcesses> devices, const BootTime& time);

// Keeps ended entries that were added since `since`, the time before the devices were
// observed, and whose processes are not visible: such a process may have allocated
// its memory after the observation. They count for this decision only.
void keep_entries_added_since(LedgerSnapshot& snapshot, TimePoint since,
                              const std::function<bool(const LedgerEntry&)>& can_see_processes_of);

// The state of one memory domain.
struct MemoryState {
  std::string_view domain;
  std::uint64_t free = 0;
  std::optional<std::uint64_t> used;  // upper bound of the bytes that leases have allocated
  std::span<const ObservedProcess> processes;
};

// Bytes promised and not yet allocated, of all entries except `except`, the leases nested in it,
// and the lease it is nested in.
std::uint64_t unallocated_bytes(const LedgerSnapshot& snapshot, const MemoryState& memory,
                                std::optional<LeaseReference> except = {});

// Bytes of a lease that requests inside it can still get: its bytes minus those that its processes
// use and those promised inside it and not yet allocated. `except`: an entry inside it that is not
// counted.
std::uint64_t bytes_left_within(const LedgerSnapshot& snapshot, const LeaseReference& lease, const MemoryState& memory,
                                std::optional<LeaseReference> except = {});

// The owners of all processes on a device. The snapshot must outlive it and not change meanwhile.
class ProcessOwners {
 public:
  ProcessOwners(const LedgerSnapshot& snapshot, std::span<const ObservedProcess> processes);
  const LedgerEntry* owner(std::size_t process) const { return owners_[process]; }
  // Bytes in use by the processes of the entry and of the leases nested in it.
  std::uint64_t bytes_in_use(const LedgerEntry& entry) const;

 private:
  std::vector<const LedgerEntry*> owners_;
  std::unordered_map<const LedgerEntry*, std::uint64_t> used_;
};

// Claims and intents under a former id of a device apply to the device.
void use_current_ids(LedgerSnapshot& snapshot, const inventory::FormerIds& ids);

// The later snapshot, with the entries that ended since the earlier one and with
// claims that were larger then.
LedgerSnapshot merged(const LedgerSnapshot& before, LedgerSnapshot after);

}  // namespace berth::ledger
