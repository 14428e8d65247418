// The laws that hold at every commit, report and process. Those about what must happen in time are in
// fleet_liveness.cpp.
#include "simulate/fleet_checker.hpp"

#include <algorithm>

namespace berth::simulate {
namespace {

using namespace std::chrono_literals;
using fleet::ReplicaState;

std::string at(TimePoint now) {
  return "at " + std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count()) +
         " ms: ";
}

// A node that is silent for longer gets no new replicas, and its last report no longer counts.
constexpr Duration fresh_for = 6s;
// A replica without a readiness probe is ready when it has run for this long.
constexpr Duration settled_after = 2s;
// Agents probe every 2 s and check twice a second; a killed process is gone soon.
constexpr Duration asked_apart = 4s;
// A report is sent every 2 s and takes at most 8 s.
constexpr Duration oldest_report = 12s;

std::set<std::uint64_t> generations_of(const store::State& state) {
  std::set<std::uint64_t> out;
  for (const auto& [node, list] : state.assignments) {
    for (const fleet::Assigned& replica : list.assigned) out.insert(replica.generation);
  }
  return out;
}

bool is_live(const fleet::Assigned* replica) { return !replica->stopping; }

}  // namespace

void FleetChecker::expect(TimePoint now, bool holds, const std::string& law) {
  if (!holds && violations_.size() < 10) violations_.push_back(at(now) + law);
}

void FleetChecker::add_device(const NodeId& node, const DeviceId& device, std::uint64_t memory_bytes) {
  bytes_[{node, device}] = memory_bytes;
}

void FleetChecker::decided(TimePoint now, const std::string& call, std::optional<std::uint64_t> known,
                           std::uint64_t made) {
  // A call may commit several times; it knows its own commits.
  expect(now, !known || call == last_call_ || *known >= last_change_,
         call + " committed a decision based on an outdated state");
  last_call_ = call;
  last_change_ = made;
}

const std::vector<const fleet::Assigned*>& FleetChecker::all_of(const ReplicaName& name) const {
  static const std::vector<const fleet::Assigned*> none;
  const auto found = by_replica_.find(name);
  return found == by_replica_.end() ? none : found->second;
}

const DeploymentSpec* FleetChecker::spec_of(const fleet::Assigned& replica) const {
  const auto found = state_.desired.deployments.find(replica.place.deployment);
  if (found == state_.desired.deployments.end()) return nullptr;
  const fleet::DesiredDeployment& wanted = found->second;
  if (replica.revision == wanted.revision) return &wanted.spec;
  const std::uint64_t back = wanted.revision - replica.revision;
  return replica.revision < wanted.revision && back <= wanted.earlier.size() ? &wanted.earlier[back - 1] : nullptr;
}

const fleet::ReplicaReport* FleetChecker::report_of(const fleet::Assigned& replica) const {
  const auto known = known_.find(replica.place.node);
  if (known == known_.end()) return nullptr;
  for (const fleet::ReplicaReport& report : known->second.report.replicas) {
    if (report.key == replica.key()) return &report;
  }
  return nullptr;
}

bool FleetChecker::has_fresh_report(const NodeId& node, TimePoint when) const {
  const auto known = known_.find(node);
  return known != known_.end() && when < known->second.at + fresh_for;
}

bool FleetChecker::is_known_ready(const fleet::Assigned& replica, TimePoint when) const {
  const fleet::ReplicaReport* report = report_of(replica);
  return report && report->state == ReplicaState::ready && has_fresh_report(replica.place.node, when);
}

// Also true if nothing is known: the server has just started, or the node is silent.
bool FleetChecker::may_serve(const fleet::Assigned& replica, TimePoint when) const {
  const auto known = known_.find(replica.place.node);
  if (known == known_.end()) return true;
  const fleet::ReplicaReport* report = report_of(replica);
  if (report && report->state == ReplicaState::backing_off) return false;
  if (report && report->state == ReplicaState::ready) return true;
  return known->second.report.epoch == 0 || !has_fresh_report(replica.place.node, when);
}

