// `berth validate`: checks a project or fleet file.
#include <cstdio>

#include "cli/command_line.hpp"
#include "cli/input/fleet_file.hpp"
#include "cli/text/terminal.hpp"
#include "cli/verbs/plan.hpp"
#include "world/files.hpp"

namespace berth::cli {

using namespace world;

int run_validate(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return print_error(text.error());
  if (looks_like_a_fleet(*text)) {
    const auto fleet = parse_fleet(*text, path);
    if (!fleet) return print_error(fleet.error());
    std::size_t devices = 0;
    for (const NodeView& node : fleet->nodes) devices += node.devices.size();
    return print(printable(path) + ": a valid fleet of " + counted(fleet->nodes.size(), "node") + " and " +
                 counted(devices, "device") + "\n");
  }
  const auto project = read_project(*text, path);
  if (!project) return print_error(project.error());
  std::size_t replicas = 0;
  for (const DeploymentSpec& spec : project->deployments) {
    replicas += spec.replicas;
    if (std::holds_alternative<UnknownTransport>(spec.transport()))
      std::fprintf(stderr,
                   "berth: note: deployment %s uses the runtime \"%s\", which this version does not recognize\n",
                   printable(spec.name.text()).c_str(), printable(to_string(spec.effective_runtime())).c_str());
  }
  return print(printable(path) + ": a valid project of " + counted(project->deployments.size(), "deployment") +
               " and " + counted(replicas, "replica") + "\n");
}

void add_validate(const Verb& command) {
  const auto path = std::make_shared<std::string>();
  Verb verb = command.add("validate", "check a project or fleet file without planning");
  verb.argument("FILE", path.get(), "project or fleet file");
  verb.run([path] { return run_validate(*path); });
}

}  // namespace berth::cli
