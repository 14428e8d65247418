// `berth apply`: makes a project what the fleet runs.
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
                "the project: what is to run (berth init writes an example); - is standard input");
  verb.option("--plan", "PLAN.json", &arguments->plan,
              "as berth plan --server -o wrote it; refused if the project has changed since");
  verb.flag(
      "--wait", arguments->wait,
      "wait until all replicas are ready; if one cannot become ready, list those that are not and exit with status 1, "
      "or 3 if they fit nowhere");
  add_server_options(verb, arguments->server);
  verb.footer(
      {"It does not ask: berth plan FILE --server shows what it will do. Deployments that FILE does not name are "
       "removed, and their replicas stop. What does not fit is applied as well, stays pending until there is room, and "
       "is exit status 3."});
  verb.run([arguments] {
    const Result<Project> project = load_project(arguments->project);
    if (!project) return print_error(project.error());
    return apply_to_server(arguments->server, *project, arguments->plan, arguments->wait);
  });
}

}  // namespace berth::cli
