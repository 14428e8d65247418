#include "cli/inventory.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "berth/bytes.hpp"
#include "cli/devices.hpp"
#include "cli/devices_text.hpp"
#include "cli/inventory_json.hpp"
#include "deployment/words.hpp"
#include "device/host_limits.hpp"

namespace berth::cli {
namespace {

struct KindWords {
  LinkKind kind;
  std::string_view cell;
  std::string_view meaning;
};
// Short enough for eight devices on a line of 100 characters.
constexpr std::array<KindWords, 8> kind_words{{
    {LinkKind::same_device, "same", "parts of one device"},
    {LinkKind::nvlink, "nvlink", "NVLink, GPU to GPU; so many side by side"},
    {LinkKind::nvswitch, "switch", "NVLink over a switch that all of them share; so many side by side"},
    {LinkKind::pcie_switch, "pcie", "one PCIe switch between them"},
    {LinkKind::pcie_switches, "pcie+", "several PCIe switches, no host bridge"},
    {LinkKind::host_bridge, "bridge", "one host bridge of the processor"},
    {LinkKind::numa_node, "node", "several host bridges of one NUMA node"},
    {LinkKind::system, "system", "the bus between NUMA nodes"},
}};
constexpr std::string_view no_peer_mark = "!";

const KindWords& words_of(LinkKind kind) { return kind_words[static_cast<std::size_t>(kind)]; }

std::string cell_of(const Link* link) {
  if (link == nullptr) return "-";
  std::string text(words_of(link->kind).cell);
  if (link->lanes > 0) text += " " + std::to_string(link->lanes);
  return link->peer_access == false ? text + std::string(no_peer_mark) : text;
}

// "cuda:0", as `berth devices` has it.
std::string label_of(const DeviceInfo& info) { return info.backend + ":" + std::to_string(info.ordinal); }

}  // namespace

NodeDevice node_device(const DeviceRow& row) {
  NodeDevice device;
  device.info = row.info;
  device.health = health_of(row);
  if (row.seen && row.seen->load.memory_bytes_total) device.info.memory_bytes_total = row.seen->load.memory_bytes_total;
  const Maybe total = device.info.memory_bytes_total,
              free = row.seen ? Maybe(row.seen->load.memory_bytes_free) : Maybe();
  if (total && free) device.memory_bytes_foreign = *total - std::min(*free, *total);
  return device;
}

Result<Inventory> take_inventory(const BackendOptions& backends) {
  auto machine = find_machine(std::nullopt, backends);
  if (!machine) return std::move(machine).error();
  Inventory inventory;
  inventory.status = machine->status;
  NodeView& node = inventory.node;
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  node.id = NodeId(is_name(name) ? name : "localhost");
  node.egress = true;
  const HostLimits limits = read_host_limits();
  node.cpus = limits.cores;
  node.memory_bytes = limits.memory_bytes_total;

  std::set<DeviceId> ids;
  inventory.rows = Observer(machine->backends, machine->devices).look();
  for (const DeviceRow& row : inventory.rows) {
    ids.insert(row.info.id);
    node.devices.push_back(node_device(row));
  }
  // A GPU that is listed through one back end may be linked through another.
  std::vector<Link> links = ask_links(machine->backends);
  std::erase_if(links,
                [&](const Link& link) { return !ids.contains(link.a) || !ids.contains(link.b) || link.a == link.b; });
  auto topology = make_topology({ids.begin(), ids.end()}, std::move(links));
  if (!topology) return std::move(topology).error();
  node.links = std::move(topology->links);
  return inventory;
}

std::string topology_text(const NodeView& node, const Style& style) {
  if (node.links.empty()) return {};
  std::vector<DeviceId> ids;
  std::map<DeviceId, std::string> labels;
  for (const NodeDevice& device : node.devices) {
    ids.push_back(device.info.id);
    labels[device.info.id] = label_of(device.info);
  }
  const Topology topology = make_topology(ids, node.links).value();
  std::erase_if(ids, [&](const DeviceId& id) {
    return std::none_of(topology.links.begin(), topology.links.end(),
                        [&](const Link& link) { return link.a == id || link.b == id; });
  });
  std::vector<std::string> headings{""};
  for (const DeviceId& id : ids) headings.push_back(labels[id]);
  Table table(std::move(headings));
  std::set<LinkKind> kinds;
  bool unknown = false, no_peers = false;
  for (const DeviceId& a : ids) {
    std::vector<std::string> cells{labels[a]};
    for (const DeviceId& b : ids) {
      const Link* const link = find_link(topology, a, b);
      if (link != nullptr) kinds.insert(link->kind);
      no_peers |= link != nullptr && link->peer_access == false;
      unknown |= link == nullptr && a != b;
      cells.push_back(a == b ? "." : cell_of(link));
    }
    table.add(std::move(cells));
  }
  std::string text = table.to_text();
  const auto explain = [&](std::string_view cell, std::string_view meaning) {
    const std::string line = "  " + std::string(cell) + std::string(8 - cell.size(), ' ') + std::string(meaning);
    text += paint(style, Colour::dim, line) + "\n";
  };
  for (const LinkKind kind : kinds) explain(words_of(kind).cell, words_of(kind).meaning);
  if (no_peers) explain(no_peer_mark, "neither reads the other's memory: bytes go through the host's");
  if (unknown) explain("-", "nobody says");
  std::string groups;
  const auto found = islands(topology);
  for (const DeviceId& first : ids) {
    for (const auto& island : found) {
      // In the order of the table, each island where its first member stands.
      std::vector<DeviceId> members;
      for (const DeviceId& id : ids) {
        if (std::binary_search(island.begin(), island.end(), id)) members.push_back(id);
      }
      if (members.size() < 2 || members.front() != first) continue;
      groups += groups.empty() ? "islands:" : ",";
      for (const DeviceId& id : members) groups += " " + labels[id];
    }
  }
  return groups.empty() ? text : text + groups + "\n";
}

int run_inventory(const BackendOptions& backends, bool json) {
  const auto inventory = take_inventory(backends);
  if (!inventory) return complain(inventory.error());
  const TimePoint now = real_clock().now();
  const NodeView& node = inventory->node;
  if (json) return std::max(inventory->status, print(inventory_to_json(node, inventory->rows, now)));
  const Style style = stdout_style();
  std::string text =
      "node " + node.id.text() + ": " + std::to_string(node.cpus.value_or(0)) + (node.cpus == 1u ? " core" : " cores");
  if (node.memory_bytes) text += ", " + bytes_text(*node.memory_bytes) + " of memory";
  text += "\n\n" + devices_text(inventory->rows, now, style) + "\n";
  const std::string topology = topology_text(node, style);
  text += topology.empty() ? "nobody says how these devices are joined\n" : topology;
  return std::max(inventory->status, print(text));
}

}  // namespace berth::cli
