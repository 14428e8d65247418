#include "controller/needs.hpp"

#include <algorithm>

namespace berth::controller {
namespace {

// Also counts incarnations of replicas that are no longer wanted.
void count_incarnations(const Survey& survey, const DeploymentId& id, Needs& needs) {
  for (auto it = survey.by_replica.lower_bound({id, 0}); it != survey.by_replica.end() && it->first.first == id; ++it) {
    // A lost incarnation and its successor, even if it is not placed yet, count as one.
    const Incarnation* const current = survey.current(it->first);
    const bool counts_lost = !needs.to_place.contains(it->first.second);
    for (const Incarnation* incarnation : it->second) {
      const bool counts = incarnation->is_live() ? !incarnation->is_lost || (counts_lost && incarnation == current)
                                                 : incarnation->is_ending();
      needs.incarnations += counts ? 1 : 0;
    }
  }
}

// While a rollout is paused, replicas are placed with the revision that the others still run.
void choose_revision(const Survey& survey, const DeploymentId& id, Needs& needs) {
  needs.revision = needs.wanted->revision;
  needs.spec = needs.wanted->spec;
  if (!needs.is_paused) return;
  std::uint64_t before = 0;
  for (std::uint32_t replica = 0; replica < needs.spec.replicas; ++replica) {
    const Incarnation* current = survey.current({id, replica});
    if (current && !current->is_up_to_date) before = std::max(before, current->assigned.revision);
  }
  const DeploymentSpec* spec = spec_of(*needs.wanted, before);
  if (before == 0 || !spec) return;
  needs.revision = before;
  needs.spec = *spec;
  needs.spec.replicas = needs.wanted->spec.replicas;
}

// Replicas that do not serve come first, because nothing is lost with them.
void choose_replace_sequence(const Survey& survey, const DeploymentId& id, Needs& needs) {
  for (const auto& [replica, cause] : needs.to_replace) needs.replace_sequence.push_back(replica);
  std::stable_sort(needs.replace_sequence.begin(), needs.replace_sequence.end(), [&](std::uint32_t a, std::uint32_t b) {
    return !survey.current({id, a})->may_serve() && survey.current({id, b})->may_serve();
  });
}

// The number of successors beside old replicas is limited by how many incarnations the rollout allows above the
// wanted count.
void choose_surge(Needs& needs) {
  if (needs.wanted->spec.single) return;
  const std::uint64_t most = std::uint64_t{needs.wanted->spec.replicas} + needs.wanted->spec.rollout.surge;
  const std::uint64_t taken = needs.incarnations + needs.to_place.size() + needs.awaiting_end.size();
  std::uint64_t slots = most > taken ? most - taken : 0;
  for (const std::uint32_t replica : needs.replace_sequence) {
    if (slots == 0) break;
    needs.may_surge.insert(replica);
    --slots;
  }
}

}  // namespace

void limit_rollout(const Survey& survey, const DeploymentId& id, Needs& needs) {
  count_incarnations(survey, id, needs);
  choose_revision(survey, id, needs);
  choose_replace_sequence(survey, id, needs);
  choose_surge(needs);
}

}  // namespace berth::controller
