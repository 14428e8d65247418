// Needs: which replicas of a deployment a step places or replaces, and what its rollout allows of that: with which
// revision, in which sequence, and how many successors run beside the old ones.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "controller/survey.hpp"

namespace berth::controller {

// Why a replica is placed anew.
enum class Cause : std::uint8_t { missing, lost_node, broken, leaving, outdated };

// What one deployment needs, found before any plan is made. Replicas are meant by their index. A replica that gets a
// place leaves `to_place` and `to_replace`: what is left in them has found none.
struct Needs {
  const fleet::DesiredDeployment* wanted = nullptr;
  bool is_paused = false;
  // What replicas are placed with: the wanted spec, or, in a paused rollout, the one that the others still run.
  DeploymentSpec spec;
  std::uint64_t revision = 0;
  std::map<std::uint32_t, Cause> to_place;      // at once, without a limit
  std::map<std::uint32_t, Cause> to_replace;    // within the limits of the rollout
  std::vector<std::uint32_t> replace_sequence;  // `to_replace` as it was found; those that do not serve first
  std::set<std::uint32_t> may_surge;            // of `to_replace`: the successor may run beside the old one
  std::set<std::uint32_t> awaiting_end;         // placed only when an old incarnation has ended
  std::uint32_t incarnations = 0;               // that run or may run
  std::uint32_t ready = 0;                      // replicas that serve
};

// Fills in the rest where `wanted`, `is_paused`, `to_place`, `to_replace`, `awaiting_end` and `ready` are known.
void limit_rollout(const Survey& survey, const DeploymentId& id, Needs& needs);

}  // namespace berth::controller
