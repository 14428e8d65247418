// What choosing and explaining share: the order of the eligible devices, how many of them
// fit together, and what keeps the others out.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "berth/placement.hpp"
#include "placement/filters.hpp"

namespace berth::placement {

// Memory of a device from which none is requested.
inline constexpr std::uint64_t boundless = std::numeric_limits<std::uint64_t>::max();

// The policy's answer, or least_loaded's if there is none: the policy answered out of range, or
// threw.
struct PolicyAnswer {
  std::size_t position = 0;  // or Policy::declined
  bool misbehaved = false;
};
PolicyAnswer ask(const Policy& policy, const Candidates& all) noexcept;

// The eligible devices, best first. The policy orders each tier separately. Devices of one tier agree
// in `preferred`, `distance` and `used_by_others`.
struct Ranked {
  std::size_t position = 0;  // in the views
  bool preferred = false;
  std::uint32_t distance = 0;  // link_cost to requirements.near, 0 if none is requested
  bool used_by_others = false;
  std::optional<std::uint64_t> cost;  // absent: the policy has no costs
};
struct Ranking {
  std::vector<Ranked> order;
  bool policy_misbehaved = false;
};
Ranking ranking_of(const Policy& policy, const Requirements& requirements, std::span<const DeviceView> views,
                   const Topology& topology, Ticket ticket);

// How many of the eligible devices can be leased at once.
std::size_t largest_group(const Requirements& requirements, std::span<const DeviceView> views);

// A device as a group sees it.
struct Member {
  std::string_view domain;  // whose memory it uses
  std::uint64_t available = 0;
  std::uint64_t needed = 0;
};
// How many fit together with those at the positions `chosen`; 0: not even these do.
std::size_t most_together(std::span<const Member> members, std::span<const std::size_t> chosen = {});

// Everything that keeps this device out, one bit each.
using Causes = std::uint32_t;
constexpr Causes bit(Cause cause) { return Causes{1} << static_cast<unsigned>(cause); }
Causes causes_of(const Requirements& requirements, const DeviceView& view) noexcept;
// The main cause for which the request does not fit.
Cause cause_of(const Requirements& requirements, std::size_t count, std::span<const DeviceView> views);

Explanation explain(const Policy& policy, const Requirements& requirements, std::size_t count,
                    std::span<const DeviceView> views, Ticket ticket, const Ranking& ranking,
                    const GroupDecision& decision);

}  // namespace berth::placement
