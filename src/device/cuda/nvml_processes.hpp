// The processes on a GPU or slice, as the management library lists them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "berth/telemetry.hpp"
#include "device/cuda/nvml_api.hpp"

namespace berth::nvml {

// Compute and graphics processes, sorted by PID; absent if the driver does not list
// them. A process on several slices has the sum of its memory there.
std::optional<std::vector<DeviceProcess>> read_processes(const Library& library, DeviceHandle device);

// Limits the memory of each process of `now` to what it had `before`. The memory of the
// device is read between the two lists: a process that frees memory meanwhile would
// otherwise be counted with bytes that are also free.
void use_smaller(std::span<const DeviceProcess> before, std::vector<DeviceProcess>& now);

}  // namespace berth::nvml
