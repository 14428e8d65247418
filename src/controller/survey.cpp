#include "controller/survey.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "deployment/job.hpp"
#include "deployment/spec_description.hpp"

namespace berth::controller {

using fleet::Assigned;
using fleet::DesiredDeployment;
using fleet::ReplicaKey;
using fleet::ReplicaReport;

std::string_view to_string(NodeHealth health) noexcept {
  switch (health) {
    case NodeHealth::healthy: return "healthy";
    case NodeHealth::suspect: return "suspect";
    case NodeHealth::lost: return "lost";
  }
  return "lost";
}

NodeHealth health_of(const NodeState& node, TimePoint now) noexcept {
  const Duration age = now - node.reported_at;
  return age < suspect_after ? NodeHealth::healthy : age < lost_after ? NodeHealth::suspect : NodeHealth::lost;
}

Duration replace_time(const DeploymentSpec& spec) noexcept {
  if (!spec.single) return std::max(spec.replace_after, suspect_after);
  return std::max({spec.replace_after, suspect_after, spec.stop_after + spec.stop_grace + std::chrono::seconds(5)});
}

const DeploymentSpec* spec_of(const DesiredDeployment& wanted, std::uint64_t revision) noexcept {
  if (revision == wanted.revision) return &wanted.spec;
  if (revision > wanted.revision || wanted.revision - revision > wanted.earlier.size()) return nullptr;
  return &wanted.earlier[wanted.revision - revision - 1];
}

bool runs_the_same(const DeploymentSpec& a, const DeploymentSpec& b) {
  return deployment::effect_of_change(a, b) != world::Effect::restart;
}

Survey::Survey(const Input& given, const fleet::Desired& wanted_now) : input(given), desired(wanted_now) {
  for (const auto& [id, state] : input.nodes) {
    if (!state.report) continue;
    NodeView view = state.report->node;
    view.id = id;
    view.intent = std::max(view.intent, state.intent);
    view.intent_reason = state.intent_reason;
    if (health_of(state, input.now) != NodeHealth::healthy) view.health = Health::lost;
    for (NodeDevice& device : view.devices) {
      const auto entry = state.devices.find(device.info.id);
      if (entry == state.devices.end()) continue;
      device.intent = std::max(device.intent, entry->second.intent);
      device.intent_reason = entry->second.reason;
    }
    fleet.nodes.push_back(std::move(view));
  }
  for (const NodeView& view : fleet.nodes) nodes_.emplace(view.id, &view);

  std::map<NodeId, std::map<ReplicaKey, const ReplicaReport*>> reports;
  for (const auto& [id, state] : input.nodes) {
    if (!state.report) continue;
    for (const ReplicaReport& report : state.report->replicas) reports[id].emplace(report.key, &report);
  }
  std::vector<const Assigned*> sorted;
  for (const Assigned& assigned : input.assigned) sorted.push_back(&assigned);
  std::sort(sorted.begin(), sorted.end(), [](const Assigned* a, const Assigned* b) { return a->key() < b->key(); });

  std::map<std::pair<DeploymentId, std::uint64_t>, bool> up_to_date;
  for (const Assigned* assigned : sorted) {
    Incarnation& incarnation = incarnations.emplace_back();
    incarnation.assigned = *assigned;
    const auto node = input.nodes.find(assigned->place.node);
    incarnation.is_node_known = node != input.nodes.end() && node->second.report && node->second.report->epoch > 0;
    incarnation.age = node == input.nodes.end() ? Duration::max() : input.now - node->second.reported_at;
    if (const auto of_node = reports.find(assigned->place.node); of_node != reports.end()) {
      const auto report = of_node->second.find(assigned->key());
      if (report != of_node->second.end()) incarnation.report = report->second;
    }
    const auto wanted = desired.deployments.find(assigned->place.deployment);
    const DeploymentSpec* runs =
        wanted == desired.deployments.end() ? nullptr : spec_of(wanted->second, assigned->revision);
    const auto [known, is_new] = up_to_date.try_emplace({assigned->place.deployment, assigned->revision}, false);
    if (is_new)
      known->second = runs && assigned->revision >= wanted->second.restart_revision.value_or(0) &&
                      runs_the_same(*runs, wanted->second.spec);
    incarnation.is_up_to_date = known->second;
    incarnation.is_paused = wanted != desired.deployments.end() && wanted->second.paused;
    incarnation.is_lost = incarnation.age >= (runs ? replace_time(*runs) : std::chrono::seconds(assigned->replace_s));
    const auto seen = input.memory.replicas.find(assigned->key());
    incarnation.is_overdue =
        seen != input.memory.replicas.end() && seen->second.end_due && input.now >= *seen->second.end_due;
    incarnation.place = place_of(*assigned, wanted == desired.deployments.end() ? nullptr : &wanted->second.spec,
                                 incarnation.is_up_to_date);
    by_replica[{assigned->place.deployment, assigned->place.replica}].push_back(&incarnation);
  }
}

const NodeView* Survey::node(const NodeId& id) const {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : found->second;
}

// Memory in use is ignored, because a running replica already has its bytes.
Place Survey::place_of(const Assigned& assigned, const DeploymentSpec* wanted, bool is_up_to_date) const {
  const NodeState* state = nullptr;
  if (const auto found = input.nodes.find(assigned.place.node); found != input.nodes.end()) state = &found->second;
  const NodeView* view = node(assigned.place.node);
  if (!state || !view) return Place::fine;  // there is no evidence against it
  const Health health = state->report->node.health;
  Place place = Place::fine;
  if (view->intent == Intent::draining) place = Place::leaving;
  if (wanted && is_up_to_date) {
    const bool is_allowed = deployment::has_labels(*view, wanted->node_selector) &&
                            deployment::tolerated(*view, wanted->tolerates) &&
                            (view->egress || !std::holds_alternative<Remote>(wanted->transport()));
    if (!is_allowed) place = Place::leaving;
  }
  if (health == Health::lost || health == Health::quarantined) return Place::unusable;
  for (const DeviceId& id : assigned.place.devices) {
    const auto device = std::find_if(view->devices.begin(), view->devices.end(),
                                     [&](const NodeDevice& candidate) { return candidate.info.id == id; });
    if (device == view->devices.end()) return Place::unusable;
    if (device->health == Health::lost || device->health == Health::quarantined) return Place::unusable;
    if (device->intent == Intent::draining) place = Place::leaving;
  }
  return place;
}

const std::vector<Incarnation*>& Survey::all_of(const ReplicaName& name) const {
  static const std::vector<Incarnation*> none;
  const auto found = by_replica.find(name);
  return found == by_replica.end() ? none : found->second;
}

Incarnation* Survey::current(const ReplicaName& name) const {
  Incarnation* best = nullptr;
  const auto rank = [](const Incarnation& incarnation) {
    return std::tuple(incarnation.is_right(), incarnation.may_stay(), incarnation.may_stay() || incarnation.is_ready(),
                      incarnation.assigned.generation);
  };
  for (Incarnation* incarnation : all_of(name)) {
    if (incarnation->is_live() && (!best || rank(*best) < rank(*incarnation))) best = incarnation;
  }
  return best;
}

Survey::Limits Survey::limits(const std::vector<DeploymentSpec>& specs, const std::set<ReplicaName>& to_place,
                              const std::set<ReplicaKey>& freed, const Memory& memory) const {
  Limits out;
  std::set<std::uint64_t> kept;  // generations
  for (const DeploymentSpec& spec : specs) {
    for (std::uint32_t replica = 0; replica < spec.replicas; ++replica) {
      const ReplicaName name{spec.name, replica};
      if (to_place.contains(name)) continue;
      const Incarnation* stays = current(name);
      if (stays) kept.insert(stays->assigned.generation);
      out.staying.push_back(stays ? stays->assigned.place : Assignment{spec.name, replica, {}, {}, 0, false});
    }
  }
  for (const Incarnation& incarnation : incarnations) {
    if (!incarnation.is_forgotten && !kept.contains(incarnation.assigned.generation) &&
        !freed.contains(incarnation.assigned.key()))
      out.occupied.push_back(incarnation.assigned.place);
  }
  for (const auto& [pair, avoided] : memory.avoided) {
    if (avoided.until > input.now) out.avoided.insert(pair);
  }
  return out;
}

Plan Survey::place(const std::vector<DeploymentSpec>& specs, const std::set<ReplicaName>& to_place,
                   const std::set<ReplicaKey>& freed, const Memory& memory) const {
  return plan(specs, fleet, {}, desired.egress_preference, limits(specs, to_place, freed, memory).view());
}

}  // namespace berth::controller
