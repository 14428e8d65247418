#include "cli/verbs/plan.hpp"

#include <cstdio>
#include <set>

#include "cli/input/fleet_file.hpp"
#include "cli/options.hpp"
#include "cli/project_change.hpp"
#include "cli/text/terminal.hpp"
#include "cli/verbs/inventory.hpp"
#include "fleet_format/plan_json.hpp"
#include "inventory/short_id.hpp"
#include "world/files.hpp"

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace world;
namespace {

// Returns this machine as a fleet of one node.
Result<Fleet> this_machine(const BackendOptions& backends, int& status) {
  Result<Inventory> inventory = take_inventory(backends);
  if (!inventory) return std::move(inventory).error();
  status = inventory->status;
  return Fleet{{std::move(inventory->node)}};
}

// Not an error: the entry has no effect, and is probably a mistake.
void warn_about_unknown_nodes(const Project& project, const Fleet& fleet) {
  std::set<NodeId> known;
  for (const NodeView& node : fleet.nodes) known.insert(node.id);
  for (const auto& [route, nodes] : project.egress_preference) {
    for (const NodeId& node : nodes) {
      if (!known.contains(node))
        std::fprintf(stderr, "berth: note: the egress preference names %s, which is not in the fleet\n",
                     printable(node.text()).c_str());
    }
  }
}

// Breaks a line at blanks; keeps the alignment of its first part.
std::string folded(std::string line, std::size_t columns) {
  const std::string indent(4, ' ');
  std::string text;
  while (line.size() > columns) {
    const std::size_t end = line.rfind(' ', columns);
    if (end == std::string::npos || end <= indent.size()) break;
    const std::size_t rest = line.find_first_not_of(' ', end);
    text += line.substr(0, line.find_last_not_of(' ', end) + 1) + "\n";
    line = indent + line.substr(rest);
  }
  return text + line + "\n";
}

std::vector<DeviceId> devices_of(const Fleet& fleet) {
  std::vector<DeviceId> ids;
  for (const NodeView& node : fleet.nodes) {
    for (const NodeDevice& device : node.devices) ids.push_back(device.info.id);
  }
  return ids;
}

}  // namespace

std::string readable_plan(const Plan& plan, std::span<const DeviceId> others, const Style& style,
                          std::span<const std::string> changes, std::span<const std::string> restarts) {
  const std::string whole = with_short_ids(plan_to_text(plan, others, restarts), others);
  std::string text;
  std::size_t pending = 0;  // count of lines that begin with "! ", one for each pending entry
  for (std::size_t begin = 0; begin < whole.size();) {
    const std::size_t end = whole.find('\n', begin);
    const std::string line = whole.substr(begin, end - begin);
    text += folded(line, style.columns);
    begin = end + 1;
    if (!line.starts_with("! ") || pending++ >= changes.size() || changes[pending - 1].empty()) continue;
    text += folded("  would fit: " + with_short_ids(changes[pending - 1], others), style.columns);
  }
  return text;
}

int run_plan(const PlanArguments& arguments) {
  const auto project = load_project(arguments.project);
  if (!project) return print_error(project.error());
  if (!arguments.live.empty()) {
    ServerArguments server = arguments.server;
    if (arguments.live != "true") server.server = arguments.live;
    server.json = arguments.json;
    return plan_on_server(server, *project, arguments.output);
  }
  int status = done;
  const auto fleet = arguments.fleet ? load_fleet(*arguments.fleet) : this_machine(arguments.backends, status);
  if (!fleet) return print_error(fleet.error());
  if (status != done) return status;  // a back end named by an option has failed and was reported
  std::vector<Assignment> current;
  if (arguments.current) {
    auto read = read_text(*arguments.current).and_then([&](const std::string& text) {
      return read_plan(text, *arguments.current, project->cluster.name);
    });
    if (!read) return print_error(read.error());
    current = *std::move(read);
  }
  warn_about_unknown_nodes(*project, *fleet);

  const Plan plan = deployment::plan(project->deployments, *fleet, current, project->egress_preference);
  const deployment::SmallestChanges changes =
      deployment::smallest_changes(plan, project->deployments, *fleet, project->egress_preference);
  std::vector<std::string> change_texts;
  for (const auto& change : changes)
    change_texts.push_back(!change ? "" : change->text + (change->command.empty() ? "" : ": " + change->command));
  const std::string json =
      arguments.json || arguments.output ? plan_to_json(plan, project->cluster.name, changes) : std::string();
  if (arguments.output) {
    if (const auto written = write_text(*arguments.output, json); !written) return print_error(written.error());
  }
  if (const int status =
          print(arguments.json ? json : readable_plan(plan, devices_of(*fleet), stdout_style(), change_texts));
      status != done)
    return status;
  return status_of_plan(plan);
}

void add_plan(const Verb& command) {
  const auto arguments = std::make_shared<PlanArguments>();
  Verb verb = command.add("plan", "show which replicas would run on which GPUs of which nodes");
  verb.argument("FILE", &arguments->project,
                "project file: what should run (berth init writes an example); - for standard input");
  verb.option("--fleet", "FLEET", &arguments->fleet, "file that describes the nodes; by default this machine");
  verb.flag("--server", arguments->live,
            "plan for the live fleet and show the difference: --server, or --server=URL (see berth status --help)");
  verb.option("--ca", "FILE", &arguments->server.ca_file, "certificates to trust, with --server");
  verb.option("--current", "PLAN.json", &arguments->current,
              "plan to start from; its replicas stay where they are if they still fit");
  verb.option("-o,--output", "PLAN.json", &arguments->output,
              "write the plan to a file; berth apply --plan accepts one made with --server");
  verb.flag("--json", arguments->json, "print the plan as one JSON object");
  add_backend_options(verb, arguments->backends);
  verb.exclude("--server", "--fleet");
  verb.exclude("--server", "--current");
  verb.run([arguments] { return run_plan(*arguments); });
}

}  // namespace berth::cli
