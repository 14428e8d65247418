// Previews, which change nothing: where the replicas of a project would be placed, and why replicas are pending.
#include <algorithm>

#include "controller/step.hpp"
#include "controller/survey.hpp"

namespace berth::controller {
namespace {

// A rollout replaces its replicas one after another, and each replacement takes several steps. In a fleet of 200 nodes
// and 2,000 replicas the minimum takes half a second; in a small one, a rollout of a hundred replicas is simulated
// completely.
constexpr std::size_t steps_min = 20, steps_max = 1'000, work_max = 40'000;

// A copy of the fleet in which `desired` is wanted and every reachable node carries out its orders at once.
class Rehearsal {
 public:
  Rehearsal(const Input& input, const fleet::Desired& desired)
      : input_(input), desired_(desired), assigned_(input.assigned.begin(), input.assigned.end()) {
    input_.desired = &desired_;
    for (auto& [id, node] : input_.nodes) {
      if (node.report) node.report = &(reports_[id] = *node.report);
    }
  }

  // Takes steps until there is nothing left to do; returns the last one. A rollout that needs more steps is left
  // unfinished.
  Step run() {
    std::size_t replicas = input_.nodes.size() + assigned_.size();
    for (const auto& [id, wanted] : desired_.deployments) replicas += wanted.spec.replicas;
    const std::size_t steps = std::clamp(work_max / (replicas + 1), steps_min, steps_max);
    bool is_obeyed = false;
    Step last;
    for (std::size_t i = 0; i < steps; ++i) {
      input_.assigned = assigned_;
      last = step(input_);
      commit(last);
      if (last.has_actions()) {
        is_obeyed = false;
      } else if (!std::exchange(is_obeyed, true)) {
        obey();
      } else {
        break;
      }
    }
    return last;
  }

  const std::vector<fleet::Assigned>& assigned() const { return assigned_; }

 private:
  void commit(const Step& done) {
    const std::set<fleet::ReplicaKey> ended(done.forget.begin(), done.forget.end());
    const std::set<fleet::ReplicaKey> stopped(done.stop.begin(), done.stop.end());
    std::erase_if(assigned_, [&](const fleet::Assigned& replica) { return ended.contains(replica.key()); });
    for (fleet::Assigned& replica : assigned_) replica.stopping = replica.stopping || stopped.contains(replica.key());
    assigned_.insert(assigned_.end(), done.start.begin(), done.start.end());
    for (const Step::Pause& pause : done.pause) desired_.deployments.at(pause.deployment).paused = pause.reason;
    input_.memory = done.memory;
    input_.next_generation = done.next_generation;
  }

  void obey() {
    for (auto& [id, report] : reports_) {
      if (health_of(input_.nodes.at(id), input_.now) == NodeHealth::healthy) report.replicas.clear();
    }
    for (const fleet::Assigned& replica : assigned_) {
      const auto node = input_.nodes.find(replica.place.node);
      if (node == input_.nodes.end() || !node->second.report) continue;
      if (health_of(node->second, input_.now) != NodeHealth::healthy) continue;
      fleet::ReplicaReport& report = reports_.at(replica.place.node).replicas.emplace_back();
      report.key = replica.key();
      report.state = replica.stopping ? fleet::ReplicaState::gone : fleet::ReplicaState::ready;
    }
  }

  Input input_;
  fleet::Desired desired_;
  std::vector<fleet::Assigned> assigned_;
  std::map<NodeId, fleet::NodeReport> reports_;
};

// The place of each replica that `desired` contains.
std::map<ReplicaName, Assignment> places_of(const Input& input, const fleet::Desired& desired) {
  std::map<ReplicaName, Assignment> places;
  const Survey survey(input, desired);
  for (const auto& [name, incarnations] : survey.by_replica) {
    if (const Incarnation* const incarnation = survey.current(name)) places.emplace(name, incarnation->assigned.place);
  }
  return places;
}

}  // namespace

Preview preview(const Input& input, const fleet::Desired& proposed) {
  Preview out;
  const Survey survey(input, proposed);
  for (const auto& [name, incarnations] : survey.by_replica) {
    const auto wanted = proposed.deployments.find(name.first);
    const Incarnation* const incarnation = survey.current(name);
    if (incarnation && !incarnation->is_up_to_date && wanted != proposed.deployments.end() && !wanted->second.paused &&
        name.second < wanted->second.spec.replicas)
      out.restarts.push_back(name);
  }
  Rehearsal rehearsal(input, proposed);
  out.plan.pending = rehearsal.run().pending;
  Input later = input;
  later.assigned = rehearsal.assigned();
  const std::map<ReplicaName, Assignment> before = places_of(input, proposed), after = places_of(later, proposed);
  std::vector<Action> changes, starts;
  for (const auto& [name, place] : before) {
    const auto found = after.find(name);
    if (found == after.end())
      out.plan.actions.push_back({place, std::nullopt});
    else if (found->second != place)
      changes.push_back({place, found->second});
  }
  for (const auto& [name, place] : after) {
    out.plan.assignments.push_back(place);
    if (!before.contains(name)) starts.push_back({std::nullopt, place});
  }
  out.plan.actions.insert(out.plan.actions.end(), changes.begin(), changes.end());
  out.plan.actions.insert(out.plan.actions.end(), starts.begin(), starts.end());
  std::vector<DeploymentSpec> specs;
  for (const auto& [id, wanted] : proposed.deployments) specs.push_back(wanted.spec);
  out.changes = deployment::smallest_changes(out.plan, specs, survey.fleet, proposed.egress_preference);
  return out;
}

deployment::Evidence why_pending(const Input& input, const Pending& pending) {
  const auto wanted = input.desired->deployments.find(pending.deployment);
  if (wanted == input.desired->deployments.end() || wanted->second.paused) return {};
  const Survey survey(input, *input.desired);
  std::set<ReplicaName> to_place;
  std::set<fleet::ReplicaKey> freed;
  std::vector<Assignment> present;
  DeploymentSpec spec = wanted->second.spec;
  const bool is_whole = pending.replicas.empty();
  for (std::uint32_t replica = 0; is_whole && replica < spec.replicas; ++replica) to_place.insert({spec.name, replica});
  for (const std::uint32_t replica : pending.replicas) to_place.insert({spec.name, replica});
  // A replica to be replaced makes room for its successor.
  for (const ReplicaName& name : to_place) {
    if (const Incarnation* const current = survey.current(name)) {
      freed.insert(current->assigned.key());
      if (!current->is_lost && current->place != Place::unusable) present.push_back(current->assigned.place);
      spec.on_shortage = OnShortage::best_effort;
    }
  }
  const Survey::Limits limits = survey.limits({spec}, to_place, freed, input.memory);
  return deployment::why_pending(spec, survey.fleet, input.desired->egress_preference, limits.view(), present);
}

}  // namespace berth::controller
