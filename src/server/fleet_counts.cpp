#include "server/fleet_counts.hpp"

#include <algorithm>
#include <set>

namespace berth::server {

void FleetCounts::take(const fleet::NodeReport& report, const std::vector<fleet::Assigned>& assigned, TimePoint now) {
  const NodeId& node = report.node.id;
  std::map<fleet::ReplicaKey, std::uint32_t> failures;
  for (const fleet::ReplicaReport& replica : report.replicas)
    if (replica.failures > 0) failures.emplace(replica.key, replica.failures);
  if (!failures.empty()) {
    std::set<fleet::ReplicaKey> known;
    for (const fleet::Assigned& incarnation : assigned) known.insert(incarnation.key());
    std::erase_if(failures, [&](const auto& item) { return !known.contains(item.first); });
  }
  // Failures before this server's start were counted by its predecessor.
  if (const auto before = failures_.find(node); before != failures_.end()) {
    for (const auto& [key, count] : failures) {
      const auto seen = before->second.find(key);
      const std::uint32_t counted = seen == before->second.end() ? 0 : seen->second;
      if (count > counted) restarts_[{key.deployment, key.replica}] += count - counted;
    }
  }
  failures_[node] = std::move(failures);

  const fleet::ReportedLease* first = nullptr;
  for (const fleet::ReportedLease& lease : report.leases)
    if (lease.state == fleet::LeaseState::waiting && lease.place && (!first || *lease.place < *first->place))
      first = &lease;
  if (!first) {
    fronts_.erase(node);
  } else if (Front& front = fronts_[node]; front.user != first->user || front.name != first->name) {
    front = {first->user, first->name, now};
  }
}

void FleetCounts::keep_only(const store::State& state) {
  const auto has_left = [&](const auto& item) { return !state.nodes.contains(item.first); };
  std::erase_if(failures_, has_left);
  std::erase_if(fronts_, has_left);
  std::erase_if(restarts_, [&](const auto& item) {
    const auto found = state.desired.deployments.find(item.first.first);
    return found == state.desired.deployments.end() || item.first.second >= found->second.spec.replicas;
  });
}

std::uint64_t FleetCounts::restarts(const DeploymentId& deployment, std::uint32_t replica) const {
  const auto found = restarts_.find({deployment, replica});
  return found == restarts_.end() ? 0 : found->second;
}

std::optional<Duration> FleetCounts::front_time(const NodeId& node, TimePoint now) const {
  const auto found = fronts_.find(node);
  return found == fronts_.end() ? std::nullopt : std::optional(now - found->second.since);
}

}  // namespace berth::server
