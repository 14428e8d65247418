// Room: which replicas would find a place in a fleet, as the checker counts it from what is committed and what the
// nodes have reported. It shares no code with the planner.
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
  // A node that takes replicas. `record` has what the operators say about its devices.
  void add_node(const NodeView& view, const fleet::NodeRecord& record);
  // What is assigned holds its place until it is forgotten.
  void charge(const Assignment& place);
  // A place for one more replica on a node that `may_use` allows.
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
