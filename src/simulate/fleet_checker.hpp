// FleetChecker: the laws of a fleet, held against what a simulated one does. It shares no code with the controller,
// the agents or the planner and keeps its own books: from what is committed, and from what starts and
// ends on the machines. A violation is a sentence with its time; the first few are kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "fleet/fleet.hpp"
#include "store/state.hpp"

namespace berth::simulate {

class FleetChecker {
 public:
  // What the machines of the fleet really have.
  void add_device(const NodeId& node, const DeviceId& device, std::uint64_t memory_bytes);

  // A call of a server that knew the store as of change `known` committed something: the change `made`. Absent: it
  // begins to lead, and decides nothing yet.
  void decided(TimePoint now, const std::string& call, std::optional<std::uint64_t> known, std::uint64_t made);
  // The state after a commit.
  void committed(TimePoint now, const store::State& state);
  // A process of a replica began, or its last one is gone.
  void began(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key, bool is_single);
  void ended(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key);
  void refused(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key);
  // A server took a report.
  void heard(TimePoint now, const NodeId& node) { heard_[node] = std::max(heard_[node], now); }
  // An operator asks for a change, absent: to remove the deployment; later it is told that the change is accepted, or
  // learns nothing. Returns the number of the request.
  std::uint64_t asked(const DeploymentId& deployment, const std::optional<DeploymentSpec>& spec);
  void answered(const DeploymentId& deployment, std::uint64_t request, bool is_accepted);

  // The same for what they say about a node.
  void asked(const NodeId& node, Intent intent) { asked_intents_.emplace(node, intent); }
  void answered(const NodeId& node, Intent intent);

  struct Machine {
    bool is_on = false;
    std::set<DeviceId> in_service;  // healthy
  };
  // After the faults: what is wanted has a place, unless nothing fits.
  void check_places(TimePoint now, const store::State& state, const std::map<NodeId, Machine>& machines);
  // And in the end it serves, nothing else runs, nothing accepted is lost.
  void check_rest(TimePoint now, const store::State& state, const std::set<fleet::ReplicaKey>& ready);
  void expect(TimePoint now, bool holds, const std::string& law);

  const std::vector<std::string>& violations() const { return violations_; }
  std::uint64_t starts() const { return starts_; }  // incarnations

 private:
  struct Process {
    NodeId node;
    fleet::ReplicaKey key;
    bool is_single = false;
    TimePoint began{};
  };
  std::map<DeviceId, std::uint64_t> bytes_;
  std::map<fleet::ReplicaKey, TimePoint> ended_;
  std::map<std::pair<DeploymentId, std::uint32_t>, std::vector<Process>> processes_;
  std::map<std::pair<NodeId, std::pair<DeploymentId, std::uint32_t>>, std::vector<TimePoint>> refusals_;
  std::map<DeploymentId, TimePoint> last_refusal_;
  // What may be wanted: a request that was over before an accepted one began counts no more.
  struct Request {
    std::uint64_t began = 0, ended = UINT64_MAX;
    std::optional<DeploymentSpec> spec;
  };
  std::map<DeploymentId, std::vector<Request>> requests_;
  std::uint64_t moments_ = 0;  // a number for each request and each answer
  std::map<NodeId, TimePoint> heard_;
  std::string last_call_;
  std::uint64_t last_change_ = 0;
  std::map<NodeId, Intent> intents_;                        // in the last state
  std::multiset<std::pair<NodeId, Intent>> asked_intents_;  // that are not answered yet
  std::uint64_t starts_ = 0;
  std::set<std::uint64_t> assigned_;  // generations
  std::uint64_t highest_ = 0;         // generation
  std::set<std::uint64_t> stopping_;  // generations
  std::vector<std::string> violations_;
};

}  // namespace berth::simulate
