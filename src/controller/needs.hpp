// Needs: which replicas of a deployment a step places or replaces, within the limits of its rollout: with which
// revision, in which sequence, and with how many successors beside the old ones.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "controller/survey.hpp"

namespace berth::controller {

// Why a replica is placed or replaced.
enum class Cause : std::uint8_t { missing, lost_node, broken, leaving, outdated };

// What one deployment needs, found before any plan is made. Replicas are identified by index. A replica that gets a
// place is removed from `to_place` or `to_replace`; those that remain have found none.
struct Needs {
  const fleet::DesiredDeployment* wanted = nullptr;
  bool is_paused = false;
  // The spec for new incarnations: the wanted one, or, in a paused rollout, the one that the others still run.
  DeploymentSpec spec;
  std::uint64_t revision = 0;
  std::map<std::uint32_t, Cause> to_place;      // at once, without a limit
  std::map<std::uint32_t, Cause> to_replace;    // within the limits of the rollout
  std::vector<std::uint32_t> replace_sequence;  // the initial `to_replace`; replicas that do not serve come first
  std::set<std::uint32_t> may_surge;            // those in `to_replace` whose successor may run beside the old one
  std::set<std::uint32_t> awaiting_end;         // placed only when an old incarnation has ended
  std::uint32_t incarnations = 0;               // incarnations that run or may run
  std::uint32_t ready = 0;                      // replicas that serve
};

// Fills in the other fields once `wanted`, `is_paused`, `to_place`, `to_replace`, `awaiting_end` and `ready` are
// known.
void limit_rollout(const Survey& survey, const DeploymentId& id, Needs& needs);

}  // namespace berth::controller
