#include "cli/verbs/inventory.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>

#include "berth/bytes.hpp"
#include "cli/machine_access.hpp"
#include "cli/options.hpp"
#include "cli/text/devices_text.hpp"
#include "device/query.hpp"
#include "format/inventory_json.hpp"
#include "inventory/listed_topology.hpp"
#include "machine/machine_observer.hpp"
#include "machine/this_node.hpp"

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace machine;
namespace {

struct KindWords {
  LinkKind kind;
  std::string_view cell;
  std::string_view brief;  // used if the table is too wide
  std::string_view meaning;
};
constexpr std::array<KindWords, 8> kind_words{{
    {LinkKind::same_device, "same", "=", "parts of one device"},
    {LinkKind::nvlink, "nvlink", "NV", "NVLink, GPU to GPU; with the number of links"},
    {LinkKind::nvswitch, "switch", "SW", "NVLink through a switch; with the number of links"},
    {LinkKind::pcie_switch, "pcie", "P", "one PCIe switch between them"},
    {LinkKind::pcie_switches, "pcie+", "P+", "several PCIe switches, no host bridge"},
    {LinkKind::host_bridge, "bridge", "HB", "one host bridge of the processor"},
    {LinkKind::numa_node, "node", "ND", "several host bridges of one NUMA node"},
    {LinkKind::system, "system", "SYS", "the bus between NUMA nodes"},
}};
constexpr std::string_view no_peer_mark = "!";

const KindWords& words_of(LinkKind kind) { return kind_words[static_cast<std::size_t>(kind)]; }

std::string_view cell_of(LinkKind kind, bool brief) { return brief ? words_of(kind).brief : words_of(kind).cell; }

std::string cell_of(const Link* link, bool brief) {
  if (link == nullptr) return "-";
  std::string text(cell_of(link->kind, brief));
  if (link->lanes > 0) text += (brief ? "" : " ") + std::to_string(link->lanes);
  return link->peer_access == false ? text + std::string(no_peer_mark) : text;
}

// The links between all devices, split into blocks of columns if they do not fit on a line.
std::string matrix_text(const Topology& topology, std::span<const DeviceId> ids,
                        const std::map<DeviceId, std::string>& labels, bool brief, std::size_t columns) {
  std::size_t label_width = 0, cell_width = 0;
  for (const DeviceId& a : ids) {
    label_width = std::max(label_width, labels.at(a).size());
    for (const DeviceId& b : ids) cell_width = std::max(cell_width, cell_of(find_link(topology, a, b), brief).size());
  }
  cell_width = std::max(cell_width, label_width);
  const std::size_t room = columns > label_width ? columns - label_width : 0;
  const std::size_t side_by_side = std::max<std::size_t>(1, room / (cell_width + 2));
  std::string text;
  for (std::size_t first = 0; first < ids.size(); first += side_by_side) {
    const auto block = ids.subspan(first, std::min(side_by_side, ids.size() - first));
    std::vector<std::string> headings{""};
    for (const DeviceId& id : block) headings.push_back(labels.at(id));
    Table table(std::move(headings));
    for (const DeviceId& a : ids) {
      std::vector<std::string> cells{labels.at(a)};
      for (const DeviceId& b : block) cells.push_back(a == b ? "." : cell_of(find_link(topology, a, b), brief));
      table.add(std::move(cells));
    }
    text += table.to_text();
  }
  return text;
}

bool fits(const std::string& text, std::size_t columns) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > columns) return false;
  }
  return true;
}

}  // namespace

Result<Inventory> take_inventory(const BackendOptions& backends) {
  auto found = find_machine_and_report(std::nullopt, backends);
  if (!found) return std::move(found).error();
  Machine* const machine = &found->machine;
  Inventory inventory;
  inventory.status = found->status;
  NodeView& node = inventory.node;
  node = this_node();
  std::vector<DeviceId> ids;
  inventory.rows = TelemetryPoller(machine->backends, machine->devices).poll();
  std::fputs(add_ledger_or_note(inventory.rows).c_str(), stderr);
  for (const DeviceRow& row : inventory.rows) {
    ids.push_back(row.info.id);
    node.devices.push_back(node_device(row));
  }
  // A GPU that is listed through one back end may be linked through another.
  node.links = listed_topology(std::move(ids), device::query_links(machine->backends)).links;
  return inventory;
}

