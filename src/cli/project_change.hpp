// What `berth plan --server` and `berth apply` share: a project goes to the server, which plans it against the live
// fleet, and the difference is printed. `berth scale` and `berth rollout` change one deployment, and wait for it as
// `berth apply` does. A plan file from the server contains the project and its version, so that
// exactly the reviewed plan is applied.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/server_access.hpp"
#include "deployment/names.hpp"

namespace berth::cli {

// The displayed part of a plan in an answer: of a reason, only the text. Throws a JsonError.
Plan plan_of(const boost::json::value& value);

// does_not_fit, with a note on stderr, if something is pending.
int status_of_plan(const Plan& plan);

// Changes nothing. `output`: a file for the plan. Returns the exit status.
int plan_on_server(const ServerArguments& arguments, const Project& project, const std::optional<std::string>& output);
// `wait`, here and below: until all replicas are ready, or it is certain that they will not be.
void add_wait_flag(Verb& verb, bool& wait);
// `plan_file`: as plan_on_server() wrote it; refused where the project or its version is another one.
int apply_to_server(const ServerArguments& arguments, const Project& project,
                    const std::optional<std::string>& plan_file, bool wait);
int scale_on_server(const ServerArguments& arguments, const std::string& deployment, std::uint32_t replicas, bool wait);
// A restart or an undo.
int roll_out_and_wait(const ServerArguments& arguments, const Call& call);

// "~ chat  command, replicas" for each deployment that changes, then the replicas as `berth plan` prints them.
// Throws a JsonError.
std::string change_text(const boost::json::object& answer, const Style& style);

// How far an applied project is, from /status.
struct ReadyProgress {
  enum class State : std::uint8_t { goes_on, ready, does_not_fit, stopped, stuck };
  State state = State::goes_on;
  std::string text;             // "3 of 4 ready, 1 of 4 updated"; where it is stopped or does not fit, why
  std::string deployment = {};  // that is stopped
};
ReadyProgress progress_of(const Project& project, const boost::json::object& status);

// What to do about a deployment that is stopped, from /deployments/NAME and /replicas?deployment=NAME.
std::string advice_when_stopped(const boost::json::object& deployment, const boost::json::object& replicas);

}  // namespace berth::cli
