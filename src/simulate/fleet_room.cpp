#include "simulate/fleet_room.hpp"

#include <algorithm>

namespace berth::simulate {

bool is_allowed_on(const DeploymentSpec& spec, const NodeView& view) {
  const bool has_labels = std::all_of(spec.node_selector.begin(), spec.node_selector.end(), [&](const auto& wanted) {
    const auto label = view.labels.find(wanted.first);
    return label != view.labels.end() && label->second == wanted.second;
  });
  const bool is_tolerated = std::all_of(view.taints.begin(), view.taints.end(),
                                        [&](const std::string& taint) { return spec.tolerates.contains(taint); });
  return has_labels && is_tolerated && (view.egress || !std::holds_alternative<Remote>(spec.transport()));
}

void Room::add_node(const NodeView& view, const fleet::NodeRecord& record) {
  Node& node = nodes_[view.id];
  node.view = &view;
  node.bytes_free = view.memory_bytes.value_or(0);
  for (const NodeDevice& node_device : view.devices) {
    Device& device = node.devices[node_device.info.id];
    device.bytes_free = node_device.info.memory_bytes_total.value_or(0);
    device.takes_replicas = node_device.health == Health::healthy && node_device.intent == Intent::in_service &&
                            !record.devices.contains(node_device.info.id) && !node_device.held_exclusively;
    device.is_held = node_device.holders > 0;
  }
}

void Room::charge(const Assignment& place) {
  const auto found = nodes_.find(place.node);
  if (found == nodes_.end()) return;
  Node& node = found->second;
  ++node.replicas[place.deployment];
  if (place.devices.empty()) node.bytes_free -= std::min(node.bytes_free, place.memory_bytes);
  for (const DeviceId& id : place.devices) {
    Device& device = node.devices[id];
    device.bytes_free -= std::min(device.bytes_free, place.memory_bytes);
    device.is_held = true;
    device.is_held_exclusively = device.is_held_exclusively || place.exclusive;
  }
}

std::optional<Assignment> Room::find(const DeploymentSpec& spec,
                                     const std::function<bool(const NodeId&)>& may_use) const {
  const bool is_exclusive = spec.gpus_per_replica() > 0 && spec.exclusive;
  for (const auto& [id, node] : nodes_) {
    const auto others = node.replicas.find(spec.name);
    if (spec.spread == Spread::one_per_node && others != node.replicas.end() && others->second > 0) continue;
    if (!is_allowed_on(spec, *node.view) || !may_use(id)) continue;
    Assignment place{spec.name, 0, id, {}, spec.memory_bytes, is_exclusive};
    if (spec.gpus_per_replica() == 0 && spec.memory_bytes > node.bytes_free) continue;
    for (const auto& [name, device] : node.devices) {
      if (place.devices.size() == spec.gpus_per_replica()) break;
      if (!device.takes_replicas || device.is_held_exclusively || (is_exclusive && device.is_held)) continue;
      if (device.bytes_free >= spec.memory_bytes) place.devices.push_back(name);
    }
    if (place.devices.size() == spec.gpus_per_replica()) return place;
  }
  return std::nullopt;
}

}  // namespace berth::simulate
