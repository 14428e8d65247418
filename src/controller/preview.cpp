// Questions about a fleet that change nothing: where a project would lead in the end, and why replicas have no place.
#include <algorithm>

#include "controller/step.hpp"
#include "controller/survey.hpp"

namespace berth::controller {

// Unlike a step it counts what is to be replaced as free: by then it is gone.
Preview preview(const Input& input, const fleet::Desired& proposed) {
  const Survey survey(input, proposed);
  std::vector<DeploymentSpec> specs;
  std::vector<Assignment> staying, current;
  Preview out;
  for (const auto& [id, wanted] : proposed.deployments) specs.push_back(wanted.spec);
  for (const auto& [name, incarnations] : survey.by_replica) {
    const Incarnation* one = survey.current(name);
    if (!one) continue;
    const auto wanted = proposed.deployments.find(name.first);
    const bool is_wanted = wanted != proposed.deployments.end() && name.second < wanted->second.spec.replicas;
    const bool stays = is_wanted && one->is_right();
    (stays ? staying : current).push_back(one->assigned.place);
    if (is_wanted && !one->is_up_to_date) out.restarts.push_back(name);
  }
  out.plan = plan(specs, survey.fleet, current, proposed.egress_preference, {staying, {}, {}});
  return out;
}

deployment::Evidence why_pending(const Input& input, const Pending& pending) {
  const auto wanted = input.desired->deployments.find(pending.deployment);
  if (wanted == input.desired->deployments.end() || wanted->second.paused) return {};
  const Survey survey(input, *input.desired);
  std::set<ReplicaName> places;
  std::set<fleet::ReplicaKey> freed;
  DeploymentSpec spec = wanted->second.spec;
  const bool is_whole = pending.replicas.empty();
  for (std::uint32_t replica = 0; is_whole && replica < spec.replicas; ++replica) places.insert({spec.name, replica});
  for (const std::uint32_t replica : pending.replicas) places.insert({spec.name, replica});
  // One that is to be replaced makes room for its successor.
  for (const ReplicaName& name : places) {
    if (const Incarnation* const current = survey.current(name)) {
      freed.insert(current->assigned.key());
      spec.on_shortage = OnShortage::best_effort;
    }
  }
  const Survey::Limits limits = survey.limits({spec}, places, freed, input.memory);
  return deployment::why_pending(spec, survey.fleet, input.desired->egress_preference, limits.view());
}

}  // namespace berth::controller