void FleetChecker::committed(TimePoint now, TimePoint call_began, store::State state, bool is_cut_off) {
  const store::State before = std::exchange(state_, std::move(state));
  const ByReplica replicas_before = std::exchange(by_replica_, {});
  for (const auto& [node, list] : state_.assignments) {
    for (const fleet::Assigned& replica : list.assigned)
      by_replica_[{replica.place.deployment, replica.place.replica}].push_back(&replica);
  }
  if (state_.epoch != before.epoch) {
    epoch_began_ = now;
    known_.clear();
    avoided_.clear();
    taken_away_.clear();
    returning_.clear();
  }
  for (const auto& [name, all] : replicas_before) {
    if (!by_replica_.contains(name) && taken_away_.contains(name)) returning_.insert(name);
  }
  std::set<std::uint64_t> started = generations_of(state_);
  for (const std::uint64_t generation : generations_of(before)) started.erase(generation);
  starts_ += started.size();

  note_causes(before);
  note_refusals(call_began, before);
  for (const auto& [node, list] : state_.assignments) {
    for (const fleet::Assigned& replica : list.assigned) {
      if (started.contains(replica.generation)) check_start(now, call_began, replica);
    }
  }
  if (!started.empty()) highest_ = std::max(highest_, *started.rbegin());
  check_intents(now);
  check_stops(now, call_began, started);
  exempt("new replicas may start apart, because their server failed during a change with several transactions", 1,
         is_cut_off);
  if (!is_cut_off) check_together(now, replicas_before, started);
  if (!started.empty()) returning_.clear();
  check_devices(now);
  check_surge(now, replicas_before);
}

// An incarnation matches its spec, in a place that accepts it, as far as its server knows.
void FleetChecker::check_start(TimePoint now, TimePoint call_began, const fleet::Assigned& assigned) {
  const std::string name = to_string(assigned.key());
  const ReplicaName replica{assigned.place.deployment, assigned.place.replica};
  expect(now, assigned.generation > highest_, name + " has a generation that was used before");
  const auto wanted = state_.desired.deployments.find(assigned.place.deployment);
  expect(now, wanted != state_.desired.deployments.end() && assigned.place.replica < wanted->second.spec.replicas,
         name + " was started by a decision based on an outdated state: it is not wanted");
  const auto node = state_.nodes.find(assigned.place.node);
  const bool is_in_service = node != state_.nodes.end() && node->second.intent == Intent::in_service;
  expect(now, is_in_service,
         name + " was started by a decision based on an outdated state: its node is not in service");
  taken_away_.erase(replica);
  due_.erase(replica);
  // A place may be chosen while its rollout waits for the store, so its cause may be recorded a moment later.
  expect(now, ++starts_of_[replica] <= causes_[replica] + 1,
         name + " is the " + std::to_string(starts_of_[replica]) + "th incarnation, for " +
             std::to_string(causes_[replica]) + " causes");

  const DeploymentSpec* spec = spec_of(assigned);
  expect(now, spec != nullptr, name + " runs a revision that is not known");
  if (!spec || !is_in_service) return;
  facts_[assigned.generation] = {spec->single, spec->readiness.has_value(), {}};
  if (spec->readiness && spec->unready_within)
    facts_[assigned.generation].unready_max = *spec->unready_within + spec->stop_grace + asked_apart;
  const std::string place = name + " on " + assigned.place.node.text() + " ";
  const bool is_remote = std::holds_alternative<Remote>(spec->transport());
  expect(now, assigned.place.devices.size() == spec->gpus_per_replica(),
         place + "has a different number of devices than requested");
  expect(now,
         std::set(assigned.place.devices.begin(), assigned.place.devices.end()).size() == assigned.place.devices.size(),
         place + "has a device twice");
  expect(now, assigned.place.memory_bytes == (is_remote ? 0 : spec->memory_bytes),
         place + "has a different amount of memory than requested");
  expect(now, assigned.place.exclusive == (spec->gpus_per_replica() > 0 && spec->exclusive),
         place + "shares its devices differently than requested");
  expect(now, has_fresh_report(assigned.place.node, call_began), place + "was placed on a node that is silent");
  const auto known = known_.find(assigned.place.node);
  if (known == known_.end()) return;
  const NodeView& view = known->second.report.node;
  expect(now, is_allowed_on(*spec, view), place + "was placed where its labels, taints or egress forbid it");
  for (const DeviceId& id : assigned.place.devices) {
    const auto device = std::find_if(view.devices.begin(), view.devices.end(),
                                     [&](const NodeDevice& other) { return other.info.id == id; });
    expect(now, device != view.devices.end(), place + "has a device of another node: " + id.text());
    if (device == view.devices.end()) continue;
    expect(now, device->health == Health::healthy, place + "has a device that is not healthy: " + id.text());
    expect(now, !device->held_exclusively, place + "has a device that others hold: " + id.text());
    expect(now, !node->second.devices.contains(id), place + "has a device that is not in service: " + id.text());
  }
  const auto on_its_node = [&](const auto& entry) {
    if (entry.first.first != assigned.place.deployment) return false;
    return std::any_of(entry.second.begin(), entry.second.end(), [&](const fleet::Assigned* other) {
      return other->generation != assigned.generation && other->place.node == assigned.place.node;
    });
  };
  expect(now, spec->spread != Spread::one_per_node || std::none_of(by_replica_.begin(), by_replica_.end(), on_its_node),
         place + "shares its node with another one, although one per node is required");
  // A server forgets refusals when it ends, or after a commit that seems to have failed.
  const auto avoided = avoided_.find({assigned.place.deployment, assigned.place.node});
  if (avoided == avoided_.end()) return;
  const bool is_too_soon = now < avoided->second.until;
  if (servers_fail_)
    exempt("a node was tried again too soon after a refusal, because its server failed", 15, is_too_soon);
  expect(now, servers_fail_ || !is_too_soon,
         place + "was placed too soon on a node that has refused it " + std::to_string(avoided->second.refusals) +
             " times");
}

