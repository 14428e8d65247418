// What `cordon`, `uncordon` and `drain` do with a node of the fleet: the server keeps the intent, and moves replicas.
// A plain device is on this machine, whose ledger keeps its intent (device_intent.hpp); the agent reports it.
#pragma once

#include <optional>

#include "berth/device_view.hpp"
#include "cli/device_intent.hpp"

namespace berth::cli {

// "node/NAME" or "node/NAME/DEVICE".
bool is_node(const DeviceArguments& arguments);
// invalid_argument: an option for the fleet was used with a device of this machine.
Result<void> check_options(const DeviceArguments& arguments);

// Both print the resulting state and return the exit status. `wait`: wait at most this long until no replica is left.
int set_node_intent(const DeviceArguments& arguments, Intent intent, std::optional<Duration> wait = {});
// `plan`: only prints what runs there.
int drain_node(const DeviceArguments& arguments, bool plan, std::optional<Duration> wait);

}  // namespace berth::cli
