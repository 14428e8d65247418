// Where a project would lead in the end. Unlike a step it counts what is to be replaced as free: by then it is gone.
#include <algorithm>

#include "controller/step.hpp"
#include "controller/survey.hpp"

namespace berth::controller {

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

}  // namespace berth::controller