// A node that refuses a deployment is avoided for 1 s, 2 s, 4 s, ... 60 s.
void FleetChecker::note_refusals(TimePoint call_began, const store::State& before) {
  const std::set<std::uint64_t> now = generations_of(state_);
  for (const auto& [node, list] : before.assignments) {
    for (const fleet::Assigned& replica : list.assigned) {
      const fleet::ReplicaReport* report = report_of(replica);
      if (now.contains(replica.generation) || replica.stopping || !report || report->state != ReplicaState::refused)
        continue;
      Avoided& avoided = avoided_[{replica.place.deployment, node}];
      avoided.until = call_began + std::min<Duration>(1s * (1u << std::min(avoided.refusals, 6u)), 60s);
      ++avoided.refusals;
    }
  }
  std::erase_if(avoided_, [&](const auto& entry) {
    return !state_.desired.deployments.contains(entry.first.first) || !state_.nodes.contains(entry.first.second);
  });
}

void FleetChecker::check_intents(TimePoint now) {
  std::map<NodeId, Intent> intents;
  for (const auto& [id, node] : state_.nodes) {
    intents.emplace(id, node.intent);
    const auto before = intents_.find(id);
    expect(now, before == intents_.end() || before->second == node.intent || asked_intents_.contains({id, node.intent}),
           "node " + id.text() + " is " + std::string(to_string(node.intent)) + ", which no operator has requested");
  }
  intents_ = std::move(intents);
}

// A wanted replica that may serve is stopped only when a successor serves, when its node is lost and another node
// runs it, or as far as the rollout allows fewer replicas.
void FleetChecker::check_stops(TimePoint now, TimePoint call_began, const std::set<std::uint64_t>& started) {
  std::map<DeploymentId, std::uint32_t> taken_away;
  for (const auto& [name, all] : by_replica_) {
    for (const fleet::Assigned* replica : all) {
      if (!replica->stopping || !stopping_.insert(replica->generation).second) continue;
      const auto wanted = state_.desired.deployments.find(name.first);
      if (wanted == state_.desired.deployments.end() || name.second >= wanted->second.spec.replicas) continue;
      const bool has_successor = std::any_of(all.begin(), all.end(), [&](const fleet::Assigned* other) {
        return is_live(other) && is_known_ready(*other, call_began);
      });
      const bool is_moved =
          is_silent(now, *replica, epoch_began_) && std::any_of(all.begin(), all.end(), [&](const auto* other) {
            return is_live(other) &&
                   (started.contains(other->generation) || has_fresh_report(other->place.node, call_began));
          });
      const bool has_another = std::any_of(all.begin(), all.end(), [&](const auto* other) { return is_live(other); });
      if (!has_another) taken_away_.insert(name);
      if (!may_serve(*replica, call_began)) continue;
      exempt("an incarnation was stopped on a silent node, without a successor that serves", 60,
             is_moved && !has_successor);
      if (!has_successor && !is_moved) ++taken_away[name.first];
    }
  }
  for (const auto& [id, count] : taken_away) {
    const DeploymentSpec& spec = state_.desired.deployments.at(id).spec;
    std::uint32_t ready = 0;
    for (std::uint32_t replica = 0; replica < spec.replicas; ++replica) {
      const auto& all = all_of({id, replica});
      ready += std::any_of(all.begin(), all.end(), [&](const fleet::Assigned* assigned) {
        return is_live(assigned) && is_known_ready(*assigned, call_began);
      });
    }
    const std::uint32_t unavailable = std::max(spec.rollout.unavailable, spec.single ? 1u : 0u);
    expect(now, ready + unavailable >= spec.replicas,
           id.text() + " loses " + std::to_string(count) + " replicas without a successor that serves and keeps " +
               std::to_string(ready) + " of " + std::to_string(spec.replicas) + ", where " +
               std::to_string(unavailable) + " may be missing");
  }
}