std::string topology_text(const NodeView& node, const Style& style) {
  if (node.links.empty()) return {};
  std::vector<DeviceId> ids;
  std::map<DeviceId, std::string> labels;
  for (const NodeDevice& device : node.devices) {
    ids.push_back(device.info.id);
    labels[device.info.id] = device_label(device.info);
  }
  const Topology topology = make_topology(ids, node.links).value();
  std::erase_if(ids, [&](const DeviceId& id) {
    return std::none_of(topology.links.begin(), topology.links.end(),
                        [&](const Link& link) { return link.a == id || link.b == id; });
  });
  std::set<LinkKind> kinds;
  bool unknown = false, no_peers = false;
  for (const DeviceId& a : ids) {
    for (const DeviceId& b : ids) {
      const Link* const link = find_link(topology, a, b);
      if (link != nullptr) kinds.insert(link->kind);
      no_peers |= link != nullptr && link->peer_access == false;
      unknown |= link == nullptr && a != b;
    }
  }
  // The names of the link kinds if they fit on the line, otherwise their codes.
  std::string text = matrix_text(topology, ids, labels, false, std::string::npos);
  const bool brief = !fits(text, style.columns);
  if (brief) text = matrix_text(topology, ids, labels, true, style.columns);
  const auto explain = [&](std::string_view cell, std::string_view meaning) {
    constexpr std::size_t indent = 10;
    std::string lead = "  " + std::string(cell) + std::string(indent - 2 - cell.size(), ' ');
    for (const std::string& line : wrapped(std::string(meaning), style.columns > 30 ? style.columns - indent : 20)) {
      text += paint(style, Colour::dim, lead + line) + "\n";
      lead = std::string(indent, ' ');
    }
  };
  for (const LinkKind kind : kinds) explain(cell_of(kind, brief), words_of(kind).meaning);
  if (no_peers) explain(no_peer_mark, "no peer access: copies go through host memory");
  if (unknown) explain("-", "unknown");
  std::string groups;
  const auto found = islands(topology);
  for (const DeviceId& first : ids) {
    for (const auto& island : found) {
      // In the order of the table, by the first member of each island.
      std::vector<DeviceId> members;
      for (const DeviceId& id : ids) {
        if (std::binary_search(island.begin(), island.end(), id)) members.push_back(id);
      }
      if (members.size() < 2 || members.front() != first) continue;
      groups += groups.empty() ? "islands:" : ",";
      for (const DeviceId& id : members) groups += " " + labels[id];
    }
  }
  for (const std::string& line : wrapped(groups, style.columns)) text += line + "\n";
  return text;
}

namespace {

int run_inventory(const BackendOptions& backends, bool json) {
  const auto inventory = take_inventory(backends);
  if (!inventory) return print_error(inventory.error());
  const TimePoint now = real_clock().now();
  const NodeView& node = inventory->node;
  if (json) return std::max(inventory->status, print(inventory_to_json(node, inventory->rows, now)));
  const Style style = stdout_style();
  std::string text =
      "node " + node.id.text() + ": " + std::to_string(node.cpus.value_or(0)) + (node.cpus == 1u ? " core" : " cores");
  if (node.memory_bytes) text += ", " + bytes_text(*node.memory_bytes) + " of memory";
  text += "\n\n" + devices_text(inventory->rows, now, style) + "\n";
  const std::string topology = topology_text(node, style);
  text += topology.empty() ? "the links between these devices are unknown\n" : topology;
  return std::max(inventory->status, print(text));
}

}  // namespace

void add_inventory(const Verb& command) {
  struct Arguments {
    BackendOptions backends;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  Verb verb = command.add("inventory", "show this machine as a node of a fleet, and how its devices are linked");
  verb.flag("--json", arguments->json, "print one JSON object, which berth plan --fleet accepts");
  add_backend_options(verb, arguments->backends);
  verb.run([arguments] { return run_inventory(arguments->backends, arguments->json); });
}

}  // namespace berth::cli
