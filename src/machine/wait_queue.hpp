// The line of requests that wait for devices of this machine: who comes first, and
// what those ahead leave for the others. Every process computes it from the same
// ledger, so nobody has to be asked and nobody has to answer. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "berth/device_view.hpp"
#include "berth/ledger.hpp"

namespace berth::machine {

// A request that has not been heard of for so long is stopped, and passed over;
// drivers of many GPUs take seconds to be asked.
inline constexpr Duration silent_after = std::chrono::seconds(10);
// A user's first request that has waited so long goes before those of users who
// hold less, so that a large one is not passed for ever.
inline constexpr Duration aged_after = std::chrono::minutes(2);

// One request in line, as others must respect it.
struct WaitingRequest {
  LeaseReference reference;
  std::uint32_t user = 0;
  Priority priority = Priority::normal;
  TimePoint since{};
  std::size_t count = 1;
  std::vector<Claim> claims;  // devices it could use, with the bytes it needs there
};
WaitingRequest waiting_request_of(const LedgerEntry& entry);

// All requests that are heard of, first to be served first. Requests of one user go
// by priority, then by arrival; between users, the one who holds (or would by then
// hold) fewer promised bytes goes first, then the one that has waited longer since
// its request, or since its last lease began. `also`: a request that
// does not stand in the ledger yet.
std::vector<WaitingRequest> wait_queue(const LedgerSnapshot& snapshot, TimePoint now,
                                       const std::optional<WaitingRequest>& also = std::nullopt);

// Takes from `views` what the requests ahead are about to get: one that fits is
// charged, and the first that does not keeps the devices nearest to fitting it, as
// many as it asked for (DeviceView::kept_for_waiting).
void charge_requests_ahead(std::span<const WaitingRequest> ahead, std::span<DeviceView> views);

// Whether a request ahead asks for no more than this one, anywhere: while it waits,
// this one cannot be served, and need not look.
bool is_behind_smaller_request(const WaitingRequest& request, std::span<const WaitingRequest> ahead);

}  // namespace berth::machine
