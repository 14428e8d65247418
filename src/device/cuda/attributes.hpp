// What the CUDA driver says about a device without opening it: who it is, what
// it has, what a launch on it may look like. Creates no context.
#pragma once

#include <cstdint>
#include <optional>

#include "berth/device_info.hpp"
#include "device/cuda/driver.hpp"
#include "device/cuda/geometry.hpp"

namespace berth::cuda {

// Two streams fill the link in both directions at once; a third hides the
// moment in which a thread learns of one frame and submits the next.
inline constexpr std::uint32_t streams_to_fill_a_gpu = 3;

// Absent where the driver does not know it.
std::optional<int> attribute(const Driver& driver, DeviceNumber number, Attribute which);
// A slice of a GPU (MIG) has its GPU as parent.
DeviceInfo describe(const Driver& driver, DeviceNumber number, int ordinal);
GeometryLimits limits_of(const Driver& driver, DeviceNumber number);

}  // namespace berth::cuda
