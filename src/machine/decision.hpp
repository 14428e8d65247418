// One decision about a request, on a snapshot of the machine: what reserve(), decide_once() and the explanation of a
// waiting job share. Pure but for random tickets.
#pragma once

#include <optional>
#include <span>

#include "machine/reservation.hpp"
#include "machine/wait_queue.hpp"

namespace berth::machine {

// After the requests `ahead` in the queue. Sets views, winners and explanation of `out`, from its `observed`.
// `allowed`: on these devices only.
void decide(const ReservationRequest& request, const LedgerSnapshot& snapshot, std::optional<LeaseReference> within,
            std::span<const WaitingRequest> ahead, TimePoint now, Reservation& out,
            const std::vector<DeviceId>* allowed = nullptr);

// The same, within the limits of this user. Where the limit is on GPUs, the devices that the user's leases already use
// are tried before the request is refused.
void decide_within_limits(const ReservationRequest& request, const LedgerSnapshot& snapshot,
                          std::optional<LeaseReference> within, std::span<const WaitingRequest> ahead, TimePoint now,
                          Reservation& out);

// For a request that waits, the explanation names the obstacle that most of the devices fail on that could serve it.
// The one that would have to go alone is not what the user waits for where the others are about to be free.
void name_common_cause(const Requirements& requirements, Reservation& out);

}  // namespace berth::machine
