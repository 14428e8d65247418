// What a waiting request waits for: when it starts at the latest, from the time limits of the leases in its way, and
// whether a request ahead of it is all that keeps it waiting. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "machine/reservation.hpp"
#include "machine/wait_queue.hpp"

namespace berth::machine {

// A lease, and the wall time by which it ends.
struct LeaseEnd {
  LeaseReference lease;
  std::uint64_t at_us = 0;
};

// The first end after which the request fits, after the requests `ahead` of it, if nothing else changes. Absent: it
// does not fit even after all of these leases have ended.
std::optional<LeaseEnd> estimate_start(const ReservationRequest& request, MachineSnapshot observed,
                                       LedgerSnapshot snapshot, std::span<const WaitingRequest> ahead, TimePoint now,
                                       std::vector<LeaseEnd> ends);

// Finds the first of the requests ahead with which the request no longer fits. Null if it would not fit without them
// either, or if it fits.
const WaitingRequest* obstacle_ahead(const ReservationRequest& request, const MachineSnapshot& observed,
                                     const LedgerSnapshot& snapshot, std::span<const WaitingRequest> ahead,
                                     TimePoint now);

}  // namespace berth::machine
