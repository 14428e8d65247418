#include "device/cuda/geometry.hpp"

#include <algorithm>
#include <string>

namespace berth::cuda {
namespace {

// Eight warps: enough to hide latency on every architecture, small enough that
// several groups share a multiprocessor.
constexpr std::uint32_t preferred_threads = 256;
// Neighbours in the first dimension should share a warp.
constexpr std::uint32_t warp_threads = 32;

// Never more threads than work items, so that a small launch is exact.
std::array<std::uint32_t, 3> choose_group(const std::array<std::uint32_t, 3>& global, const GeometryLimits& limits,
                                          std::uint32_t most_threads) {
  const bool flat = global[1] == 1 && global[2] == 1;
  std::uint32_t budget = std::min(preferred_threads, most_threads);
  std::array<std::uint32_t, 3> group{};
  for (std::size_t i = 0; i < 3; ++i) {
    group[i] = std::min({global[i], budget, limits.group[i]});
    if (i == 0 && !flat) group[i] = std::min(group[i], warp_threads);
    budget /= group[i];
  }
  return group;
}

Error refused(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

constexpr std::array<const char*, 3> axis{"x", "y", "z"};

}  // namespace

Result<Geometry> geometry_of(const LaunchShape& shape, const GeometryLimits& limits, std::uint32_t kernel_threads) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (shape.global[i] == 0) {
      return refused(std::string("the launch has no work items in dimension ") + axis[i],
                     "give every dimension at least one work item");
    }
  }
  const std::uint32_t most_threads = std::max(1U, std::min(limits.group_threads, kernel_threads));
  Geometry geometry{{}, shape.group};
  if (shape.group == std::array<std::uint32_t, 3>{0, 0, 0}) {
    geometry.group = choose_group(shape.global, limits, most_threads);
  }
  std::uint64_t threads = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    std::uint32_t& group = geometry.group[i];
    group = std::max(group, 1U);
    if (group > limits.group[i]) {
      return refused("a group of " + std::to_string(group) + " in dimension " + axis[i] +
                         " exceeds the device's limit " + std::to_string(limits.group[i]),
                     "use smaller groups");
    }
    threads *= group;
    geometry.grid[i] = shape.global[i] / group + (shape.global[i] % group != 0 ? 1 : 0);
    if (geometry.grid[i] > limits.grid[i]) {
      return refused(std::to_string(geometry.grid[i]) + " groups in dimension " + axis[i] +
                         " exceed the device's limit " + std::to_string(limits.grid[i]),
                     "use larger groups, or put the largest dimension first");
    }
  }
  if (threads > most_threads) {
    return refused("a group of " + std::to_string(threads) + " threads exceeds the " + std::to_string(most_threads) +
                       " this kernel can have",
                   "use smaller groups");
  }
  return geometry;
}

}  // namespace berth::cuda
