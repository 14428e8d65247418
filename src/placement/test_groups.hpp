// Machines for tests of groups, and what a group must satisfy, found by trying all
// groups. Only the filters are shared with the code under test.
#pragma once

#include <bit>
#include <string_view>

#include "placement/test_fleet.hpp"

namespace berth::placement {

// Random devices, some of them parts of one GPU, some held, used by others or kept.
inline TestFleet random_machine(std::size_t n, std::uint64_t seed) {
  TestFleet fleet = TestFleet::random(n, seed);
  SeededRandom random(splitmix64(seed ^ 0x9e));
  for (std::size_t i = 0; i < n; ++i) {
    if (random.below(2) == 0) fleet.info(i).memory_domain = "gpu-" + std::to_string(random.below(3));
    fleet[i].holders = static_cast<std::uint32_t>(random.below(3));
    fleet[i].held_exclusively = random.below(6) == 0;
    // So that enough devices are eligible for a group.
    if (random.below(2) == 0) fleet[i].memory_bytes_free = 16 * gib;
    if (random.below(2) == 0) fleet[i].memory_bytes_promised = 0;
    if (random.below(2) == 0) fleet.info(i).memory_bytes_total = 16 * gib;
    fleet[i].used_by_others = random.below(3) == 0;
    fleet[i].kept_for_waiting = random.below(8) == 0;
    if (random.below(4) == 0) fleet[i].other_processes = 1;
  }
  return fleet;
}
inline std::string_view domain_of(const DeviceView& view) {
  return view.info->memory_domain.empty() ? view.info->id.text() : view.info->memory_domain;
}
// What a group must satisfy, written independently of the library.
inline bool fits_together(const Requirements& requirements, std::span<const DeviceView> views,
                          const std::vector<std::size_t>& group) {
  for (const std::size_t i : group) {
    if (reject(requirements, views[i])) return false;
    std::uint64_t together = 0;
    for (const std::size_t j : group) {
      if (domain_of(views[i]) == domain_of(views[j])) together += *requirements.memory_bytes_needed(*views[j].info);
    }
    if (together > 0 && *views[i].memory_bytes_available() < together) return false;
  }
  return true;
}
// Calls use(group) for every set of `count` of n.
template <class Use>
void each_group(std::size_t n, std::size_t count, Use use) {
  for (std::uint64_t mask = 0; mask < (std::uint64_t{1} << n); ++mask) {
    if (static_cast<std::size_t>(std::popcount(mask)) != count) continue;
    std::vector<std::size_t> group;
    for (std::size_t i = 0; i < n; ++i) {
      if (mask >> i & 1) group.push_back(i);
    }
    use(group);
  }
}

inline bool any_group_fits(const Requirements& requirements, std::size_t count, std::span<const DeviceView> views) {
  bool any = false;
  each_group(views.size(), count, [&](const auto& group) { any = any || fits_together(requirements, views, group); });
  return any;
}

}  // namespace berth::placement
