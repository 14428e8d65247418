// `berth devices`: what this machine has, one line per device, once or watched.
// A device is observed, never used: no context is made where the driver can
// tell without one.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "berth/device.hpp"
#include "cli/observer.hpp"

namespace berth::cli {

struct DevicesArguments {
  std::optional<std::string> backend;  // only this one; missing is then an error
  bool json = false;
  bool watch = false;
  BackendOptions backends;
};

// The back ends and what they list. One that is not installed is no news, any
// other that cannot list says why on stderr while the rest goes on; `status` is
// what the command ends with, not done where such a one was named by an option.
struct Machine {
  Backends backends;
  std::vector<DeviceInfo> devices;
  int status = 0;
};
// An error where `backend`, or the file of simulated devices, is all that was
// asked for and cannot be had.
Result<Machine> find_machine(const std::optional<std::string>& backend, const BackendOptions& options);

boost::json::object device_to_json(const DeviceRow& row, TimePoint now);

// With `watch`: every second until interrupted, which is status 0.
int run_devices(const DevicesArguments& arguments);

}  // namespace berth::cli
