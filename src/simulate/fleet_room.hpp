// Room: which replicas would find a place in a fleet, as computed by the checker from commits and the nodes'
// reports. It shares no code with the planner.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "fleet/fleet.hpp"

namespace berth::simulate {

// Whether replicas of this spec may stay on the node: its labels, taints and egress.
bool is_allowed_on(const DeploymentSpec& spec, const NodeView& view);

class Room {
 public:
  // Adds a node that accepts replicas. `record` has the operators' intents for its devices.
  void add_node(const NodeView& view, const fleet::NodeRecord& record);
  // An assigned incarnation holds its place until it is forgotten.
  void charge(const Assignment& place);
  // Finds a place for one more replica on a node that `may_use` allows.
  std::optional<Assignment> find(const DeploymentSpec& spec, const std::function<bool(const NodeId&)>& may_use) const;

 private:
  struct Device {
    std::uint64_t bytes_free = 0;
    bool takes_replicas = false;
    bool is_held = false, is_held_exclusively = false;
  };
  struct Node {
    const NodeView* view = nullptr;
    std::uint64_t bytes_free = 0;
    std::map<DeviceId, Device> devices;
    std::map<DeploymentId, std::uint32_t> replicas;
  };
  std::map<NodeId, Node> nodes_;
};

}  // namespace berth::simulate
