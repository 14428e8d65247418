// Counts derived from successive reports of a node, for metrics: restarts of replicas, and how long a machine's
// queue has not moved. In memory only: counts start with this server, as Prometheus expects of a process.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "fleet/fleet.hpp"
#include "store/state.hpp"

namespace berth::server {

class FleetCounts {
 public:
  // Takes a report that the leader has accepted, from a node with these assignments; replicas that are not
  // assigned to the node are not counted.
  void take(const fleet::NodeReport& report, const std::vector<fleet::Assigned>& assigned, TimePoint now);
  // Forgets nodes and replicas that are no longer part of the fleet.
  void keep_only(const store::State& state);

  // Failures of all incarnations of the replica; each is followed by another start.
  std::uint64_t restarts(const DeploymentId& deployment, std::uint32_t replica) const;
  // How long the same request has been first in the queue of the node. Absent: nothing is waiting there, as far as is
  // known.
  std::optional<Duration> front_time(const NodeId& node, TimePoint now) const;

 private:
  struct Front {
    std::string user, name;
    TimePoint since{};
  };
  std::map<NodeId, std::map<fleet::ReplicaKey, std::uint32_t>>
      failures_;  // from the last report; those without failures are left out
  std::map<std::pair<DeploymentId, std::uint32_t>, std::uint64_t> restarts_;
  std::map<NodeId, Front> fronts_;
};

}  // namespace berth::server
