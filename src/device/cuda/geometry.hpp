// Converts a LaunchShape to a CUDA grid. Work items are rounded up to whole groups; without
// a group size from the caller one is chosen. A launch beyond the limits of the device is
// refused here, before the driver is called. Pure.
#pragma once

#include <array>
#include <cstdint>

#include "berth/device.hpp"

namespace berth::cuda {

struct GeometryLimits {
  std::uint32_t group_threads = 1024;
  std::array<std::uint32_t, 3> group{1024, 1024, 64};
  std::array<std::uint32_t, 3> grid{2147483647, 65535, 65535};
};

struct Geometry {
  std::array<std::uint32_t, 3> grid;
  std::array<std::uint32_t, 3> group;
  friend bool operator==(const Geometry&, const Geometry&) = default;
};

// A dimension of the group that is 0 is chosen if all are 0, and 1 otherwise.
// `kernel_threads`: the most threads per group that the registers of the kernel allow.
Result<Geometry> geometry_of(const LaunchShape& shape, const GeometryLimits& limits, std::uint32_t kernel_threads);

}  // namespace berth::cuda
