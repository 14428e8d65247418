#include "cli/plan.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

#include "berth/bytes.hpp"
#include "berth/placement.hpp"
#include "cli/inventory.hpp"
#include "cli/terminal.hpp"
#include "deployment/identifiers.hpp"
#include "format/inventory_json.hpp"
#include "format/plan_json.hpp"
#include "inventory/short_id.hpp"
#include "world/files.hpp"

namespace berth::cli {
namespace {

// What `berth init` writes. It fits any machine: nothing in it needs a GPU.
constexpr std::string_view example_project = R"(# What should run, for `berth plan`. Every key: docs/deployment.md
[cluster]
name = "my-cluster"
# bind = "127.0.0.1:8080"

# Needs no GPU, so that this file can be planned on any machine.
[[deployment]]
name = "hello"
model = "tokenizer"
cpu = true                       # say so; a GPU deployment must ask for GPUs
replicas = 2
memory = "256MiB"                # of the node; per GPU for a GPU deployment

# Remove the marks below for replicas that hold a GPU each.
# [[deployment]]
# name = "chat"
# model = "meta-llama/Llama-3.1-8B"   # the runtime follows from the name: vllm
# gpus = 1                       # per replica
# replicas = 2
# memory = "20GiB"               # must be free on each GPU
# capability = "8.0"             # at least
# sharing = "exclusive"          # or "memory": several replicas on a GPU
# spread = "spread"              # or "pack", "one_per_node"
# on_shortage = "all"            # or "best_effort"
#
# [deployment.serving]
# max_concurrent = 32
# on_capacity_exhausted = "queue"    # or "reject", "fallback"

# A provider's model: the key is named, never written here.
# [[deployment]]
# name = "remote"
# model = "gpt-4o"
# key = "env:OPENAI_KEY"
)";

std::string count_text(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// A fleet file is told from a project by its tables, an inventory by its form.
bool looks_like_a_fleet(std::string_view text) {
  return looks_like_json(text) || text.starts_with("[[node") || text.find("\n[[node") != std::string_view::npos;
}

Result<Fleet> fleet_from(const std::string& text, const std::string& path) {
  return looks_like_json(text) ? read_fleet_json(text, path) : read_fleet(text, path);
}

// This machine as a fleet of one node.
Result<Fleet> this_machine(const BackendOptions& backends) {
  return take_inventory(backends).transform([](Inventory inventory) { return Fleet{{std::move(inventory.node)}}; });
}

Result<Project> load_project(const std::string& path) {
  return read_text(path).and_then([&](const std::string& text) { return read_project(text, path); });
}
Result<Fleet> load_fleet(const std::string& path) {
  return read_text(path).and_then([&](const std::string& text) { return fleet_from(text, path); });
}

// Harmless, and still probably not what was meant.
void warn_about_nodes_nobody_has(const Project& project, const Fleet& fleet) {
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

// ", islands of 4 and 4"; empty where there are none.
std::string islands_text(const NodeView& node) {
  std::vector<DeviceId> ids;
  for (const NodeDevice& device : node.devices) ids.push_back(device.info.id);
  const auto topology = make_topology(std::move(ids), node.links);
  std::string text;
  for (const auto& island : topology ? islands(*topology) : std::vector<std::vector<DeviceId>>{}) {
    if (island.size() > 1) text += (text.empty() ? ", islands of " : " and ") + std::to_string(island.size());
  }
  return text;
}

// "8 x NVIDIA H200 (131.3 GiB)", one part per kind of device.
std::string devices_text(const NodeView& node) {
  std::vector<std::pair<std::string, std::size_t>> kinds;
  for (const NodeDevice& device : node.devices) {
    std::string kind = device.info.name.empty() ? device.info.backend : device.info.name;
    if (device.info.memory_bytes_total) kind += " (" + bytes_text(*device.info.memory_bytes_total) + ")";
    if (device.intent != Intent::in_service) kind += " " + std::string(to_string(device.intent));
    if (device.health != Health::healthy) kind += " " + std::string(to_string(device.health));
    const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const auto& known) { return known.first == kind; });
    if (found == kinds.end()) {
      kinds.emplace_back(std::move(kind), 1);
    } else {
      ++found->second;
    }
  }
  std::string text;
  for (const auto& [kind, count] : kinds) text += (text.empty() ? "" : ", ") + std::to_string(count) + " x " + kind;
  return text.empty() ? "-" : text + islands_text(node);
}

std::string labels_text(const NodeView& node) {
  std::string text;
  for (const auto& [name, value] : node.labels) text += (text.empty() ? "" : " ") + name + "=" + value;
  for (const std::string& taint : node.taints) text += (text.empty() ? "" : " ") + std::string("!") + taint;
  return text.empty() ? "-" : text;
}

// With ids as people read them, and reasons within the width of the terminal.
std::string readable(const Plan& plan, const Fleet& fleet) {
  std::vector<DeviceId> ids;
  for (const NodeView& node : fleet.nodes) {
    for (const NodeDevice& device : node.devices) ids.push_back(device.info.id);
  }
  const std::string whole = with_short_ids(plan_to_text(plan, ids), ids);
  const std::size_t columns = stdout_style().columns;
  std::string text;
  for (std::size_t begin = 0; begin < whole.size();) {
    const std::size_t end = whole.find('\n', begin);
    const std::string line = whole.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with("! ") || line.size() <= columns) {
      text += line + "\n";
      continue;
    }
    std::string indent;
    for (const std::string& part : wrapped(line, columns - 4)) {
      text += indent + part + "\n";
      indent = "    ";
    }
  }
  return text;
}

}  // namespace

