// The devices that CUDA would list, found without starting it.
#pragma once

#include <optional>
#include <vector>

#include "berth/device_info.hpp"
#include "berth/result.hpp"

namespace berth::cuda {

// The same devices in the same order as after start(), or the errors that can be found
// before it: a missing or old library, a wrong CUDA_VISIBLE_DEVICES. Absent if only CUDA
// knows: without a working management library, with MIG, or if the GPUs differ and
// CUDA_DEVICE_ORDER is not PCI_BUS_ID.
std::optional<Result<std::vector<DeviceInfo>>> list_without_starting();

}  // namespace berth::cuda
