// One decision about a request, on a snapshot of the machine: shared by reserve(), decide_once() and the explanation
// of a waiting job. Pure except for random tickets and the names of jobs.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "machine/reservation.hpp"
#include "machine/wait_queue.hpp"

namespace berth::machine {

// Decides after the requests `ahead` in the queue. Sets the views, winners and explanation of `out` from its
// `observed`. `allowed`: use these devices only.
void decide(const ReservationRequest& request, const LedgerSnapshot& snapshot, std::optional<LeaseReference> within,
            std::span<const WaitingRequest> ahead, TimePoint now, Reservation& out,
            const std::vector<DeviceId>* allowed = nullptr);

// The same, within the limits of this user. A request that exceeds a limit by itself is refused even if no device is
// free. If the limit is on GPUs, the devices that the user's leases already use
// are tried before the request is refused.
void decide_within_limits(const ReservationRequest& request, const LedgerSnapshot& snapshot,
                          std::optional<LeaseReference> within, std::span<const WaitingRequest> ahead, TimePoint now,
                          Reservation& out);

// Inside a lease: whether the request fits into that lease if the lease were unused.
bool fits_when_idle(const ReservationRequest& request, const LedgerSnapshot& snapshot, const Reservation& decided);

// Whether the device fits once the leases and processes on it have ended.
bool could_use(const Requirements& requirements, const DeviceView& view);

Claim claim_of(const Requirements& requirements, const DeviceInfo& info);

// The claims on the devices that the decision chose.
std::vector<Claim> claims_for(const ReservationRequest& request, const Reservation& decided);

// "j3 (train)" for a job of this user, "a request of bob (python)".
std::string waiting_request_text(const LedgerSnapshot& snapshot, const WaitingRequest& request);

// For a waiting request, the explanation names the obstacle of most devices that could serve it. The obstacle whose
// removal alone would be enough is not what the user waits for if the others are about to become free. A reservation
// for a request ahead remains the obstacle: the device has room.
void name_common_cause(const Requirements& requirements, Reservation& out);

}  // namespace berth::machine
