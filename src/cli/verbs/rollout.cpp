// `berth rollout`: shows the progress of a deployment's new revision, and controls it.
#include "cli/project_change.hpp"
#include "cli/text/fleet_text.hpp"

namespace berth::cli {
namespace {

struct RolloutArguments {
  ServerArguments server;
  std::string deployment;
  std::string reason;
  std::size_t to_revision = 0;  // 0: the previous revision
  bool wait = false;
};

void add_action(const Verb& rollout, const std::string& action, const std::string& help) {
  const auto arguments = std::make_shared<RolloutArguments>();
  Verb verb = rollout.add(action, help);
  verb.argument("NAME", &arguments->deployment, "the deployment");
  verb.offer("NAME", {Names::deployments});
  if (action == "pause") verb.option("--reason", "TEXT", &arguments->reason, "reason to show with the pause");
  if (action == "undo") {
    OptionRules rules;
    rules.range = {1, 1'000'000'000};
    verb.option("--to", "REVISION", &arguments->to_revision,
                "go back to this revision; berth rollout status lists the available ones", rules);
  }
  if (action == "restart" || action == "undo") add_wait_flag(verb, arguments->wait);
  add_server_options(verb, arguments->server);
  verb.run([arguments, action] {
    Call call{"/api/v1/deployments/" + http::encoded(arguments->deployment)};
    if (action != "status") {
      call = {call.target + "/rollout", "POST", {{"action", action}}};
      if (!arguments->reason.empty()) call.body["reason"] = arguments->reason;
      if (arguments->to_revision > 0) call.body["to_revision"] = arguments->to_revision;
    }
    if (arguments->wait) return roll_out_and_wait(arguments->server, call);
    return call_and_print(arguments->server, call, rollout_text);
  });
}

}  // namespace

void add_rollout(const Verb& command) {
  Verb verb = command.add("rollout", "show or control the rollout of a deployment's new revision");
  verb.footer(
      {"The first revision of a deployment has the number of the project version that added it; each change of its "
       "settings and each restart creates a new revision."});
  add_action(verb, "status", "show the progress of the rollout");
  add_action(verb, "pause", "stop replacing replicas");
  add_action(verb, "resume", "continue after a pause, including one after failures");
  add_action(verb, "restart", "replace every replica with a new one that has the same settings, as in a rollout");
  add_action(verb, "undo", "go back to the previous settings, or to those of an earlier revision");
}

}  // namespace berth::cli
