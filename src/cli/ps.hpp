// `berth ps`: who holds or waits for what on this machine. `berth cordon`,
// `uncordon` and `drain`: what the operator wants of one device; kept in the
// ledger, so it holds for every process, and only the operator ends it.
#pragma once

#include <optional>
#include <string>

#include "cli/sight.hpp"

namespace berth::cli {

int run_ps(const BackendOptions& backends, bool json);

struct IntentArguments {
  std::string device;
  Intent intent = Intent::in_service;
  bool plan = false;  // of drain: only say what is on the device
  std::string wait;   // of drain: until nobody holds it, at most for so long
  BackendOptions backends;
};
int run_intent(const IntentArguments& arguments);

}  // namespace berth::cli
