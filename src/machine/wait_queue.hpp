// The queue of requests that wait for devices of this machine: their order, and what
// the requests ahead leave for the others. Every process computes it from the same
// ledger, so no coordination is needed. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "berth/device_view.hpp"
#include "berth/ledger.hpp"

namespace berth::machine {

// A request without a heartbeat for this long counts as stopped and is skipped.
// Querying the drivers of many GPUs takes seconds.
inline constexpr Duration silent_after = std::chrono::seconds(10);
// A user's first request that has waited this long goes ahead of requests of users who hold less,
// so that a large request is not overtaken forever.
inline constexpr Duration aged_after = std::chrono::minutes(2);
// The same for a user who holds more than an equal share: all bytes that are held, divided by the users who hold some
// or wait.
inline constexpr Duration aged_after_over_share = std::chrono::minutes(20);

// One waiting request.
struct WaitingRequest {
  LeaseReference reference;
  std::uint32_t user = 0;
  Priority priority = Priority::normal;
  TimePoint since{};
  std::size_t count = 1;
  std::vector<Claim> claims;  // devices that it could use, with the bytes it needs on each
};
WaitingRequest waiting_request_of(const LedgerEntry& entry);

// All requests with a recent heartbeat, in the order of service. Requests of one user are ordered by priority, then
// arrival. Between users, the one with fewer promised bytes (including its requests ahead) goes first, then the one
// that has waited longer since its request or its last lease. A user's first request that has waited for long goes
// ahead of all that have not, see aged_after. `also`: a request that is not in the ledger yet.
std::vector<WaitingRequest> wait_queue(const LedgerSnapshot& snapshot, TimePoint now,
                                       const std::optional<WaitingRequest>& also = std::nullopt);

// Subtracts from `views` what the requests ahead will get. A request that fits is
// charged; for the first that does not fit, as many devices as it needs are kept, those
// closest to fitting (DeviceView::kept_for_waiting). Returns that request; null: there is none.
const WaitingRequest* charge_requests_ahead(std::span<const WaitingRequest> ahead, std::span<DeviceView> views);

// The last request ahead that needs no more than this one on any device: while it waits, this one cannot be served
// and need not query the devices. A request that cannot use any device, such as one stopped by its user's limit,
// waits only behind others of its user. Null: there is none.
const WaitingRequest* smaller_request_ahead(const WaitingRequest& request, std::span<const WaitingRequest> ahead);

}  // namespace berth::machine
