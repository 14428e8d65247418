// PlannedFleet: what has been allocated on every node and GPU of a fleet, within one plan. It assumes
// nothing about the order in which nodes and devices were reported: nodes are kept by id and devices by node
// and id, and the first of two equal ids is kept. It promises bytes per memory domain, so that partitions of
// one GPU cannot promise the same bytes twice. The decisions are in plan.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "berth/deployment.hpp"
#include "berth/device_view.hpp"
#include "berth/topology.hpp"

namespace berth::deployment {

struct PlannedNode {
  const NodeView* node = nullptr;  // owned by the fleet
  // GPUs by id. `intent` and `health` combine the node's and the device's; `in_flight` counts
  // replicas, `memory_bytes_promised` their bytes.
  std::vector<DeviceView> gpus;
  std::vector<DeviceView> gpus_before;      // as if the plan had put nothing on them; parallel to gpus
  std::vector<DeviceView> gpus_idle;        // as if nothing ran on them, in the plan or outside; parallel to gpus
  Topology topology;                        // the node's links between its GPUs
  std::vector<bool> held_exclusively;       // held by a replica; parallel to gpus
  std::uint64_t memory_bytes_promised = 0;  // promised to CPU replicas on the node
  std::uint64_t replicas_without_gpu = 0;   // CPU and remote replicas here

  bool is_usable() const { return node->health != Health::quarantined && node->health != Health::lost; }
  bool accepts_replicas() const { return is_usable() && node->intent == Intent::in_service; }
  OptionalU64 memory_bytes_available() const;
};

// Positions in `nodes` and in that node's `gpus`.
struct Location {
  std::size_t node = 0;
  std::vector<std::size_t> gpus;
};

class PlannedFleet {
 public:
  explicit PlannedFleet(const Fleet& fleet);

  std::vector<PlannedNode> nodes;  // by id

  // Replaces former ids of the devices of its node.
  void use_current_ids(Assignment& assignment) const;
  // Returns nullopt if the node or one of the devices is gone.
  std::optional<Location> find(const Assignment& assignment) const;

  void charge(const Location& location, std::uint64_t memory_bytes, bool exclusive);
  void refund(const Location& location, std::uint64_t memory_bytes);

 private:
  const PlannedNode* find_node(const NodeId& id) const;  // null: it is gone
};

}  // namespace berth::deployment
