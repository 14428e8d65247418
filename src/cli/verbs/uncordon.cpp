// `berth uncordon`: puts a device or a node back into service.
#include <boost/json.hpp>

#include "cli/device_intent.hpp"
#include "cli/node_intent.hpp"
#include "inventory/short_id.hpp"

namespace berth::cli {

using namespace inventory;
namespace {

Result<bool> has_intent(Ledger& ledger, const DeviceId& device) {
  Result<Ledger::Lock> lock = ledger.lock();
  if (!lock) return std::move(lock).error();
  return lock->snapshot().intent(device) != nullptr;
}

int print_uncordoned(IntentDevice& device, bool json) {
  device.look();
  if (json) return print(device.json());
  const Health health = device.health();
  if (health == Health::healthy) return print(device.name() + " is in service\n");
  return print(device.name() + " is no longer cordoned; it is " + std::string(to_string(health)) + "\n");
}

int run_uncordon(const DeviceArguments& arguments) {
  if (is_node(arguments)) return set_node_intent(arguments, Intent::in_service);
  if (const Result<void> checked = check_options(arguments); !checked) return print_error(checked.error());
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return print_error(ledger.error());
  // The intent of a removed device can be cleared by the device's whole id.
  const DeviceId whole(arguments.device);
  const Result<bool> known = has_intent(**ledger, whole);
  if (!known) return print_error(known.error());
  Result<IntentDevice> device = IntentDevice::open(arguments);
  if (*known && !(device && device->info().is_called(whole))) {
    DeviceInfo gone;
    gone.id = whole;
    if (const Result<void> set = set_intent(**ledger, gone, Intent::in_service); !set) return print_error(set.error());
    if (device) return print_uncordoned(*device, arguments.server.json);
    return print(arguments.server.json ? device_document({{"id", whole.text()}})
                                       : short_id(whole) + " is no longer cordoned\n");
  }
  if (!device) return print_error(device.error());
  if (const Result<void> set = set_intent(**ledger, device->info(), Intent::in_service); !set)
    return print_error(set.error());
  return print_uncordoned(*device, arguments.server.json);
}

}  // namespace

void add_uncordon(const Verb& command) {
  const auto arguments = std::make_shared<DeviceArguments>();
  Verb verb = command.add("uncordon", "put a device or a node back into service after cordon or drain");
  add_device_options(verb, *arguments);
  verb.run([arguments] { return run_uncordon(*arguments); });
}

}  // namespace berth::cli
