#include "simulate/fleet_checker.hpp"

#include <algorithm>

namespace berth::simulate {
namespace {

std::string at(TimePoint now) {
  return "at " + std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count()) +
         " ms: ";
}

// What happens to a machine may be unknown to servers for so long.
constexpr Duration unknown_to_servers = std::chrono::seconds(10);

// Of all nodes, by generation.
std::map<std::uint64_t, fleet::Assigned> all_assigned(const store::State& state) {
  std::map<std::uint64_t, fleet::Assigned> all;
  for (const auto& [node, list] : state.assignments) {
    for (const fleet::Assigned& one : list.assigned) all.emplace(one.generation, one);
  }
  return all;
}

}  // namespace

void FleetChecker::expect(TimePoint now, bool holds, const std::string& law) {
  if (!holds && violations_.size() < 10) violations_.push_back(at(now) + law);
}

void FleetChecker::add_device(const NodeId&, const DeviceId& device, std::uint64_t memory_bytes) {
  bytes_[device] = memory_bytes;
}

void FleetChecker::decided(TimePoint now, const std::string& call, std::optional<std::uint64_t> known,
                           std::uint64_t made) {
  // A call may commit several times: what it has done itself it knows.
  expect(now, !known || call == last_call_ || *known >= last_change_,
         call + " committed what it decided on a state that is gone");
  last_call_ = call;
  last_change_ = made;
}

