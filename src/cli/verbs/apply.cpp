// `berth apply`: deploys a project to the fleet.
#include "cli/input/fleet_file.hpp"
#include "cli/project_change.hpp"

namespace berth::cli {

void add_apply(const Verb& command) {
  struct Arguments {
    ServerArguments server;
    std::string project;
    std::optional<std::string> plan;
    bool wait = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  Verb verb = command.add("apply", "deploy a project to the fleet");
  verb.argument("FILE", &arguments->project,
                "project file: what should run (berth init writes an example); - for standard input");
  verb.option("--plan", "PLAN.json", &arguments->plan,
              "apply exactly this plan from berth plan --server -o; refuse if the project has changed since");
  add_wait_flag(verb, arguments->wait);
  add_server_options(verb, arguments->server);
  verb.footer(
      {"The command does not ask for confirmation; preview the change with berth plan FILE --server. Deployments that "
       "FILE does not name are "
       "removed, and their replicas stop. Replicas that do not fit stay pending until there is room; the exit status "
       "is then 3."});
  verb.run([arguments] {
    const Result<Project> project = load_project(arguments->project);
    if (!project) return print_error(project.error());
    return apply_to_server(arguments->server, *project, arguments->plan, arguments->wait);
  });
}

}  // namespace berth::cli
