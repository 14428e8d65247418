// The devices that CUDA would list, found out without starting it.
#pragma once

#include <optional>
#include <vector>

#include "berth/device_info.hpp"
#include "berth/result.hpp"

namespace berth::cuda {

// The same devices in the same order as after start(), and the same errors as
// far as they show before it: no library, one that is too old, a wrong
// CUDA_VISIBLE_DEVICES. Absent: only CUDA knows. That is so without a working
// management library, with MIG, and where the order of unlike GPUs matters and
// CUDA_DEVICE_ORDER is not PCI_BUS_ID.
std::optional<Result<std::vector<DeviceInfo>>> list_without_starting();

}  // namespace berth::cuda