void FleetChecker::committed(TimePoint now, const store::State& state) {
  const std::map<std::uint64_t, fleet::Assigned> assigned = all_assigned(state);
  std::vector<fleet::Assigned> started;
  for (const auto& [generation, one] : assigned) {
    if (!assigned_.contains(generation)) started.push_back(one);
  }
  starts_ += started.size();
  assigned_.clear();
  for (const auto& [generation, one] : assigned) assigned_.insert(generation);
  for (const fleet::Assigned& one : started) {
    const std::string name = to_string(one.key());
    expect(now, one.generation > highest_, name + " has a generation that was used before");
    highest_ = std::max(highest_, one.generation);
    const auto wanted = state.desired.deployments.find(one.place.deployment);
    expect(now, wanted != state.desired.deployments.end() && one.place.replica < wanted->second.spec.replicas,
           name + " was started by a decision on a state that is gone: it is not wanted");
    const auto node = state.nodes.find(one.place.node);
    expect(now, node != state.nodes.end() && node->second.intent == Intent::in_service,
           name + " was started by a decision on a state that is gone: its node is not in service");
  }
  std::map<NodeId, Intent> intents;
  for (const auto& [id, node] : state.nodes) {
    intents.emplace(id, node.intent);
    const auto before = intents_.find(id);
    expect(now, before == intents_.end() || before->second == node.intent || asked_intents_.contains({id, node.intent}),
           "node " + id.text() + " is " + std::string(to_string(node.intent)) + ", which no operator has asked for");
  }
  intents_ = std::move(intents);
  // What runs is stopped without a successor only as far as the rollout allows.
  std::map<DeploymentId, std::uint32_t> taken_away;
  for (const auto& [generation, one] : assigned) {
    if (!one.stopping || !stopping_.insert(generation).second) continue;
    const auto wanted = state.desired.deployments.find(one.place.deployment);
    if (wanted == state.desired.deployments.end() || one.place.replica >= wanted->second.spec.replicas) continue;
    const auto runs_for = [&](const fleet::Assigned& other, Duration least) {
      const auto& running = processes_[{other.place.deployment, other.place.replica}];
      return std::any_of(running.begin(), running.end(), [&](const Process& process) {
        return process.key == other.key() && process.began + least <= now;
      });
    };
    // Servers may not know yet that it has ended: its machine went off.
    const auto has_just_ended = [&](const fleet::Assigned& other) {
      const auto end = ended_.find(other.key());
      return end != ended_.end() && now < end->second + unknown_to_servers;
    };
    const bool has_successor = std::any_of(assigned.begin(), assigned.end(), [&](const auto& entry) {
      const fleet::Assigned& other = entry.second;
      return !other.stopping && other.place.deployment == one.place.deployment &&
             other.place.replica == one.place.replica &&
             (runs_for(other, Duration::zero()) || has_just_ended(other) ||
              std::find(started.begin(), started.end(), other) != started.end());
    });
    // Of what has only begun, or is out of reach, servers do not know that it runs.
    const bool is_in_reach = now < heard_[one.place.node] + unknown_to_servers;
    if (is_in_reach && runs_for(one, std::chrono::seconds(5)) && !has_successor) ++taken_away[one.place.deployment];
  }
  for (const auto& [id, count] : taken_away) {
    const DeploymentSpec& spec = state.desired.deployments.at(id).spec;
    const std::uint32_t most = std::max(spec.rollout.unavailable, 1u);
    expect(now, count <= most, id.text() + " loses " + std::to_string(count) + " replicas that run at once");
  }
  // Everything that is not forgotten may run.
  std::map<DeviceId, std::vector<const fleet::Assigned*>> holders;
  std::map<DeploymentId, std::map<std::uint32_t, std::uint32_t>> live;
  for (const auto& [generation, one] : assigned) {
    for (const DeviceId& id : one.place.devices) holders[id].push_back(&one);
    if (!one.stopping) ++live[one.place.deployment][one.place.replica];
  }
  for (const auto& [id, held] : holders) {
    std::uint64_t bytes = 0;
    bool is_exclusive = false;
    for (const fleet::Assigned* one : held) {
      bytes += one->place.memory_bytes;
      is_exclusive = is_exclusive || one->place.exclusive;
    }
    expect(now, !is_exclusive || held.size() == 1,
           "device " + id.text() + " is exclusive and promised twice, also to " + to_string(held.back()->key()));
    expect(now, bytes <= bytes_[id], "device " + id.text() + " is promised beyond its bytes");
  }
  for (const auto& [id, replicas] : live) {
    const auto wanted = state.desired.deployments.find(id);
    if (wanted == state.desired.deployments.end()) continue;
    std::uint32_t more = 0;
    for (const auto& [replica, count] : replicas)
      more += replica < wanted->second.spec.replicas && count > 1 ? count - 1 : 0;
    // The surge may have been lowered since: only a commit that adds to it is wrong.
    const bool is_added = std::any_of(started.begin(), started.end(), [&](const fleet::Assigned& one) {
      return one.place.deployment == id && replicas.at(one.place.replica) > 1;
    });
    expect(now, !is_added || more <= wanted->second.spec.rollout.surge,
           id.text() + " has " + std::to_string(more) + " replicas more than wanted, beyond its surge");
  }
}

void FleetChecker::began(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key, bool is_single) {
  std::vector<Process>& running = processes_[{key.deployment, key.replica}];
  for (const Process& other : running) {
    expect(now, other.key != key, to_string(key) + " was started twice on " + node.text());
    expect(now, !(is_single && other.is_single),
           "single " + to_string(key) + " began on " + node.text() + " while " + to_string(other.key) + " runs on " +
               other.node.text());
  }
  running.push_back({node, key, is_single, now});
}

void FleetChecker::ended(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key) {
  ended_[key] = now;
  std::vector<Process>& running = processes_[{key.deployment, key.replica}];
  const auto found = std::find_if(running.begin(), running.end(),
                                  [&](const Process& one) { return one.node == node && one.key == key; });
  if (found != running.end()) running.erase(found);
}

void FleetChecker::refused(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key) {
  std::vector<TimePoint>& times = refusals_[{node, {key.deployment, key.replica}}];
  std::erase_if(times, [&](TimePoint when) { return when + std::chrono::seconds(10) < now; });
  times.push_back(now);
  last_refusal_[key.deployment] = now;
  expect(now, times.size() <= 6, to_string(key) + " was refused by " + node.text() + " again and again");
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
  for (Request& one : requests) {
    if (one.began == request) one.ended = ++moments_;
  }
}

