#include "cli/node_intent.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "cli/project_change.hpp"
#include "cli/server_access.hpp"
#include "cli/text/answer_fields.hpp"
#include "cli/verbs/plan.hpp"
#include "format/json_reading.hpp"

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace machine;
using namespace world;
namespace {

namespace json = boost::json;

constexpr std::string_view prefix = "node/";

// The parts of "node/NODE/DEVICE"; `device` is empty if the node itself is meant.
struct FleetTarget {
  std::string node, device;
};
FleetTarget target_of(const DeviceArguments& arguments) {
  const std::string words = arguments.device.substr(prefix.size());
  const std::size_t slash = words.find('/');
  return {words.substr(0, slash), slash == words.npos ? "" : words.substr(slash + 1)};
}
std::string name_of(const FleetTarget& target) {
  return printable(target.device.empty() ? target.node : target.node + "/" + target.device);
}

Call get_node(const FleetTarget& target) { return {"/api/v1/nodes/" + http::encoded(target.node)}; }
Call put_intent(const FleetTarget& target, Intent intent, const std::string& reason) {
  Call call{get_node(target).target, "PUT", {{"intent", to_string(intent)}}};
  if (!target.device.empty()) call.target += "/devices/" + http::encoded(target.device);
  if (!reason.empty()) call.body["reason"] = reason;
  call.target += "/intent";
  return call;
}

// Expands the name of a device (its id, the beginning of it, or cuda:0) to its whole id. Unknown names are left
// unchanged, so that the server refuses them.
Result<FleetTarget> with_whole_id(ServerAccess& server, FleetTarget target) {
  if (target.device.empty()) return target;
  const Answer answer = BERTH_TRY(server.call(get_node(target)));
  std::vector<std::string> found;
  for (const json::value& value : Fields(answer.json).in("node").list("devices")) {
    const Fields device(value);
    const std::string id = device.raw("id"), place = device.raw("backend") + ":" + device.count("ordinal");
    if (id == target.device || place == target.device || device.raw("former_id") == target.device) {
      found = {id};
      break;
    }
    if (id.starts_with(target.device)) found.push_back(id);
  }
  if (found.size() > 1)
    return Error{ErrorCode::invalid_argument, "\"" + target.device + "\" matches several devices",
                 "give more of the id; see berth nodes " + target.node};
  if (!found.empty()) target.device = found.front();
  return target;
}

// Those on the target that have not ended; if `stays`, without those that are stopping anyway.
std::set<std::string> replicas_of(const json::object& answer, const FleetTarget& target, bool stays) {
  std::set<std::string> names;
  for (const json::value& value : Fields(answer).in("node").list("replicas")) {
    const std::vector<DeviceId> devices = Fields(value).devices();
    const bool is_there =
        target.device.empty() || std::find(devices.begin(), devices.end(), DeviceId(target.device)) != devices.end();
    const std::string state = Fields(value).raw("state");
    if (is_there && state != "gone" && !(stays && state == "stopping")) names.insert(Fields(value).text("name"));
  }
  return names;
}

// "chat/0, chat/1".
std::string listed(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

AnswerText intent_text(const FleetTarget& target, Intent intent) {
  return [target, name = name_of(target), intent](const json::object& answer, const Style&) {
    if (intent == Intent::in_service) return name + " is in service\n";
    const std::string replicas = listed(replicas_of(answer, target, true));
    const std::string stopping = listed(replicas_of(answer, target, false));
    return name + (intent == Intent::cordoned ? " is cordoned; " : " is draining; ") +
           (stopping.empty()             ? "it has no replicas"
            : replicas.empty()           ? "these replicas are stopping: " + stopping
            : intent == Intent::cordoned ? "these replicas are not interrupted: " + replicas
                                         : "these replicas will be moved: " + replicas) +
           "\n";
  };
}

// Prints the effect of a drain, including the new places of the replicas, without starting it.
int plan_drain(const DeviceArguments& arguments) {
  Result<ServerAccess> server = ServerAccess::open(arguments.server);
  if (!server) return print_error(server.error());
  const Result<FleetTarget> target = with_whole_id(*server, target_of(arguments));
  if (!target) return print_error(target.error());
  Call call = put_intent(*target, Intent::draining, "");
  call.body["dry_run"] = true;
  const Result<Answer> answer = server->call(call);
  if (!answer) return print_error(answer.error());
  if (arguments.server.json) return print(answer->text);
  try {
    const Plan plan = plan_of(member(answer->json, "plan", "the answer"));
    const std::string replicas = listed(replicas_of(answer->json, *target, true));
    if (replicas.empty()) return print("no replica would have to leave " + name_of(*target) + "\n");
    const int printed = print("these replicas would have to leave " + name_of(*target) + ": " + replicas + "\n" +
                              readable_plan(plan, {}, stdout_style()));
    return printed == done ? status_of_plan(plan) : printed;
  } catch (const JsonError& error) {
    return print_error(to_error(error));
  }
}

}  // namespace

bool is_node(const DeviceArguments& arguments) { return arguments.device.starts_with(prefix); }

Result<void> check_options(const DeviceArguments& arguments) {
  const ServerArguments& server = arguments.server;
  if (server.server.empty() && server.ca_file.empty() && arguments.reason.empty()) return {};
  return Error{ErrorCode::invalid_argument, "--server, --ca and --reason apply only to the fleet",
               "write node/NAME or node/NAME/DEVICE"};
}

int set_node_intent(const DeviceArguments& arguments, Intent intent, std::optional<Duration> wait) {
  FleetTarget target = target_of(arguments);
  Result<ServerAccess> server = ServerAccess::open(arguments.server);
  if (!server) return print_error(server.error());
  const Deadline deadline = Deadline::after(real_clock(), wait.value_or(Duration::zero()));
  if (Result<FleetTarget> whole = with_whole_id(*server, target); whole)
    target = *std::move(whole);
  else
    return print_error(whole.error());
  Result<Answer> answer = server->call(put_intent(target, intent, arguments.reason));
  if (!answer) return print_error(answer.error());
  const int printed = print(arguments.server.json ? answer->text : intent_text(target, intent)(answer->json, Style{}));
  if (printed != done || !wait) return printed;
  std::set<std::string> left = replicas_of(answer->json, target, false);
  while (!left.empty() && !deadline.passed(real_clock().now())) {
    real_clock().sleep_for(std::min(ask_again, deadline.at - real_clock().now()));
    answer = server->call(get_node(target));
    if (!answer) return print_error(answer.error());
    left = replicas_of(answer->json, target, false);
    if (left.empty() && !arguments.server.json) return print("no replica is left on " + name_of(target) + "\n");
  }
  if (left.empty()) return done;
  return print_error({ErrorCode::timeout, name_of(target) + " still has " + listed(left),
                      "to see why, run berth why replica " + *left.begin()});
}

int drain_node(const DeviceArguments& arguments, bool plan, std::optional<Duration> wait) {
  if (plan) return plan_drain(arguments);
  return set_node_intent(arguments, Intent::draining, wait);
}

}  // namespace berth::cli
