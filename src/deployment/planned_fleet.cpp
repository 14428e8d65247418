#include "deployment/planned_fleet.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>

#include "inventory/driver_reserve.hpp"
#include "inventory/former_ids.hpp"

namespace berth::deployment {
namespace {

bool share_memory(const DeviceView& a, const DeviceView& b) { return a.info->memory_home() == b.info->memory_home(); }

DeviceView view_of(const NodeDevice& device, const NodeView& node, bool node_is_usable) {
  DeviceView view;
  view.info = &device.info;
  // A plan treats the fleet's data as fresh.
  view.sample = device.answers ? SampleState::fresh : SampleState::unknown;
  view.holders = device.holders;
  view.in_flight = device.holders;
  view.charged_total = device.holders;
  view.held_exclusively = device.held_exclusively;
  view.memory_bytes_promised = device.memory_bytes_promised;
  view.other_processes = device.other_processes;
  view.used_by_others = device.used_by_others;
  if (device.info.memory_bytes_total) {
    const std::uint64_t used = device.memory_bytes_used.value_or(0);
    view.memory_bytes_free = *device.info.memory_bytes_total - std::min(*device.info.memory_bytes_total, used);
    // Memory in use beyond the driver's own reserve belongs to others.
    view.used_by_others |= used > inventory::driver_reserve_bytes(*device.info.memory_bytes_total);
  }
  view.intent = std::max(node.intent, device.intent);
  view.health = node_is_usable ? device.health : node.health;
  return view;
}

DeviceView idle(DeviceView view) {
  view.in_flight = view.holders = view.other_processes = 0;
  view.held_exclusively = false;
  view.memory_bytes_promised = 0;
  view.memory_bytes_free = view.info->memory_bytes_total ? OptionalU64(*view.info->memory_bytes_total) : OptionalU64();
  view.sample = SampleState::fresh;
  return view;
}

// Links to anything but the GPUs of the node are left out.
Topology topology_of(const NodeView& node, std::span<const DeviceView> gpus) {
  if (node.links.empty()) return {};
  std::vector<DeviceId> ids;
  for (const DeviceView& gpu : gpus) ids.push_back(gpu.info->id);
  const auto known = [&](const DeviceId& id) { return std::binary_search(ids.begin(), ids.end(), id); };
  std::vector<Link> links;
  std::copy_if(node.links.begin(), node.links.end(), std::back_inserter(links),
               [&](const Link& link) { return link.a != link.b && known(link.a) && known(link.b); });
  return make_topology(std::move(ids), std::move(links)).value();
}

}  // namespace

OptionalU64 PlannedNode::memory_bytes_available() const {
  if (!node->memory_bytes) return {};
  return *node->memory_bytes - std::min(*node->memory_bytes, memory_bytes_promised);
}

PlannedFleet::PlannedFleet(const Fleet& fleet) {
  std::map<NodeId, const NodeView*> by_id;
  for (const NodeView& node : fleet.nodes) by_id.emplace(node.id, &node);

  nodes.reserve(by_id.size());
  for (const auto& [id, node] : by_id) {
    PlannedNode& entry = nodes.emplace_back();
    entry.node = node;
    std::set<DeviceId> seen;
    for (const NodeDevice& device : node->devices) {
      if (device.is_gpu() && seen.insert(device.info.id).second)
        entry.gpus.push_back(view_of(device, *node, entry.is_usable()));
    }
    std::sort(entry.gpus.begin(), entry.gpus.end(),
              [](const DeviceView& a, const DeviceView& b) { return a.info->id < b.info->id; });
    for (std::size_t i = 0; i < entry.gpus.size(); ++i) entry.gpus[i].id_order = static_cast<std::uint32_t>(i);
    entry.topology = topology_of(*node, entry.gpus);
    entry.held_exclusively.resize(entry.gpus.size());
    for (const DeviceView& gpu : entry.gpus) {
      entry.gpus_before.push_back(gpu);
      entry.gpus_before.back().in_flight = 0;
      entry.gpus_idle.push_back(idle(gpu));
    }
  }
}

const PlannedNode* PlannedFleet::find_node(const NodeId& id) const {
  const auto node =
      std::lower_bound(nodes.begin(), nodes.end(), id,
                       [](const PlannedNode& entry, const NodeId& wanted) { return entry.node->id < wanted; });
  return node == nodes.end() || node->node->id != id ? nullptr : &*node;
}

void PlannedFleet::use_current_ids(Assignment& assignment) const {
  const PlannedNode* const node = find_node(assignment.node);
  const auto was_renamed = [](const DeviceView& gpu) { return gpu.info->former_id.has_value(); };
  if (!node || std::none_of(node->gpus.begin(), node->gpus.end(), was_renamed)) return;
  inventory::FormerIds ids;
  for (const DeviceView& gpu : node->gpus) ids.add(*gpu.info);
  for (DeviceId& id : assignment.devices) id = DeviceId(ids.current(id));
}

std::optional<Location> PlannedFleet::find(const Assignment& assignment) const {
  const PlannedNode* const node = find_node(assignment.node);
  if (!node) return std::nullopt;
  Location location{static_cast<std::size_t>(node - nodes.data()), {}};
  for (const DeviceId& id : assignment.devices) {
    const auto gpu =
        std::lower_bound(node->gpus.begin(), node->gpus.end(), id,
                         [](const DeviceView& view, const DeviceId& wanted) { return view.info->id < wanted; });
    if (gpu == node->gpus.end() || gpu->info->id != id) return std::nullopt;
    location.gpus.push_back(static_cast<std::size_t>(gpu - node->gpus.begin()));
  }
  std::sort(location.gpus.begin(), location.gpus.end());
  if (std::adjacent_find(location.gpus.begin(), location.gpus.end()) != location.gpus.end()) return std::nullopt;
  return location;
}

void PlannedFleet::charge(const Location& location, std::uint64_t memory_bytes, bool exclusive) {
  PlannedNode& node = nodes[location.node];
  if (location.gpus.empty()) {
    node.memory_bytes_promised += memory_bytes;
    ++node.replicas_without_gpu;
  }
  for (const std::size_t gpu : location.gpus) {
    ++node.gpus[gpu].in_flight;
    ++node.gpus[gpu].charged_total;
    if (exclusive) node.held_exclusively[gpu] = true;
    for (DeviceView& other : node.gpus) {
      if (share_memory(other, node.gpus[gpu])) other.memory_bytes_promised += memory_bytes;
    }
  }
}

void PlannedFleet::refund(const Location& location, std::uint64_t memory_bytes) {
  PlannedNode& node = nodes[location.node];
  if (location.gpus.empty()) {
    node.memory_bytes_promised -= memory_bytes;
    --node.replicas_without_gpu;
  }
  for (const std::size_t gpu : location.gpus) {
    --node.gpus[gpu].in_flight;
    --node.gpus[gpu].charged_total;
    node.held_exclusively[gpu] = false;  // if it was exclusive, it was the only one
    for (DeviceView& other : node.gpus) {
      if (share_memory(other, node.gpus[gpu])) other.memory_bytes_promised -= memory_bytes;
    }
  }
}

}  // namespace berth::deployment
