#include "cli/node_intent.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "cli/server_access.hpp"
#include "cli/text/answer_fields.hpp"
#include "cli/text/fleet_text.hpp"

namespace berth::cli {
namespace {

namespace json = boost::json;

constexpr std::string_view prefix = "node/";

std::string name_of(const DeviceArguments& arguments) { return arguments.device.substr(prefix.size()); }

Call get_node(const DeviceArguments& arguments) { return {"/api/v1/nodes/" + http::encoded(name_of(arguments))}; }
Call put_intent(const DeviceArguments& arguments, Intent intent) {
  return {get_node(arguments).target + "/intent", "PUT", {{"intent", to_string(intent)}}};
}

// "chat/0, chat/1"; empty: none is there.
std::string replicas_of(const json::object& answer) {
  std::set<std::string> names;
  for (const json::value& value : Fields(answer).in("node").list("replicas")) {
    if (Fields(value).raw("state") != "gone") names.insert(Fields(value).text("name"));
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

AnswerText intent_text(const DeviceArguments& arguments, Intent intent) {
  return [name = printable(name_of(arguments)), intent](const json::object& answer, const Style&) {
    if (intent == Intent::in_service) return name + " is in service\n";
    const std::string replicas = replicas_of(answer);
    return name + (intent == Intent::cordoned ? " is cordoned; " : " is draining; ") +
           (replicas.empty()             ? "no replica is there"
            : intent == Intent::cordoned ? "not interrupted: " + replicas
                                         : "to be moved: " + replicas) +
           "\n";
  };
}

}  // namespace

bool is_node(const DeviceArguments& arguments) { return arguments.device.starts_with(prefix); }

Result<void> check_options(const DeviceArguments& arguments) {
  if (!arguments.server.json && arguments.server.server.empty() && arguments.server.ca_file.empty()) return {};
  return Error{ErrorCode::invalid_argument, "--json, --server and --ca are for nodes of the fleet", "write node/NAME"};
}

int set_node_intent(const DeviceArguments& arguments, Intent intent) {
  return call_and_print(arguments.server, put_intent(arguments, intent), intent_text(arguments, intent));
}

int drain_node(const DeviceArguments& arguments, bool plan, Duration wait) {
  if (plan) return call_and_print(arguments.server, get_node(arguments), node_text);
  if (wait == Duration::zero()) return set_node_intent(arguments, Intent::draining);
  Result<ServerAccess> server = ServerAccess::open(arguments.server);
  if (!server) return print_error(server.error());
  const Deadline deadline = Deadline::after(real_clock(), wait);
  const std::string name = printable(name_of(arguments));
  Result<Answer> answer = server->call(put_intent(arguments, Intent::draining));
  if (!answer) return print_error(answer.error());
  const int printed =
      print(arguments.server.json ? answer->text : intent_text(arguments, Intent::draining)(answer->json, Style{}));
  if (printed != done) return printed;
  std::string left = replicas_of(answer->json);
  while (!left.empty() && !deadline.passed(real_clock().now())) {
    real_clock().sleep_for(std::min(ask_again, deadline.at - real_clock().now()));
    answer = server->call(get_node(arguments));
    if (!answer) return print_error(answer.error());
    left = replicas_of(answer->json);
    if (left.empty() && !arguments.server.json) return print("no replica is left on " + name + "\n");
  }
  if (left.empty()) return done;
  return print_error({ErrorCode::timeout, name + " still has " + left, "berth why replica NAME/N says why"});
}

}  // namespace berth::cli
