// `berth fleet show`: the nodes and devices of a fleet file.
#include <algorithm>

#include "berth/bytes.hpp"
#include "cli/command_line.hpp"
#include "cli/input/fleet_file.hpp"
#include "cli/text/terminal.hpp"
#include "cli/verbs/plan.hpp"
#include "fleet_format/plan_json.hpp"

namespace berth::cli {

using namespace format;
namespace {

// ", islands of 4 and 4"; empty if there are none.
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

}  // namespace

int run_fleet_show(const std::string& path, bool json) {
  const auto fleet = load_fleet(path);
  if (!fleet) return print_error(fleet.error());
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

void add_fleet(const Verb& command) {
  struct Arguments {
    std::string path;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  const Verb fleet = command.add("fleet", "show the contents of a fleet file");
  Verb verb = fleet.add("show", "list the nodes and devices of a fleet file");
  verb.argument("FLEET", &arguments->path, "fleet file in TOML, or the output of berth inventory --json");
  verb.flag("--json", arguments->json, "print one JSON object");
  verb.run([arguments] { return run_fleet_show(arguments->path, arguments->json); });
}

}  // namespace berth::cli
