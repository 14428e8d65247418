// `berth relay`: forwards requests from gateways to the replicas of this node. Agents start it.

#include <cstdio>

#include "agent/relay_program.hpp"
#include "cli/options.hpp"
#include "cli/verbs/agent.hpp"
#include "deployment/identifiers.hpp"
#include "machine/inherited.hpp"
#include "world/runtime_folder.hpp"

namespace berth::cli {
namespace {

struct Arguments {
  std::string folder, node;
  bool replaces = false;
};

int run_relay_verb(const Arguments& arguments) {
  // The relay outlives the process that started it, so it must not keep that process's files open.
  machine::close_inherited_descriptors();
  if (!deployment::is_name(arguments.node))
    return print_error({ErrorCode::invalid_argument, "\"" + arguments.node + "\" is not a valid node name",
                        "use the name of the agent's node"});
  if (const auto folder = world::private_folder(arguments.folder, world::IfMissing::accept); !folder)
    return print_error(folder.error());
  const format::Log log = log_to_stderr({}, {{"component", "relay"}, {"actor", "node:" + arguments.node}});
  const Result<void> started =
      agent::run_relay_program({arguments.folder, arguments.node, agent_version(), arguments.replaces, log});
  return started ? world::done : print_error(started.error());
}

}  // namespace

void add_relay(const Verb& command) {
  const auto arguments = std::make_shared<Arguments>();
  Verb verb = command.add(agent::relay_verb, "forward requests to the replicas of this machine (started by agents)");
  verb.option("--folder", "FOLDER", &arguments->folder, "folder of the agent", {.required = true});
  verb.option("--node", "NAME", &arguments->node, "name of the node, for gateways", {.required = true});
  verb.flag(agent::relay_replace_option, arguments->replaces,
            "take over from this agent's running relay, which finishes its requests");
  verb.footer(
      {"Agents start relays; do not start one by hand. A relay runs in the background, one for each agent, and "
       "continues when its agent is stopped or killed, so that requests in flight are not disturbed. SIGTERM ends it "
       "when the requests in flight have finished, at most 30 s later."});
  verb.run([arguments] { return run_relay_verb(*arguments); });
}

}  // namespace berth::cli
