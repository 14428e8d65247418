// `berth cordon`, `uncordon` and `drain`: what the operator wants of one device.
// Kept in the ledger, so it holds for every process until it is ended.
#pragma once

#include <string>

#include "berth/device_view.hpp"
#include "cli/terminal.hpp"
#include "machine/find_machine.hpp"

namespace berth::cli {

struct IntentArguments {
  std::string device;
  Intent intent = Intent::in_service;
  bool plan = false;  // of drain: only say what is on the device
  std::string wait;   // of drain: until the device is empty, at most for so long
  BackendOptions backends;
};
int run_intent(const IntentArguments& arguments);

}  // namespace berth::cli
