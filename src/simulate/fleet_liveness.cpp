// The laws of FleetChecker about what must happen: everything that is wanted and fits gets a place soon, a lost
// node's replicas get new places, everything serves in the end, and no replica moves more often than it has a cause.
#include <algorithm>

#include "simulate/fleet_checker.hpp"

namespace berth::simulate {
namespace {

using namespace std::chrono_literals;
using fleet::ReplicaState;

// A replica that fits has a place within this time. A server checks about every 600 ms.
constexpr Duration placed_within = 5s;
// A report of a node, sent every 2 s, arrives within this time, except for lost messages.
constexpr Duration reports_apart = 4s;
// A node's replicas may have been replaced if it was silent for this long, even if it reports again a moment later.
constexpr Duration silent_after = 5s;
// Servers may learn about a refusal this much later than the checker.
constexpr Duration refusal_known_after = 3s;
constexpr Duration avoided_max = 60s;

}  // namespace

void FleetChecker::exempt(const char* name, std::uint64_t percent_max, bool is_used) {
  auto found = std::find_if(exemptions_.begin(), exemptions_.end(),
                            [&](const auto& exemption) { return exemption.name == name; });
  if (found == exemptions_.end()) found = exemptions_.insert(found, {name, percent_max, 0, 0});
  ++found->chances;
  found->uses += is_used ? 1 : 0;
}

void FleetChecker::add_cause(const NodeId& node) {
  const auto list = state_.assignments.find(node);
  if (list == state_.assignments.end()) return;
  for (const fleet::Assigned& replica : list->second.assigned)
    ++causes_[{replica.place.deployment, replica.place.replica}];
}

void FleetChecker::note_causes(const store::State& before) {
  for (const auto& [id, wanted] : state_.desired.deployments) {
    const auto earlier = before.desired.deployments.find(id);
    if (state_.epoch == before.epoch && earlier != before.desired.deployments.end() && earlier->second == wanted)
      continue;
    for (std::uint32_t replica = 0; replica < wanted.spec.replicas; ++replica) ++causes_[{id, replica}];
  }
  for (const auto& [id, node] : before.nodes) {
    const auto now = state_.nodes.find(id);
    if (now != state_.nodes.end() && now->second.intent == node.intent && now->second.devices == node.devices) continue;
    add_cause(id);
    const auto list = before.assignments.find(id);
    if (now != state_.nodes.end() || list == before.assignments.end()) continue;
    for (const fleet::Assigned& replica : list->second.assigned)
      ++causes_[{replica.place.deployment, replica.place.replica}];
  }
}

// As docs/guide/deployment.md says. A `single` replica must have ended by itself by then.
Duration FleetChecker::replace_time(const fleet::Assigned& replica) const {
  const DeploymentSpec* spec = spec_of(replica);
  if (!spec) return std::chrono::seconds(replica.replace_s);
  const Duration longest = std::max<Duration>(spec->replace_after, 6s);
  return spec->single ? std::max<Duration>(longest, spec->stop_after + spec->stop_grace + 5s) : longest;
}

bool FleetChecker::is_silent(TimePoint now, const fleet::Assigned& replica, TimePoint led_since) const {
  const auto known = known_.find(replica.place.node);
  return now - (known == known_.end() ? led_since : std::max(led_since, known->second.at)) >= replace_time(replica);
}

bool FleetChecker::is_in_need(TimePoint now, const ReplicaName& name, bool is_single) const {
  const bool awaits_end = is_single || taken_away_.contains(name);
  const auto& all = all_of(name);
  return std::all_of(all.begin(), all.end(), [&](const fleet::Assigned* replica) {
    return is_silent(now, *replica, led_since_) || (replica->stopping && !awaits_end);
  });
}

Room FleetChecker::room_of(TimePoint now, Duration age_max, std::uint64_t without) const {
  Room room;
  for (const auto& [id, node] : state_.nodes) {
    const auto known = known_.find(id);
    if (known == known_.end() || now - known->second.at > age_max || node.intent != Intent::in_service) continue;
    room.add_node(known->second.report.node, node);
  }
  for (const auto& [name, all] : by_replica_) {
    for (const fleet::Assigned* replica : all) {
      if (replica->generation != without) room.charge(replica->place);
    }
  }
  return room;
}

std::vector<std::uint32_t> FleetChecker::placeable(TimePoint now, const fleet::DesiredDeployment& wanted,
                                                   const std::vector<std::uint32_t>& in_need, Room room,
                                                   bool counts_refusals) {
  // If a rollout is paused, the others may run the previous revision.
  std::vector<const DeploymentSpec*> specs{&wanted.spec};
  for (const DeploymentSpec& spec : wanted.earlier) {
    if (wanted.paused) specs.push_back(&spec);
  }
  const bool is_together = wanted.spec.on_shortage == OnShortage::all;
  const auto is_avoided = [&](const NodeId& node) {
    const auto avoided = avoided_.find({wanted.spec.name, node});
    return avoided != avoided_.end() && now < avoided->second.until + refusal_known_after;
  };
  std::vector<std::uint32_t> out;
  for (const std::uint32_t replica : in_need) {
    std::optional<Assignment> place;
    for (const DeploymentSpec* spec : specs) {
      place = room.find(*spec, [&](const NodeId& node) { return !counts_refusals || !is_avoided(node); });
      if (!place) break;
    }
    if (counts_refusals)
      exempt("every node with room has recently refused the deployment", 3,
             !place && room.find(wanted.spec, [](const NodeId&) { return true; }).has_value());
    if (!place && is_together) return {};
    if (!place) break;  // the others do not fit either
    if (is_together) room.charge(*place);
    out.push_back(replica);
  }
  return out;
}

void FleetChecker::watch(TimePoint now, std::optional<std::uint64_t> epoch) {
  for (const auto& [id, node] : state_.nodes) {
    const auto known = known_.find(id);
    if (known != known_.end() && now - known->second.at <= silent_after) {
      silent_.erase(id);
    } else if (silent_.insert(id).second) {
      add_cause(id);
    }
  }
  const bool is_led = epoch && *epoch == state_.epoch;
  exempt(servers_fail_ ? "no server leads and reaches the store, in fleets whose servers fail" : "no server leads",
         servers_fail_ ? 25 : 1, !is_led);
  if (is_led && watched_epoch_ != epoch) led_since_ = now;
  if (is_led) watched_epoch_ = epoch;
  const std::map<ReplicaName, TimePoint> before = std::exchange(due_, {});
  if (!is_led) return;
  std::optional<Room> room;
  for (const auto& [id, wanted] : state_.desired.deployments) {
    std::vector<std::uint32_t> in_need;
    for (std::uint32_t replica = 0; replica < wanted.spec.replicas; ++replica) {
      if (is_in_need(now, {id, replica}, wanted.spec.single)) in_need.push_back(replica);
    }
    if (in_need.empty()) continue;
    if (!room) room = room_of(now, reports_apart);
    for (const std::uint32_t replica : placeable(now, wanted, in_need, *room, true)) {
      const auto since = before.find({id, replica});
      due_[{id, replica}] = since == before.end() ? now : since->second;
      expect(now, now - due_[{id, replica}] <= placed_within,
             id.text() + "/" + std::to_string(replica) + " fits but has no place");
    }
  }
}

void FleetChecker::check_rest(TimePoint now, const std::set<fleet::ReplicaKey>& ready) {
  const Room room = room_of(now, reports_apart);
  std::set<std::uint64_t> assigned;
  for (const auto& [name, all] : by_replica_) {
    for (const fleet::Assigned* replica : all) {
      assigned.insert(replica->generation);
      const std::string text = to_string(replica->key());
      expect(now, !replica->stopping, text + " has not stopped on " + replica->place.node.text());
      const auto wanted = state_.desired.deployments.find(name.first);
      expect(now, wanted != state_.desired.deployments.end() && name.second < wanted->second.spec.replicas,
             text + " is not wanted");
      const bool is_known = known_.contains(replica->place.node);
      expect(now, is_known, text + " is on " + replica->place.node.text() + ", which has not reported in the end");
      if (wanted == state_.desired.deployments.end() || !is_known) continue;
      // A replica with an earlier, possibly bad, revision stays if its successor fits nowhere.
      const bool is_stuck =
          replica->revision != wanted->second.revision &&
          !room_of(now, reports_apart, replica->generation).find(wanted->second.spec, [](const NodeId&) {
            return true;
          });
      exempt("an earlier revision still runs in the end, because its successor fits nowhere", 2, is_stuck);
      is_stuck_ = is_stuck_ || is_stuck;
      expect(now, is_stuck || ready.contains(replica->key()),
             text + " does not serve on " + replica->place.node.text());
      const DeploymentSpec& spec = wanted->second.spec;
      const bool is_allowed = is_allowed_on(spec, known_.at(replica->place.node).report.node);
      const auto serving =
          std::count_if(ready.begin(), ready.end(), [&](const auto& key) { return key.deployment == name.first; });
      // Replicas that fit nowhere have used up the allowed number of missing ones, and no successor may run beside
      // the old one.
      const bool is_held =
          !is_allowed && spec.rollout.surge == 0 &&
          static_cast<std::uint64_t>(serving) + std::max(1u, spec.rollout.unavailable) <= spec.replicas;
      exempt("a replica stays where it is forbidden, because its deployment cannot lose another", 2, is_held);
      expect(now, is_allowed || is_held || !room.find(spec, [](const NodeId&) { return true; }),
             text + " stays on " + replica->place.node.text() + ", where its labels, taints or egress forbid it");
    }
  }
  for (const auto& [id, wanted] : state_.desired.deployments) {
    std::vector<std::uint32_t> in_need;
    for (std::uint32_t replica = 0; replica < wanted.spec.replicas; ++replica) {
      const auto& all = all_of({id, replica});
      const bool serves = std::any_of(all.begin(), all.end(),
                                      [&](const auto* incarnation) { return ready.contains(incarnation->key()); });
      exempt("a replica has no place in the end, because nothing fits", 30, !serves);
      if (!serves && all.empty()) in_need.push_back(replica);
    }
    for (const std::uint32_t replica : placeable(now, wanted, in_need, room, false))
      expect(now, false, id.text() + "/" + std::to_string(replica) + " fits but does not serve in the end");
  }
  for (const auto& [name, running] : processes_) {
    for (const Process& process : running)
      expect(now, assigned.contains(process.key.generation),
             to_string(process.key) + " runs on " + process.node.text() + " and is not assigned");
    expect(now, running.size() <= 1, name.first.text() + "/" + std::to_string(name.second) + " runs twice");
  }
  for (const auto& [id, requests] : requests_) {
    const auto wanted = state_.desired.deployments.find(id);
    const bool is_there = wanted != state_.desired.deployments.end();
    const bool is_asked_for = std::any_of(requests.begin(), requests.end(), [&](const Request& request) {
      return request.spec.has_value() == is_there && (!is_there || *request.spec == wanted->second.spec);
    });
    expect(now, is_asked_for, "an accepted change of " + id.text() + " is lost");
  }
}

}  // namespace berth::simulate
