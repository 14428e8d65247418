#include "machine/start_estimate.hpp"

#include <algorithm>

#include "machine/decision.hpp"

namespace berth::machine {
namespace {

// Removes the lease and the leases nested in it, and counts the memory of their processes as free.
void end_lease(const LeaseReference& lease, MachineSnapshot& observed, LedgerSnapshot& snapshot) {
  const auto belongs = [&](const LedgerEntry* entry) { return entry && snapshot.outermost(*entry).reference == lease; };
  for (ObservedDevice& device : observed.devices) {
    if (!device.telemetry || !device.telemetry->processes) continue;
    const ledger::ProcessOwners owners(snapshot, device.processes);
    LoadSample& load = device.telemetry->load;
    for (std::size_t i = device.processes.size(); i-- > 0;) {
      if (!belongs(owners.owner(i))) continue;
      if (load.memory_bytes_free) *load.memory_bytes_free += device.processes[i].memory_bytes;
      const auto at = static_cast<std::ptrdiff_t>(i);
      device.processes.erase(device.processes.begin() + at);
      device.telemetry->processes->erase(device.telemetry->processes->begin() + at);
    }
  }
  const LedgerSnapshot before = snapshot;
  std::erase_if(snapshot.entries, [&](const LedgerEntry& entry) { return before.outermost(entry).reference == lease; });
}

}  // namespace

std::optional<LeaseEnd> estimate_start(const ReservationRequest& request, MachineSnapshot observed,
                                       LedgerSnapshot snapshot, std::span<const WaitingRequest> ahead, TimePoint now,
                                       std::vector<LeaseEnd> ends) {
  std::sort(ends.begin(), ends.end(), [](const LeaseEnd& a, const LeaseEnd& b) { return a.at_us < b.at_us; });
  for (const LeaseEnd& end : ends) {
    end_lease(end.lease, observed, snapshot);
    Reservation out;
    out.observed = observed;
    decide_within_limits(request, snapshot, std::nullopt, ahead, now, out);
    if (!out.winners.empty()) return end;
  }
  return std::nullopt;
}

const WaitingRequest* obstacle_ahead(const ReservationRequest& request, const MachineSnapshot& observed,
                                     const LedgerSnapshot& snapshot, std::span<const WaitingRequest> ahead,
                                     TimePoint now) {
  Reservation out;
  out.observed = observed;
  const auto fits_behind = [&](std::size_t count) {
    decide_within_limits(request, snapshot, std::nullopt, ahead.first(count), now, out);
    return !out.winners.empty();
  };
  if (!fits_behind(0) || fits_behind(ahead.size())) return nullptr;
  // Each further request ahead leaves less room, so a binary search finds the first one that is in the way.
  std::size_t fits = 0, fails = ahead.size();
  while (fails - fits > 1) {
    const std::size_t middle = fits + (fails - fits) / 2;
    (fits_behind(middle) ? fits : fails) = middle;
  }
  return &ahead[fails - 1];
}

}  // namespace berth::machine
