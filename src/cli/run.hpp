// `berth run`: a command on devices that have the room, promised to it in the
// ledger before it starts and until it ends. `berth pick` makes the same decision
// once, for a script, and holds nothing.
#pragma once

#include "cli/request.hpp"

namespace berth::cli {

struct RunArguments {
  RequestArguments request;
  std::vector<std::string> command;
  std::optional<std::string> wait;       // how long to wait for room; absent: not at all
  std::optional<std::string> load_lock;  // loads on its devices wait for so long; absent: they do not
  std::string on_fault = "stop";
  std::optional<std::string> limit;  // how the command is held to its memory; see Limit
  bool quiet = false;
};

// Executes the command in the place of this process, so it returns only where that
// did not happen: 127: there is no such command, 126: it cannot be run. With
// --on-fault restart it stays and ends this process as the command ended.
int run_run(const RunArguments& arguments);

struct PickArguments {
  RequestArguments request;
  bool json = false;
  bool environment = false;
};
int run_pick(const PickArguments& arguments);

}  // namespace berth::cli
