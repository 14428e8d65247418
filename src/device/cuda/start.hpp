// Starting the CUDA driver. What keeps it from starting, or from showing the
// devices that were asked for, is said in one sentence with what to do: no
// library, one that is too old, a malformed CUDA_VISIBLE_DEVICES, device files
// that this user may not open.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "device/cuda/driver.hpp"

namespace berth::cuda {

struct StartedDriver {
  const Driver* driver = nullptr;
  int devices = 0;  // that it shows
};
// No device at all is no error here. Thread-safe; costs little after the first call.
Result<StartedDriver> start();

struct DeviceFile {
  std::string path;
  bool may_open = true;
};
// Why a driver that finds no device may find none. Pure.
std::optional<Error> check_device_files(std::span<const DeviceFile> files);

}  // namespace berth::cuda
