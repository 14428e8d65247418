// When a waiting request starts at the latest, from the time limits of the leases in its way. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "machine/reservation.hpp"
#include "machine/wait_queue.hpp"

namespace berth::machine {

// A lease that ends by this wall time.
struct LeaseEnd {
  LeaseReference lease;
  std::uint64_t at_us = 0;
};

// The first end after which the request fits, after the requests `ahead` of it, if nothing else changes. Absent: it
// does not fit even after all of these leases have ended.
std::optional<LeaseEnd> estimate_start(const ReservationRequest& request, MachineSnapshot observed,
                                       LedgerSnapshot snapshot, std::span<const WaitingRequest> ahead, TimePoint now,
                                       std::vector<LeaseEnd> ends);

}  // namespace berth::machine
