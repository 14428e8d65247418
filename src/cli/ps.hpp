// `berth ps`: who holds or waits for what on this machine, once or watched.
#pragma once

#include "cli/terminal.hpp"
#include "machine/find_machine.hpp"

namespace berth::cli {

struct PsArguments {
  bool json = false;
  bool watch = false;
  BackendOptions backends;
};
// With `watch`: every second until interrupted, which is status 0.
int run_ps(const PsArguments& arguments);

}  // namespace berth::cli