// New replicas of an all-or-nothing deployment start together.
void FleetChecker::check_together(TimePoint now, const ByReplica& before, const std::set<std::uint64_t>& started) {
  for (const auto& [id, wanted] : state_.desired.deployments) {
    if (started.empty() || wanted.spec.on_shortage != OnShortage::all) continue;
    std::uint32_t begun = 0, left = 0;
    for (std::uint32_t replica = 0; replica < wanted.spec.replicas; ++replica) {
      const auto& all = all_of({id, replica});
      const auto earlier = before.find({id, replica});
      // Replaced replicas, and those stopped to make room, do not wait for others; refused ones count as new again.
      const bool is_returning = returning_.contains({id, replica});
      exempt("a replica that was refused or made room returns without waiting for others", 1, is_returning);
      if (is_returning) continue;
      const auto is_replaced = [&](const fleet::Assigned* old) {
        return old->stopping || std::any_of(all.begin(), all.end(), [&](const fleet::Assigned* assigned) {
                 return assigned->generation == old->generation;
               });
      };
      if (earlier != before.end() && std::any_of(earlier->second.begin(), earlier->second.end(), is_replaced)) continue;
      const bool is_begun = std::any_of(all.begin(), all.end(),
                                        [&](const auto* assigned) { return started.contains(assigned->generation); });
      ++(is_begun ? begun : left);
    }
    expect(now, begun == 0 || left == 0,
           id.text() + " starts all replicas together or none, and " + std::to_string(begun) + " began without " +
               std::to_string(left) + " others");
  }
}

// Counts every incarnation that is not forgotten, because it may still run.
void FleetChecker::check_devices(TimePoint now) {
  std::map<std::pair<NodeId, DeviceId>, std::vector<const fleet::Assigned*>> holders;
  for (const auto& [name, all] : by_replica_) {
    for (const fleet::Assigned* replica : all) {
      for (const DeviceId& id : replica->place.devices) holders[{replica->place.node, id}].push_back(replica);
    }
  }
  for (const auto& [device, held] : holders) {
    std::uint64_t bytes = 0;
    bool is_exclusive = false;
    for (const fleet::Assigned* replica : held) {
      bytes += replica->place.memory_bytes;
      is_exclusive = is_exclusive || replica->place.exclusive;
    }
    expect(now, !is_exclusive || held.size() == 1,
           "device " + device.second.text() + " of " + device.first.text() +
               " is exclusive and promised twice, also to " + to_string(held.back()->key()));
    expect(now, bytes <= bytes_[device],
           "device " + device.second.text() + " of " + device.first.text() + " is promised beyond its bytes");
  }
}

void FleetChecker::check_surge(TimePoint now, const ByReplica& before) {
  std::map<DeploymentId, std::uint32_t> more;
  std::set<DeploymentId> added;  // the surge may have been lowered since: only a commit that adds to it is wrong
  for (const auto& [name, all] : by_replica_) {
    const auto wanted = state_.desired.deployments.find(name.first);
    if (wanted == state_.desired.deployments.end() || name.second >= wanted->second.spec.replicas) continue;
    // Incarnations on a lost node count as ended.
    const auto counts = [&](const fleet::Assigned* replica) {
      return is_live(replica) && !is_silent(now, *replica, epoch_began_);
    };
    const auto live = std::count_if(all.begin(), all.end(), counts);
    if (live <= 1) continue;
    more[name.first] += static_cast<std::uint32_t>(live - 1);
    const auto earlier = before.find(name);
    if (earlier == before.end() || live > std::count_if(earlier->second.begin(), earlier->second.end(), counts))
      added.insert(name.first);
  }
  for (const DeploymentId& id : added)
    expect(now, more[id] <= state_.desired.deployments.at(id).spec.rollout.surge,
           id.text() + " has " + std::to_string(more[id]) + " replicas more than wanted, beyond its surge");
}