void FleetChecker::answered(const NodeId& node, Intent intent) {
  asked_intents_.erase(asked_intents_.find({node, intent}));
}

void FleetChecker::check_places(TimePoint now, const store::State& state, const std::map<NodeId, Machine>& machines) {
  std::map<DeviceId, std::uint64_t> used;
  std::set<DeviceId> exclusive;
  std::map<std::pair<DeploymentId, std::uint32_t>, bool> placed;
  for (const auto& [generation, one] : all_assigned(state)) {
    for (const DeviceId& id : one.place.devices) {
      used[id] += one.place.memory_bytes;
      if (one.place.exclusive) exclusive.insert(id);
    }
    const auto machine = machines.find(one.place.node);
    if (!one.stopping && machine != machines.end() && machine->second.is_on)
      placed[{one.place.deployment, one.place.replica}] = true;
  }
  for (const auto& [id, wanted] : state.desired.deployments) {
    const DeploymentSpec& spec = wanted.spec;
    // Those that start together, or end before they move, are looked at in the end.
    if (spec.single || spec.on_shortage == OnShortage::all || !spec.node_selector.empty() || spec.user) continue;
    // A node that has refused again and again is left alone for a minute.
    if (const auto refusal = last_refusal_.find(id);
        refusal != last_refusal_.end() && now < refusal->second + std::chrono::seconds(62))
      continue;
    for (std::uint32_t replica = 0; replica < spec.replicas; ++replica) {
      if (placed.contains({id, replica})) continue;
      bool fits = spec.gpus_per_replica() == 0;
      for (const auto& [node, machine] : machines) {
        std::uint32_t free = 0;
        for (const DeviceId& device : machine.in_service) {
          const bool is_exclusive = spec.sharing == Sharing::exclusive;
          const bool is_used = used.contains(device);
          free += !exclusive.contains(device) && !(is_exclusive && is_used) &&
                  (is_used ? used.at(device) : 0) + spec.memory_bytes <= bytes_[device];
        }
        fits = fits || (machine.is_on && free >= spec.gpus_per_replica());
      }
      expect(now, !fits, id.text() + "/" + std::to_string(replica) + " fits and has no place");
    }
  }
}

void FleetChecker::check_rest(TimePoint now, const store::State& state, const std::set<fleet::ReplicaKey>& ready) {
  const std::map<std::uint64_t, fleet::Assigned> assigned = all_assigned(state);
  for (const auto& [generation, one] : assigned) {
    const std::string name = to_string(one.key());
    expect(now, !one.stopping, name + " has not stopped on " + one.place.node.text());
    const auto wanted = state.desired.deployments.find(one.place.deployment);
    expect(now, wanted != state.desired.deployments.end() && one.place.replica < wanted->second.spec.replicas,
           name + " is not wanted");
    const bool is_refused = wanted != state.desired.deployments.end() && wanted->second.spec.user.has_value();
    expect(now, is_refused || ready.contains(one.key()), name + " does not serve on " + one.place.node.text());
  }
  for (const auto& [name, running] : processes_) {
    for (const Process& one : running)
      expect(now, assigned.contains(one.key.generation),
             to_string(one.key) + " runs on " + one.node.text() + " and is not assigned");
    expect(now, running.size() <= 1, name.first.text() + "/" + std::to_string(name.second) + " runs twice");
  }
  for (const auto& [id, requests] : requests_) {
    const auto wanted = state.desired.deployments.find(id);
    const bool is_there = wanted != state.desired.deployments.end();
    const bool is_asked_for = std::any_of(requests.begin(), requests.end(), [&](const Request& request) {
      return request.spec.has_value() == is_there && (!is_there || *request.spec == wanted->second.spec);
    });
    expect(now, is_asked_for, "an accepted change of " + id.text() + " is lost");
  }
}

}  // namespace berth::simulate
