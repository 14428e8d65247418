// One deployment during planning, and what the passes of a plan need to know about it. plan.cpp
// places it; shortage.cpp explains why it could not be placed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "berth/deployment.hpp"
#include "berth/placement.hpp"
#include "deployment/evidence.hpp"
#include "deployment/planned_fleet.hpp"

namespace berth::deployment {

struct PlanJob {
  const DeploymentSpec* spec = nullptr;
  Transport transport;
  Requirements requirements;
  const Policy* policy = nullptr;  // null unless the transport is LocalGpu
  std::uint32_t want = 0;          // GPUs per replica
  bool exclusive = false;
  std::vector<NodeId> preferred;  // sorted; remote only

  std::optional<Reason> blocked;                     // nothing new is placed
  std::map<std::uint32_t, Assignment> held;          // by replica, charged
  std::set<std::uint32_t> leaving;                   // the replicas in a draining place
  std::map<std::size_t, std::uint32_t> replicas_on;  // replicas per node position
  std::set<std::size_t> avoided;                     // positions of nodes that accept no new replicas of it
  std::vector<Pending> pending;
  Evidence* evidence = nullptr;  // filled if something stays pending

  bool on_gpus() const { return std::holds_alternative<LocalGpu>(transport); }
  bool remote() const { return std::holds_alternative<Remote>(transport); }
  std::uint32_t count_on(std::size_t node) const {
    const auto found = replicas_on.find(node);
    return found == replicas_on.end() ? 0 : found->second;
  }
};

inline std::string gpus_text(std::uint32_t count) { return std::to_string(count) + (count == 1 ? " GPU" : " GPUs"); }

inline Reason reason_of(ReasonKind kind, std::string text) { return {kind, std::move(text), {}, 0, {}, 0}; }

inline bool has_labels(const NodeView& node, const std::map<std::string, std::string>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& label) {
    const auto found = node.labels.find(label.first);
    return found != node.labels.end() && found->second == label.second;
  });
}

inline bool tolerated(const NodeView& node, const std::set<std::string>& tolerates) {
  return std::includes(tolerates.begin(), tolerates.end(), node.taints.begin(), node.taints.end());
}

// Whether replicas of this plan leave the GPU free for the job.
inline bool is_free_for(const PlanJob& job, const PlannedNode& node, std::size_t gpu) {
  return !node.held_exclusively[gpu] && !(job.exclusive && node.gpus[gpu].in_flight > 0);
}

// Why one more replica cannot be placed: the first limit that no node passes, with the node that
// came closest.
Reason shortage(const PlanJob& job, const PlannedFleet& planned);

// What each limit leaves, and what each node lacks.
void add_evidence(const PlanJob& job, const PlannedFleet& planned, Evidence& evidence);

// plan(), with evidence about the first spec if requested.
Plan make_plan(std::span<const DeploymentSpec> specs, const Fleet& fleet, std::span<const Assignment> current,
               const EgressPreference& preference, const PlanLimits& limits, Evidence* evidence);

}  // namespace berth::deployment
