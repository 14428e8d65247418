// Survey: the state of a fleet as one step of the controller sees it. It joins the assignments with the nodes'
// reports, collects what is known about every incarnation and its place, and keeps the step's decisions, so that a
// plan sees them. It does not decide anything itself.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/step.hpp"

namespace berth::controller {

enum class Place : std::uint8_t {
  fine,
  leaving,   // draining, or the spec no longer allows the node
  unusable,  // a device is gone, lost or quarantined
};

struct Incarnation {
  fleet::Assigned assigned;
  const fleet::ReplicaReport* report = nullptr;  // null: its node does not report it
  bool is_node_known = false;                    // its node has reported what it runs
  Duration age{};                                // age of the last report of its node
  bool is_lost = false;                          // its node has been silent long enough for it to be replaced
  bool is_up_to_date = false;                    // it runs the wanted revision
  bool is_paused = false;                        // whether the rollout of its deployment is paused
  Place place = Place::fine;
  bool is_forgotten = false;
  bool is_overdue = false;  // it was told to stop, and its time to do so is over

  // It runs the wanted revision in a place where it may stay.
  bool is_right() const { return is_up_to_date && may_stay(); }
  // Also true with an earlier revision if the rollout is paused, because it is not replaced then.
  bool may_stay() const { return (is_up_to_date || is_paused) && place == Place::fine && !is_lost; }
  bool is_live() const { return !is_forgotten && !assigned.stopping; }
  // It was told to stop, and will probably end soon.
  bool is_ending() const { return !is_forgotten && assigned.stopping && !is_overdue && age < unanswered_after; }
  bool is_in(fleet::ReplicaState state) const { return report && report->state == state; }
  // It is serving, as far as is known now.
  bool is_ready() const { return is_in(fleet::ReplicaState::ready) && age < suspect_after; }
  // Served before, and does not now: its readiness probe fails, or its node is silent.
  bool was_ready() const {
    return is_in(fleet::ReplicaState::unready) || (is_in(fleet::ReplicaState::ready) && !is_ready());
  }
  // It may be serving for all we know, because its node has not reported recently.
  bool may_serve() const { return is_ready() || !is_node_known || age >= suspect_after; }
  std::uint32_t failures() const { return report ? report->failures : 0; }
};

class Survey {
 public:
  explicit Survey(const Input& input, const fleet::Desired& desired);

  const Input& input;
  const fleet::Desired& desired;
  Fleet fleet;  // for plans: intents joined, silent nodes lost

  std::deque<Incarnation> incarnations;  // by key, then those that this step adds
  std::map<ReplicaName, std::vector<Incarnation*>> by_replica;

  // The live one that stays: the newest of those that are right, otherwise of those that may stay, otherwise of
  // those that serve, otherwise of all. Null: none is alive.
  Incarnation* current(const ReplicaName& name) const;
  // All incarnations of the replica that are not forgotten.
  const std::vector<Incarnation*>& all_of(const ReplicaName& name) const;

  const NodeView* node(const NodeId& id) const;
  // A plan of `specs` in which `to_place` get places and all other replicas stay where they are. The devices of `freed`
  // count as free.
  Plan place(const std::vector<DeploymentSpec>& specs, const std::set<ReplicaName>& to_place,
             const std::set<fleet::ReplicaKey>& freed, const Memory& memory) const;
  // What such a plan has to leave as it is.
  struct Limits {
    std::vector<Assignment> staying, occupied;
    std::set<std::pair<DeploymentId, NodeId>> avoided;
    PlanLimits view() const { return {staying, occupied, avoided}; }
  };
  Limits limits(const std::vector<DeploymentSpec>& specs, const std::set<ReplicaName>& to_place,
                const std::set<fleet::ReplicaKey>& freed, const Memory& memory) const;

 private:
  Place place_of(const fleet::Assigned& assigned, const DeploymentSpec* wanted, bool is_up_to_date) const;
  std::map<NodeId, const NodeView*> nodes_;
};

}  // namespace berth::controller
