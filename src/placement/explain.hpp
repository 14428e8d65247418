// What choosing and explaining share: the filters one by one, the order of the
// eligible, and how many of them fit together. From a decision to its explanation. Asks every filter about every device
// and the policy for its costs again; the decision itself is not made anew.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "berth/placement.hpp"

namespace berth {

// The filters in the order they run.
inline constexpr Rejection filters[] = {
    Rejection::not_selected, Rejection::not_in_service, Rejection::unhealthy, Rejection::stale,
    Rejection::capability,   Rejection::feature,        Rejection::held,      Rejection::memory,
};
// Whether this one filter keeps `view` out.
bool fails(Rejection filter, const Hints& hints, const DeviceView& view) noexcept;

// The eligible devices, best first. The policy orders each tier for itself:
// devices that are as much preferred and as near.
struct Ranked {
  std::size_t position = 0;  // in the views
  bool preferred = false;
  std::uint32_t distance = 0;         // link_cost to hints.near, 0 where none is asked for
  std::optional<std::uint64_t> cost;  // absent: the policy does not say
};
struct Ranking {
  std::vector<Ranked> order;
  bool policy_misbehaved = false;
};
Ranking ranking_of(const Policy& policy, const Hints& hints, std::span<const DeviceView> views,
                   const Topology& topology, Ticket ticket);

// How many of the eligible devices can be had at once.
std::size_t largest_group(const Hints& hints, std::span<const DeviceView> views);

Explanation explain(const Policy& policy, const Hints& hints, std::size_t count, std::span<const DeviceView> views,
                    const Topology& topology, Ticket ticket, const GroupDecision& decision);

}  // namespace berth
