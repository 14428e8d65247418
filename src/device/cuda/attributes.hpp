// The description and launch limits of a device that the CUDA driver reports without a
// context.
#pragma once

#include <cstdint>
#include <optional>

#include "berth/device_info.hpp"
#include "device/cuda/driver.hpp"
#include "device/cuda/geometry.hpp"

namespace berth::cuda {

// Two streams use the link in both directions at once; a third covers the gap between
// the completion of one piece of work and the submission of the next.
inline constexpr std::uint32_t streams_to_fill_a_gpu = 3;

// Returns nullopt if the driver does not know the attribute.
std::optional<int> attribute(const Driver& driver, DeviceNumber number, Attribute which);
// A slice of a GPU (MIG) has its GPU as parent.
DeviceInfo describe(const Driver& driver, DeviceNumber number, int ordinal);
GeometryLimits limits_of(const Driver& driver, DeviceNumber number);

}  // namespace berth::cuda
