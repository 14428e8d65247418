// `berth run`: a command on devices that have the room, promised to it in the
// ledger before it starts and until it ends. `berth pick` makes the same decision
// once, for a script, and holds nothing.
#pragma once

#include "cli/request.hpp"

namespace berth::cli {

struct RunArguments {
  RequestArguments request;
  std::vector<std::string> command;
  std::string wait;       // how long to wait for room; empty: not at all
  std::string load_lock;  // loads on its devices wait for so long; empty: they do not
  std::string on_fault = "stop";
  bool quiet = false;
};

// The command's own status; 127: there is no such command, 126: it cannot be run.
int run_run(const RunArguments& arguments);

struct PickArguments {
  RequestArguments request;
  bool json = false;
  bool environment = false;
};
int run_pick(const PickArguments& arguments);

// What makes these devices, and no others, visible to a command: to what uses
// CUDA, and to programs that use Berth. OpenCL has no such variable. `all` are the
// devices they were chosen from.
std::map<std::string, std::string> visible_to(std::span<const DeviceInfo> devices, std::span<const DeviceInfo> all);

// How strongly the limit on a device's memory holds, in words.
std::string strength_of(const DeviceInfo& device, bool mps);

}  // namespace berth::cli
