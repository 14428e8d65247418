// `berth drain`: keeps new work off a device or a node, and lists what still runs there.
#include <algorithm>

#include "cli/device_intent.hpp"
#include "cli/node_intent.hpp"
#include "cli/request.hpp"
#include "world/duration.hpp"

namespace berth::cli {

using namespace world;
namespace {

// How often a draining device is checked: foreign processes do not announce their end.
constexpr Duration look_period = std::chrono::milliseconds(250);

struct DrainArguments {
  DeviceArguments device;
  bool plan = false;  // only print what is on the device
  std::string wait;   // wait at most this long for the device to be empty
};

int run_drain(const DrainArguments& arguments) {
  std::optional<Duration> wait;
  if (!arguments.wait.empty()) {
    const Result<Duration> read = parse_duration(arguments.wait);
    if (!read) return print_error(read.error());
    wait = *read;
  }
  if (is_node(arguments.device)) return drain_node(arguments.device, arguments.plan, wait);
  if (const Result<void> checked = check_options(arguments.device); !checked) return print_error(checked.error());
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return print_error(ledger.error());
  Result<IntentDevice> device = IntentDevice::open(arguments.device);
  if (!device) return print_error(device.error());
  if (!arguments.plan) {
    if (const Result<void> set = set_intent(**ledger, device->info(), Intent::draining); !set)
      return print_error(set.error());
  }
  const Deadline deadline = Deadline::after(real_clock(), wait.value_or(Duration::zero()));
  Occupation occupation = device->look();
  const Style style = stdout_style();
  const bool json = arguments.device.server.json;
  if (!json) {
    const std::string text = draining_text(device->name(), arguments.plan, occupation, device->table(style), style);
    if (const int printed = print(text); printed != done) return printed;
  }
  const bool waits = !occupation.empty() && !arguments.plan && wait.has_value();
  while (waits && !occupation.empty() && !deadline.passed(real_clock().now())) {
    real_clock().sleep_for(std::min(look_period, deadline.at - real_clock().now()));
    occupation = device->look();
  }
  if (json) {  // a single object with the final state
    if (const int printed = print(device->json()); printed != done) return printed;
  } else if (waits && occupation.empty()) {
    return print(device->name() + " is empty\n");
  }
  if (!waits || occupation.empty()) return done;
  const StillThere failure = still_there(device->name(), occupation, device->users());
  print_error(failure.error);
  return failure.status;
}

}  // namespace

void add_drain(const Verb& command) {
  const auto arguments = std::make_shared<DrainArguments>();
  Verb verb = command.add("drain", "stop new work on a device or a node, and show what still runs there");
  add_device_options(verb, arguments->device);
  verb.flag("--plan", arguments->plan, "show what would be affected, and change nothing");
  verb.option("--wait", "TIME", &arguments->wait,
              "wait until it is empty, for at most this long (90s, 5m, 2h, 1d); replicas are moved, other work must "
              "end by itself");
  verb.footer(
      {"Exit status: 0 done; 1 environment error, or leases or replicas are still there after --wait; 2 wrong input or "
       "usage; 3 foreign processes are still there after --wait, or --plan finds no other place for a replica."},
      false);
  verb.run([arguments] { return run_drain(*arguments); });
}

}  // namespace berth::cli
