// FleetChecker: the laws of a fleet, held against what a simulated one does. It shares no code with the controller,
// the agents or the planner and keeps its own books: from what is committed, and from what starts and
// ends on the machines. A violation is a sentence with its time; the first few are kept.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "fleet/fleet.hpp"
#include "simulate/fleet_store.hpp"

namespace berth::simulate {

class FleetChecker {
 public:
  // What the machines of the fleet really have.
  void add_device(const NodeId& node, const DeviceId& device, std::uint64_t memory_bytes);

  // The state after a commit, and what this commit has started.
  void committed(TimePoint now, const StoredFleet& state, const std::vector<fleet::Assigned>& started);
  // A process of a replica began, or its last one is gone.
  void began(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key, bool is_single);
  void ended(const NodeId& node, const fleet::ReplicaKey& key);
  void refused(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key);
  // A server took a report.
  void heard(TimePoint now, const NodeId& node) { heard_[node] = now; }
  // An operator was told that a change is accepted.
  void acknowledged(const DeploymentId& deployment, std::uint64_t change) { acknowledged_[deployment] = change; }

  struct Machine {
    bool is_on = false;
    std::set<DeviceId> in_service;  // healthy
  };
  // After the faults: what is wanted has a place, unless nothing fits.
  void check_places(TimePoint now, const StoredFleet& state, const std::map<NodeId, Machine>& machines);
  // And in the end it serves, nothing else runs, nothing accepted is lost.
  void check_rest(TimePoint now, const StoredFleet& state, const std::set<fleet::ReplicaKey>& ready);
  void expect(TimePoint now, bool holds, const std::string& law);

  const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct Process {
    NodeId node;
    fleet::ReplicaKey key;
    bool is_single = false;
    TimePoint began{};
  };
  std::map<DeviceId, std::uint64_t> bytes_;
  std::map<std::pair<DeploymentId, std::uint32_t>, std::vector<Process>> processes_;
  std::map<std::pair<NodeId, std::pair<DeploymentId, std::uint32_t>>, std::vector<TimePoint>> refusals_;
  std::map<DeploymentId, std::uint64_t> acknowledged_;
  std::map<NodeId, TimePoint> heard_;
  std::uint64_t highest_ = 0;         // generation
  std::set<std::uint64_t> stopping_;  // generations
  std::vector<std::string> violations_;
};

}  // namespace berth::simulate
