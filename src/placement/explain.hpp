// From a decision to its explanation. Asks every filter about every device and
// the policy for its costs again; the decision itself is not made anew.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "berth/placement.hpp"

namespace berth {

// The filters in the order they run.
inline constexpr Rejection filters[] = {
    Rejection::not_selected, Rejection::not_in_service, Rejection::unhealthy, Rejection::stale,
    Rejection::capability,   Rejection::feature,        Rejection::memory,
};
// Whether this one filter keeps `view` out.
bool fails(Rejection filter, const Hints& hints, const DeviceView& view) noexcept;

// Costs of the eligible devices; empty when the policy has none to tell.
std::vector<std::uint64_t> costs_of(const Policy& policy, const Hints& hints, std::span<const DeviceView> eligible,
                                    Ticket ticket);

Explanation explain(const Policy& policy, const Hints& hints, std::span<const DeviceView> views, Ticket ticket,
                    const Decision& decision);

}  // namespace berth
