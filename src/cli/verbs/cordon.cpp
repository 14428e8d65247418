// `berth cordon`: keeps new work off a device or a node.
#include "cli/device_intent.hpp"
#include "cli/node_intent.hpp"

namespace berth::cli {
namespace {

int run_cordon(const DeviceArguments& arguments) {
  if (is_node(arguments)) return set_node_intent(arguments, Intent::cordoned);
  if (const Result<void> checked = check_options(arguments); !checked) return print_error(checked.error());
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return print_error(ledger.error());
  Result<IntentDevice> device = IntentDevice::open(arguments);
  if (!device) return print_error(device.error());
  if (const Result<void> set = set_intent(**ledger, device->info(), Intent::cordoned); !set)
    return print_error(set.error());
  const bool is_empty = device->look().empty();
  if (arguments.server.json) return print(device->json());
  return print(device->name() + " is cordoned" + (is_empty ? "\n" : "; running work is not interrupted\n"));
}

}  // namespace

void add_cordon(const Verb& command) {
  const auto arguments = std::make_shared<DeviceArguments>();
  Verb verb = command.add("cordon", "keep new work off a device or a node; running work is not interrupted");
  add_device_options(verb, *arguments);
  verb.run([arguments] { return run_cordon(*arguments); });
}

}  // namespace berth::cli
