// What the servers of a simulated fleet have agreed on. As with the real store, a commit carries the epoch of its
// leader and the revision that it was decided on, and changes nothing where either has moved.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "fleet/fleet.hpp"

namespace berth::simulate {

struct StoredFleet {
  std::uint64_t epoch = 0;
  TimePoint leader_until{};
  std::uint64_t revision = 0;
  fleet::Desired desired;
  std::map<DeploymentId, std::uint64_t> changes;  // the number of the last accepted change
  std::map<NodeId, Intent> nodes;                 // with what the operator says
  std::map<std::uint64_t, fleet::Assigned> assigned;
  std::uint64_t next_generation = 1;
};

struct FleetCommit {
  std::uint64_t epoch = 0, revision = 0;
  std::vector<fleet::Assigned> start;
  std::vector<fleet::ReplicaKey> stop, forget;
  std::map<DeploymentId, std::string> pause;
  std::uint64_t next_generation = 0;
};

class FleetStore {
 public:
  StoredFleet state;
  // Is called after every change; a hint for servers that wait for one.
  std::function<void(const std::vector<fleet::Assigned>& started)> changed;

  static constexpr Duration leadership = std::chrono::seconds(5);

  // The new epoch; absent: another server leads.
  std::optional<std::uint64_t> lead(TimePoint now) {
    if (now < state.leader_until) return std::nullopt;
    state.leader_until = now + leadership;
    return ++state.epoch;
  }
  bool renew(std::uint64_t epoch, TimePoint now) {
    if (epoch != state.epoch || now >= state.leader_until) return false;
    state.leader_until = now + leadership;
    return true;
  }

  bool commit(const FleetCommit& commit) {
    if (commit.epoch != state.epoch) return false;
    if (commit.revision != state.revision) return false;
    for (const fleet::ReplicaKey& key : commit.forget) state.assigned.erase(key.generation);
    for (const fleet::ReplicaKey& key : commit.stop) state.assigned.at(key.generation).stopping = true;
    for (const fleet::Assigned& one : commit.start) state.assigned.emplace(one.generation, one);
    for (const auto& [id, reason] : commit.pause) state.desired.deployments.at(id).paused = reason;
    state.next_generation = commit.next_generation;
    touch(commit.start);
    return true;
  }

  // An operator's change, through whatever server.
  void change_desired(const DeploymentId& id, std::uint64_t number, const std::function<void(StoredFleet&)>& change) {
    change(state);
    state.changes[id] = number;
    ++state.desired.version;
    touch({});
  }
  void set_intent(const NodeId& node, Intent intent) {
    state.nodes[node] = intent;
    touch({});
  }

 private:
  void touch(const std::vector<fleet::Assigned>& started) {
    ++state.revision;
    if (changed) changed(started);
  }
};

}  // namespace berth::simulate
