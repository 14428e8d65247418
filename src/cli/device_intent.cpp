#include "cli/device_intent.hpp"

#include <algorithm>
#include <cstdio>

#include "cli/options.hpp"
#include "cli/request.hpp"
#include "cli/text/devices_text.hpp"
#include "format/device_json.hpp"
#include "format/json_reading.hpp"
#include "machine/machine_observer.hpp"

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace machine;
using namespace world;

void add_device_options(Verb& verb, DeviceArguments& arguments) {
  verb.argument("DEVICE", &arguments.device,
                "device of this machine (an id, the beginning of one, cuda:0 or 0), or node/NAME or node/NAME/DEVICE "
                "of the fleet");
  verb.offer("DEVICE", {Names::devices, Names::node_paths});
  verb.option("--reason", "TEXT", &arguments.reason,
              "reason to show wherever the node or device of the fleet is listed as cordoned or draining");
  add_address_options(verb, arguments.server);
  verb.flag("--json", arguments.server.json,
            "print one JSON object: the device as in berth devices --json, or the server's answer about the fleet");
  add_backend_options(verb, arguments.backends);
}

Result<IntentDevice> IntentDevice::open(const DeviceArguments& arguments) {
  Result<Machine> machine = find_machine(std::nullopt, arguments.backends);
  if (!machine) return std::move(machine).error();
  for (const Machine::Problem& problem : machine->problems) {
    if (problem.named) return problem.error;
    print_error(problem.error);
  }
  std::vector<ObservedDevice> seen;
  for (const DeviceInfo& info : machine->devices) {
    seen.emplace_back();
    seen.back().info = info;
  }
  Result<DeviceId> device = find_device(seen, arguments.device);
  if (!device) {
    Error error = std::move(device).error();
    if (error.code == ErrorCode::not_found)
      error.advice += (error.advice.empty() ? "" : "; ") + ("for a node of the fleet write node/" + arguments.device);
    return error;
  }
  const auto found = std::find_if(machine->devices.begin(), machine->devices.end(),
                                  [&](const DeviceInfo& info) { return info.id == *device; });
  DeviceInfo info = *found;
  return IntentDevice(*std::move(machine), std::move(info));
}

IntentDevice::IntentDevice(Machine machine, DeviceInfo info)
    : machine_(std::move(machine)),
      info_(std::move(info)),
      observer_(std::make_unique<TelemetryPoller>(machine_.backends, machine_.devices)) {}

std::string IntentDevice::name() const {
  std::vector<DeviceId> ids;
  for (const DeviceInfo& info : machine_.devices) ids.push_back(info.id);
  return device_label(info_) + " " + printable(short_id(info_.id, ids));
}

Occupation IntentDevice::look() {
  rows_ = observer_->poll();
  std::fputs(add_ledger_or_note(rows_).c_str(), stderr);
  return occupation_of(row(), rows_);
}

Health IntentDevice::health() const { return health_of(row()); }
std::string IntentDevice::table(const Style& style) const {
  return occupants_text(std::span(&row(), 1), users(), style);
}
std::string IntentDevice::json() const { return device_document(device_to_json(row(), real_clock().now())); }
ProcessUsers IntentDevice::users() const { return users_of(std::span(&row(), 1)); }

const DeviceRow& IntentDevice::row() const {
  return *std::find_if(rows_.begin(), rows_.end(), [&](const DeviceRow& r) { return r.info.id == info_.id; });
}

std::string device_document(boost::json::object device) { return document({{"device", std::move(device)}}) + "\n"; }

Result<void> set_intent(Ledger& ledger, const DeviceInfo& device, Intent intent) {
  Result<Ledger::Lock> lock = ledger.lock();
  if (!lock) return std::move(lock).error();
  if (Result<void> set = lock->set_intent(device.id, intent); !set || !device.former_id) return set;
  Result<void> lifted = lock->set_intent(*device.former_id, Intent::in_service);
  // An intent that another user set for the former id stays; that is an error only if the device should be in service.
  return intent == Intent::in_service ? lifted : Result<void>();
}

}  // namespace berth::cli
