// Starts the CUDA driver, with an error and advice for each known cause of a failure: a
// missing or old library, a malformed CUDA_VISIBLE_DEVICES, device files that this user may
// not open.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "device/cuda/driver.hpp"

namespace berth::cuda {

struct StartedDriver {
  const Driver* driver = nullptr;
  int devices = 0;  // that the driver shows
};
// No device is not an error. Thread-safe; cheap after the first call.
Result<StartedDriver> start();

struct DeviceFile {
  std::string path;
  bool may_open = true;
};
// The error for a device file that cannot be opened, so that no device is found. Pure.
std::optional<Error> check_device_files(std::span<const DeviceFile> files);

}  // namespace berth::cuda