void FleetChecker::began(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key) {
  std::vector<Process>& running = processes_[{key.deployment, key.replica}];
  expect(now, facts_.contains(key.generation), to_string(key) + " was started on " + node.text() + " without an order");
  for (const Process& other : running) {
    expect(now, other.key != key, to_string(key) + " was started twice on " + node.text());
    expect(now, !(facts_[key.generation].is_single && facts_[other.key.generation].is_single),
           "single " + to_string(key) + " began on " + node.text() + " while " + to_string(other.key) + " runs on " +
               other.node.text());
  }
  running.push_back({node, key, now});
  began_[key] = now;
  answered_.erase(key);
  probes_.erase(key);
}

void FleetChecker::probed(TimePoint now, const fleet::ReplicaKey& key, std::uint64_t agent, bool is_good,
                          bool is_ordered) {
  if (is_good) answered_.insert(key);
  Probes& probes = probes_[key];
  if (probes.agent != agent) probes = {agent, false, {}};
  probes.was_good = probes.was_good || is_good;
  if (is_good || !probes.was_good || !is_ordered) {
    probes.failing_since.reset();
    return;
  }
  if (!probes.failing_since) probes.failing_since = now;
  const std::optional<Duration> unready_max = facts_[key.generation].unready_max;
  expect(now, !unready_max || now - *probes.failing_since <= *unready_max,
         to_string(key) + " was ready, fails its readiness probe and is not restarted");
}

void FleetChecker::ended(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key) {
  ended_[key] = now;
  std::vector<Process>& running = processes_[{key.deployment, key.replica}];
  const auto found = std::find_if(running.begin(), running.end(),
                                  [&](const Process& process) { return process.node == node && process.key == key; });
  if (found != running.end()) running.erase(found);
}

void FleetChecker::refused(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key) {
  std::vector<TimePoint>& times = refusals_[{node, {key.deployment, key.replica}}];
  std::erase_if(times, [&](TimePoint when) { return when + 10s < now; });
  times.push_back(now);
  ++causes_[{key.deployment, key.replica}];
  expect(now, times.size() <= 6, to_string(key) + " was refused by " + node.text() + " again and again");
}

void FleetChecker::note_report(TimePoint now, std::uint64_t epoch, const fleet::NodeReport& report) {
  if (epoch != state_.epoch) return;  // another server leads by now
  const NodeId& node = report.node.id;
  const auto before = known_.find(node);
  if (before != known_.end() && before->second.report.agent == report.agent &&
      report.number < before->second.report.number)
    return;
  std::set<fleet::ReplicaKey> ready_before;
  if (before != known_.end()) {
    for (const fleet::ReplicaReport& replica : before->second.report.replicas) {
      if (replica.state == ReplicaState::ready) ready_before.insert(replica.key);
    }
    if (before->second.report.node != report.node) add_cause(node);
  }
  for (const fleet::ReplicaReport& replica : report.replicas) {
    if (replica.state != ReplicaState::ready) continue;
    if (!ready_before.contains(replica.key)) avoided_.erase({replica.key.deployment, node});
    const auto began = began_.find(replica.key);
    if (began == began_.end() || !facts_.contains(replica.key.generation)) continue;  // without a command
    const auto ended = ended_.find(replica.key);
    const bool is_ended = ended != ended_.end() && ended->second >= began->second;
    const bool is_late = ended != ended_.end() && now < ended->second + oldest_report;
    const bool was_ready = facts_[replica.key.generation].has_readiness ? answered_.contains(replica.key)
                                                                        : now >= began->second + settled_after;
    const bool is_right = was_ready && !is_ended;
    exempt("a report says ready after the replica's end, because it was on its way", 1, !is_right && is_late);
    expect(now, is_right || is_late,
           to_string(replica.key) + " is reported as ready by " + node.text() + " and is not");
  }
  known_[node] = {report, now};
}

std::uint64_t FleetChecker::asked(const DeploymentId& deployment, const std::optional<DeploymentSpec>& spec) {
  std::vector<Request>& requests = requests_[deployment];
  if (requests.empty()) requests.push_back({0, 0, std::nullopt});
  requests.push_back({++moments_, UINT64_MAX, spec});
  return moments_;
}

void FleetChecker::answered(const DeploymentId& deployment, std::uint64_t request, bool is_accepted) {
  std::vector<Request>& requests = requests_[deployment];
  if (is_accepted) std::erase_if(requests, [&](const Request& other) { return other.ended < request; });
  for (Request& entry : requests) {
    if (entry.began == request) entry.ended = ++moments_;
  }
}

void FleetChecker::answered(const NodeId& node, Intent intent) {
  asked_intents_.erase(asked_intents_.find({node, intent}));
}

}  // namespace berth::simulate
