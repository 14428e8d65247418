// `berth devices`: what this machine has, one line per device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "berth/device.hpp"

namespace berth::cli {

struct DevicesArguments {
  std::optional<std::string> backend;  // only this one; missing is then an error
  bool json = false;
  bool watch = false;
  BackendOptions backends;
};

// One device as it answers now.
struct DeviceRow {
  DeviceInfo info;
  std::optional<LoadSample> load;
  std::optional<Error> error;  // it is listed, but cannot be opened or asked
};

// All devices of `backend`, or of every back end that answers.
Result<std::vector<DeviceRow>> look(const DevicesArguments& arguments);

int run_devices(const DevicesArguments& arguments);

}  // namespace berth::cli