int run_plan(const PlanArguments& arguments) {
  const auto project = load_project(arguments.project);
  if (!project) return complain(project.error());
  const auto fleet = arguments.fleet ? load_fleet(*arguments.fleet) : this_machine(arguments.backends);
  if (!fleet) return complain(fleet.error());
  std::vector<Assignment> current;
  if (arguments.current) {
    auto read = read_text(*arguments.current).and_then([&](const std::string& text) {
      return read_plan(text, *arguments.current, project->cluster.name);
    });
    if (!read) return complain(read.error());
    current = *std::move(read);
  }
  warn_about_nodes_nobody_has(*project, *fleet);

  const Plan plan = berth::plan(project->deployments, *fleet, current, project->egress_preference);
  const std::string json =
      arguments.json || arguments.output ? plan_to_json(plan, project->cluster.name) : std::string();
  if (arguments.output) {
    if (const auto written = write_text(*arguments.output, json); !written) return complain(written.error());
  }
  if (const int status = print(arguments.json ? json : readable(plan, *fleet)); status != done) return status;
  if (plan.pending.empty()) return done;
  std::fprintf(stderr, "berth: %s not placed as wanted; the pending entries say why\n",
               plan.pending.size() == 1 ? "one deployment is" : "some deployments are");
  return does_not_fit;
}

int run_validate(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return complain(text.error());
  if (looks_like_a_fleet(*text)) {
    const auto fleet = fleet_from(*text, path);
    if (!fleet) return complain(fleet.error());
    std::size_t devices = 0;
    for (const NodeView& node : fleet->nodes) devices += node.devices.size();
    return print(printable(path) + ": a valid fleet of " + count_text(fleet->nodes.size(), "node") + " and " +
                 count_text(devices, "device") + "\n");
  }
  const auto project = read_project(*text, path);
  if (!project) return complain(project.error());
  std::size_t replicas = 0;
  for (const DeploymentSpec& spec : project->deployments) {
    replicas += spec.replicas;
    if (std::holds_alternative<UnknownTransport>(spec.transport()))
      std::fprintf(stderr, "berth: note: deployment %s uses the runtime \"%s\", which this version does not know\n",
                   printable(spec.name.text()).c_str(), printable(to_string(spec.effective_runtime())).c_str());
  }
  return print(printable(path) + ": a valid project of " + count_text(project->deployments.size(), "deployment") +
               " and " + count_text(replicas, "replica") + "\n");
}

int run_init(const std::string& path) {
  if (const auto written = create_text(path, example_project); !written) return complain(written.error());
  return print("wrote " + printable(path) + "; next: berth plan " + printable(path) + "\n");
}

int run_fleet_show(const std::string& path, bool json) {
  const auto fleet = load_fleet(path);
  if (!fleet) return complain(fleet.error());
  if (json) return print(fleet_to_json(*fleet));
  Table table({"NODE", "STATE", ">CPUS", ">MEMORY", "EGRESS", "DEVICES", "LABELS"});
  table.may_shrink(5, 24).may_shrink(6, 8).may_go(4).may_go(6).may_go(2);
  for (const NodeView& node : fleet->nodes) {
    std::string state(to_string(node.intent));
    if (node.health != Health::healthy) state += ", " + std::string(to_string(node.health));
    table.add({node.id.text(), std::move(state), node.cpus ? std::to_string(*node.cpus) : "-",
               node.memory_bytes ? bytes_text(*node.memory_bytes) : "-", node.egress ? "yes" : "no", devices_text(node),
               labels_text(node)});
  }
  return print(stdout_is_terminal() ? table.to_text(stdout_style()) : table.to_text());
}

}  // namespace berth::cli
