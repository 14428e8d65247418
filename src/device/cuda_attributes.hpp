// What the CUDA driver says about a device without opening it: who it is, what
// it has, what a launch on it may look like. Creates no context.
#pragma once

#include <optional>

#include "berth/device_info.hpp"
#include "device/cuda_driver.hpp"
#include "device/cuda_geometry.hpp"

namespace berth::cuda {

// Absent where the driver does not know it.
std::optional<int> attribute(const Driver& driver, DeviceNumber number, Attribute which);
// A slice of a GPU (MIG) has its GPU as parent.
DeviceInfo describe(const Driver& driver, DeviceNumber number, int ordinal);
GeometryLimits limits_of(const Driver& driver, DeviceNumber number);

}  // namespace berth::cuda
