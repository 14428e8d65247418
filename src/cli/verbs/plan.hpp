// `berth plan`, `validate`, `init` and `fleet show`: read files, call deployment, print
// the result. Nothing is started or stopped.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "berth/device.hpp"
#include "cli/server_access.hpp"
#include "deployment/names.hpp"

namespace berth::cli {

struct PlanArguments {
  std::string project;
  std::optional<std::string> fleet;    // absent: this machine
  std::optional<std::string> current;  // the plan in force
  std::optional<std::string> output;
  bool json = false;
  BackendOptions backends;  // for this machine
  // Whether to plan against the live fleet: empty for no, a URL, or "true" for the default server.
  std::string live;
  ServerArguments server;
};

// The plan with short ids that differ from each other and from `others`, wrapped to the width of the
// terminal. `changes`: a change for each entry of plan.pending, in order, that would let it fit; absent or
// empty: not known. `restarts`: as in plan_to_text.
std::string readable_plan(const Plan& plan, std::span<const DeviceId> others, const Style& style,
                          std::span<const std::string> changes = {}, std::span<const std::string> restarts = {});

// All return the exit status; does_not_fit if something is pending.
int run_plan(const PlanArguments& arguments);
int run_validate(const std::string& path);  // a project or a fleet file
int run_init(const std::string& path);
int run_fleet_show(const std::string& path, bool json);

}  // namespace berth::cli
