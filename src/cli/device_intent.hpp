// What `cordon`, `uncordon` and `drain` share: one device and the operator's intent for it. The
// intent is kept in the ledger, so it holds for every process until it is removed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "berth/ledger.hpp"
#include "cli/command_line.hpp"
#include "cli/machine_access.hpp"
#include "cli/server_access.hpp"
#include "cli/text/drain_text.hpp"

namespace berth::cli {

struct DeviceArguments {
  std::string device;  // on this machine; node/NAME and node/NAME/DEVICE are in the fleet (node_intent.hpp)
  std::string reason;
  ServerArguments server;
  BackendOptions backends;
};
void add_device_options(Verb& verb, DeviceArguments& arguments);

// invalid_argument or not_found: no device, or several, have the name.
class IntentDevice {
 public:
  static Result<IntentDevice> open(const DeviceArguments& arguments);

  const DeviceInfo& info() const { return info_; }
  std::string name() const;  // "cuda:6 GPU-454afa53"
  // Reads the drivers and the ledger.
  Occupation look();
  // As found by the last look().
  Health health() const;
  std::string table(const Style& style) const;
  std::string json() const;  // one object, with its line end
  ProcessUsers users() const;

 private:
  IntentDevice(machine::Machine machine, DeviceInfo info);
  const inventory::DeviceRow& row() const;

  machine::Machine machine_;
  DeviceInfo info_;
  std::unique_ptr<machine::TelemetryPoller> observer_;
  std::vector<inventory::DeviceRow> rows_;
};

// What --json prints about a device of this machine.
std::string device_document(boost::json::object device);

// Replaces an intent that was recorded under a former id of the device.
Result<void> set_intent(Ledger& ledger, const DeviceInfo& device, Intent intent);

}  // namespace berth::cli
