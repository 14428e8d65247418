// The naive way takes nodes in turn, beginning with the first, and numbers GPUs from zero: replicas
// collide on the same GPU, every deployment starts on the same node, and adding or removing a node
// moves almost everything. So a plan counts what is occupied and has three passes: keep what is
// still right, place what is missing, compare. Nodes are ranked here by free capacity; placement
// chooses the GPUs of the winning node, and sees its devices with those counts.
#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "berth/deployment.hpp"
#include "deployment/job.hpp"

namespace berth::deployment {
namespace {

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

// The rank of a node, lowest first. It starts with whether a GPU that others use would be needed, and ends with the
// node's position by id.
using Key = std::array<std::uint64_t, 5>;

// Why the deployment as a whole cannot be placed in this fleet.
std::optional<Reason> blocked(const PlanJob& job, const PlannedFleet& planned) {
  const DeploymentSpec& spec = *job.spec;
  if (job.on_gpus() &&
      std::none_of(planned.nodes.begin(), planned.nodes.end(), [](const PlannedNode& n) { return !n.gpus.empty(); }))
    return reason_of(ReasonKind::no_gpu_nodes, "no node of the fleet has a GPU");
  if (const auto* remote = std::get_if<Remote>(&job.transport)) {
    if (std::none_of(planned.nodes.begin(), planned.nodes.end(), [](const PlannedNode& n) { return n.node->egress; })) {
      Reason reason = reason_of(
          ReasonKind::no_egress_nodes,
          "no node of the fleet may call " + std::string(to_string(remote->provider)) + " (none has egress = true)");
      reason.provider = remote->provider;
      return reason;
    }
  }
  if (std::holds_alternative<UnknownTransport>(job.transport))
    return reason_of(ReasonKind::unknown_transport,
                     "runtime \"" + to_string(spec.effective_runtime()) + "\" is not known to this version of berth");
  if (planned.nodes.empty()) return reason_of(ReasonKind::no_nodes, "the fleet has no node");
  if (job.on_gpus() && job.want == 0)
    return reason_of(ReasonKind::zero_gpus,
                     "it runs on GPUs but requests none; set cpu = true if it needs no GPU, or gpus to at least 1");
  if (const auto valid = validate(spec); !valid) return reason_of(ReasonKind::invalid_spec, valid.error().to_text());
  return std::nullopt;
}

PlanJob job_for(const DeploymentSpec& spec, const PlannedFleet& planned, const EgressPreference& preference) {
  PlanJob job;
  job.spec = &spec;
  job.transport = spec.transport();
  job.want = spec.gpus_per_replica();
  job.exclusive = job.on_gpus() && spec.exclusive;
  job.requirements.capability_min = spec.capability_min;
  job.requirements.labels = spec.device_labels;
  job.requirements.priority = spec.priority;
  job.requirements.memory_bytes_min = job.remote() ? 0 : spec.memory_bytes;
  job.requirements.exclusive = job.exclusive;
  job.requirements.whole = job.exclusive && spec.memory_bytes == 0;
  job.blocked = blocked(job, planned);
  if (job.on_gpus() && !job.blocked) {
    const bool tight = job.exclusive || spec.spread == Spread::pack;
    job.policy = find_policy(spec.policy ? *spec.policy : tight ? "best_fit" : "spread");
    BERTH_ASSERT(job.policy != nullptr);
  }
  if (const auto* remote = std::get_if<Remote>(&job.transport); remote && spec.key) {
    const auto found = preference.find({remote->provider, *spec.key});
    if (found != preference.end()) job.preferred = found->second;
    std::sort(job.preferred.begin(), job.preferred.end());
  }
  return job;
}

// Rank of a node for one more replica; nothing if it cannot take one.
std::optional<Key> node_key(const PlanJob& job, const PlannedFleet& planned, std::size_t position) {
  const DeploymentSpec& spec = *job.spec;
  const PlannedNode& node = planned.nodes[position];
  const std::uint64_t count = job.count_on(position);
  const bool pack = spec.spread == Spread::pack;
  if (job.avoided.contains(position) || (spec.spread == Spread::one_per_node && count > 0)) return std::nullopt;
  if (!node.accepts_replicas() || !has_labels(*node.node, spec.node_selector) || !tolerated(*node.node, spec.tolerates))
    return std::nullopt;

  if (job.on_gpus()) {
    // Free capacity: whole GPUs for an exclusive replica, bytes for one that shares.
    std::uint64_t eligible = 0, unused = 0, capacity = 0;
    for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu) {
      if (!is_free_for(job, node, gpu) || reject(job.requirements, node.gpus[gpu])) continue;
      ++eligible;
      unused += node.gpus[gpu].used_by_others ? 0 : 1;
      capacity += job.exclusive ? 1 : node.gpus[gpu].memory_bytes_available().value_or(0);
    }
    if (eligible < job.want) return std::nullopt;
    const std::uint64_t takes_used = unused < job.want ? 1 : 0;
    return pack ? Key{takes_used, capacity, 0, 0, position} : Key{takes_used, count, most - capacity, 0, position};
  }
  if (job.remote()) {
    if (!node.node->egress) return std::nullopt;
    const std::uint64_t aside = !std::binary_search(job.preferred.begin(), job.preferred.end(), node.node->id);
    return pack ? Key{0, aside, most - count, most - node.replicas_without_gpu, position}
                : Key{0, count, aside, node.replicas_without_gpu, position};
  }
  const OptionalU64 available = node.memory_bytes_available();
  if (spec.memory_bytes > available.value_or(0)) return std::nullopt;
  return pack ? Key{0, most - count, available.value_or(0), 0, position}
              : Key{0, count, node.replicas_without_gpu, most - available.value_or(0), position};
}

// Chooses the GPUs of one replica together, by the node's links, and charges them. Returns nothing if they do not fit
// together: partitions of one GPU share its bytes.
std::optional<Location> charge_gpus(const PlanJob& job, PlannedFleet& planned, std::size_t position, Ticket ticket) {
  const PlannedNode& node = planned.nodes[position];
  std::vector<DeviceView> views;
  std::vector<std::size_t> gpus;
  for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu) {
    if (!is_free_for(job, node, gpu)) continue;
    views.push_back(node.gpus[gpu]);
    gpus.push_back(gpu);
  }
  const GroupDecision decision = choose_group(*job.policy, job.requirements, job.want, views, node.topology, ticket);
  if (decision.winners.empty()) return std::nullopt;
  Location location{position, {}};
  for (const std::size_t winner : decision.winners) location.gpus.push_back(gpus[winner]);
  std::sort(location.gpus.begin(), location.gpus.end());
  planned.charge(location, job.requirements.memory_bytes_min, job.exclusive);
  return location;
}

Assignment assignment_at(const PlanJob& job, std::uint32_t replica, const PlannedFleet& planned,
                         const Location& location) {
  const PlannedNode& node = planned.nodes[location.node];
  Assignment assignment{job.spec->name, replica, node.node->id, {}, job.requirements.memory_bytes_min, job.exclusive};
  for (const std::size_t gpu : location.gpus) assignment.devices.push_back(node.gpus[gpu].info->id);
  return assignment;
}

// Charges devices that already hold the replica. A cordon lets it stay, so the intent
// is ignored, and so is the work in flight that probation limits. Other use of the
// device is ignored too: most likely it is the replica itself.
bool charge_current(PlannedFleet& planned, const Location& location, Requirements requirements, bool exclusive) {
  requirements.exclusive = requirements.whole = false;
  if (location.gpus.empty()) {
    const PlannedNode& node = planned.nodes[location.node];
    if (!node.is_usable() || requirements.memory_bytes_min > node.memory_bytes_available().value_or(0)) return false;
    planned.charge(location, requirements.memory_bytes_min, false);
    return true;
  }
  for (std::size_t i = 0; i < location.gpus.size(); ++i) {
    const PlannedNode& node = planned.nodes[location.node];
    DeviceView view = node.gpus[location.gpus[i]];
    const bool taken = node.held_exclusively[location.gpus[i]] || (exclusive && view.in_flight > 0);
    view.intent = Intent::in_service;
    view.in_flight = 0;
    view.held_exclusively = false;
    if (taken || reject(requirements, view)) {
      for (std::size_t j = 0; j < i; ++j)
        planned.refund({location.node, {location.gpus[j]}}, requirements.memory_bytes_min);
      return false;
    }
    planned.charge({location.node, {location.gpus[i]}}, requirements.memory_bytes_min, exclusive);
  }
  return true;
}

// Charges what is in use, even where the plan would not have allowed it. A missing device holds nothing.
std::optional<std::size_t> charge_in_use(PlannedFleet& planned, const Assignment& in_use) {
  std::optional<Location> location = planned.find(in_use);
  if (!location) {
    Assignment left = in_use;
    std::erase_if(left.devices, [&](const DeviceId& id) {
      return !planned.find({in_use.deployment, in_use.replica, in_use.node, {id}, 0, false});
    });
    if (left.devices.empty() || !(location = planned.find(left))) return std::nullopt;
  }
  planned.charge(*location, in_use.memory_bytes, in_use.exclusive);
  return location->node;
}

void respect_limits(std::vector<PlanJob>& jobs, PlannedFleet& planned, const PlanLimits& limits) {
  std::map<DeploymentId, PlanJob*> by_name;
  for (PlanJob& job : jobs) by_name.emplace(job.spec->name, &job);
  for (const Assignment& in_use : limits.occupied) {
    const std::optional<std::size_t> node = charge_in_use(planned, in_use);
    // Two replicas that must not share a node do not share one even while one of them is ending.
    if (const auto job = by_name.find(in_use.deployment); node && job != by_name.end())
      ++job->second->replicas_on[*node];
  }
  for (const Assignment& staying : limits.staying) {
    const auto job = by_name.find(staying.deployment);
    if (job == by_name.end() || !job->second->held.emplace(staying.replica, staying).second) continue;
    if (const std::optional<std::size_t> node = charge_in_use(planned, staying)) ++job->second->replicas_on[*node];
  }
  for (const auto& [deployment, node] : limits.avoided) {
    const auto job = by_name.find(deployment);
    const auto found = planned.find({deployment, 0, node, {}, 0, false});
    if (job != by_name.end() && found) job->second->avoided.insert(found->node);
  }
}

// First pass: keeps `current` if the spec would still allow it there.
void keep_current(PlanJob& job, PlannedFleet& planned, const Assignment& current) {
  const DeploymentSpec& spec = *job.spec;
  const std::optional<Location> location = planned.find(current);
  if (!location || job.held.contains(current.replica)) return;
  const PlannedNode& node = planned.nodes[location->node];

  if (job.blocked) {  // there is no better place, so it stays
    Requirements requirements;
    requirements.memory_bytes_min = current.memory_bytes;
    if (charge_current(planned, *location, requirements, current.exclusive)) job.held.emplace(current.replica, current);
    return;
  }
  if (current.replica >= spec.replicas || location->gpus.size() != job.want) return;
  if (!has_labels(*node.node, spec.node_selector) || !tolerated(*node.node, spec.tolerates)) return;
  if (job.remote() && !node.node->egress) return;
  if (spec.spread == Spread::one_per_node && job.count_on(location->node) > 0) return;
  if (!charge_current(planned, *location, job.requirements, job.exclusive)) return;

  ++job.replicas_on[location->node];
  job.held.emplace(current.replica, assignment_at(job, current.replica, planned, *location));
  bool draining = node.node->intent == Intent::draining;
  for (const std::size_t gpu : location->gpus) draining = draining || node.gpus[gpu].intent == Intent::draining;
  if (draining) job.leaving.insert(current.replica);
}

// Second pass: places missing replicas and moves those that should leave.
void place_missing(PlanJob& job, PlannedFleet& planned) {
  const DeploymentSpec& spec = *job.spec;
  if (job.blocked) {
    job.pending.push_back({spec.name, {}, *job.blocked});
    return;
  }
  std::vector<std::uint32_t> missing;
  for (std::uint32_t replica = 0; replica < spec.replicas; ++replica) {
    if (!job.held.contains(replica) || job.leaving.contains(replica)) missing.push_back(replica);
  }
  if (missing.empty()) return;

  std::set<Key> candidates;
  std::vector<std::optional<Key>> keys(planned.nodes.size());
  const auto consider = [&](std::size_t position) {
    if (keys[position]) candidates.erase(*keys[position]);
    keys[position] = node_key(job, planned, position);
    if (keys[position]) candidates.insert(*keys[position]);
  };
  for (std::size_t position = 0; position < planned.nodes.size(); ++position) consider(position);

  const std::uint64_t memory_bytes = job.requirements.memory_bytes_min;
  std::map<std::uint32_t, Location> placed;
  for (const std::uint32_t replica : missing) {
    // A leaving replica may move to another GPU of its node.
    std::optional<std::size_t> left;
    if (job.leaving.contains(replica)) {
      left = planned.find(job.held.at(replica))->node;
      --job.replicas_on[*left];
      consider(*left);
    }
    std::optional<Location> location;
    while (!location && !candidates.empty()) {
      const std::size_t position = candidates.begin()->back();
      if (!job.on_gpus()) {
        location = Location{position, {}};
        planned.charge(*location, memory_bytes, false);
      } else if (!(location = charge_gpus(job, planned, position, replica))) {
        candidates.erase(candidates.begin());
        keys[position].reset();
      }
    }
    if (!location && left) ++job.replicas_on[*left];
    if (!location) continue;
    ++job.replicas_on[location->node];
    consider(location->node);
    placed.emplace(replica, std::move(*location));
  }

  std::optional<Reason> reason;
  if (placed.size() < missing.size()) {
    reason = shortage(job, planned);
    if (job.evidence) add_evidence(job, planned, *job.evidence);
    if (spec.on_shortage == OnShortage::all && !placed.empty()) {
      reason->text += "; " + std::to_string(placed.size()) + " of " + std::to_string(missing.size()) +
                      " would fit, but on_shortage = all starts them together or not at all";
      for (const auto& [replica, location] : placed) planned.refund(location, memory_bytes);
      placed.clear();
    }
  }
  for (const auto& [replica, location] : placed) {
    if (job.leaving.contains(replica)) planned.refund(*planned.find(job.held.at(replica)), memory_bytes);
    job.held.insert_or_assign(replica, assignment_at(job, replica, planned, location));
  }
  std::vector<std::uint32_t> waiting, stuck;
  for (const std::uint32_t replica : missing) {
    if (!placed.contains(replica)) (job.leaving.contains(replica) ? stuck : waiting).push_back(replica);
  }
  if (!waiting.empty()) job.pending.push_back({spec.name, waiting, *reason});
  if (!stuck.empty()) {
    Reason blocked = *reason;
    blocked.kind = ReasonKind::drain_blocked;
    blocked.text = "it stays on its draining node, because " + blocked.text;
    job.pending.push_back({spec.name, stuck, blocked});
  }
}

// Third pass: the actions that lead from `current` (sorted) to `wanted` (sorted).
std::vector<Action> difference(std::vector<Assignment> current, const std::vector<Assignment>& wanted) {
  const auto order = [](const Assignment& a) { return std::tie(a.deployment, a.replica); };
  std::vector<Action> stops, changes, starts;
  auto before = current.begin();
  auto after = wanted.begin();
  while (before != current.end() || after != wanted.end()) {
    if (after == wanted.end() || (before != current.end() && order(*before) < order(*after))) {
      stops.push_back({*before++, std::nullopt});
    } else if (before == current.end() || order(*after) < order(*before)) {
      starts.push_back({std::nullopt, *after++});
    } else {
      // If a replica has two current entries, use the one that was kept.
      auto twin = before + 1;
      for (; twin != current.end() && order(*twin) == order(*before); ++twin) {
        if (*twin == *after) std::iter_swap(before, twin);
      }
      if (*before != *after) changes.push_back({*before, *after});
      for (++before; before != twin; ++before) stops.push_back({*before, std::nullopt});
      ++after;
    }
  }
  std::vector<Action> actions = std::move(stops);
  actions.insert(actions.end(), changes.begin(), changes.end());
  actions.insert(actions.end(), starts.begin(), starts.end());
  return actions;
}

}  // namespace

Plan make_plan(std::span<const DeploymentSpec> specs, const Fleet& fleet, std::span<const Assignment> current,
               const EgressPreference& preference, const PlanLimits& limits, Evidence* evidence) {
  PlannedFleet planned(fleet);
  std::vector<Assignment> running(current.begin(), current.end());
  for (Assignment& assignment : running) planned.use_current_ids(assignment);
  running.insert(running.end(), limits.staying.begin(), limits.staying.end());
  std::sort(running.begin(), running.end(), [](const Assignment& a, const Assignment& b) {
    return std::tie(a.deployment, a.replica, a.node, a.devices, a.memory_bytes, a.exclusive) <
           std::tie(b.deployment, b.replica, b.node, b.devices, b.memory_bytes, b.exclusive);
  });

  std::vector<PlanJob> jobs;
  std::set<DeploymentId> names;
  Plan result;
  for (const DeploymentSpec& spec : specs) {
    if (names.insert(spec.name).second) {
      jobs.push_back(job_for(spec, planned, preference));
    } else {
      result.pending.push_back({spec.name, {}, reason_of(ReasonKind::invalid_spec, "another deployment has its name")});
    }
  }
  if (!jobs.empty()) jobs.front().evidence = evidence;
  // Large needs first: the small ones can still use what is left over.
  std::sort(jobs.begin(), jobs.end(), [](const PlanJob& a, const PlanJob& b) {
    return std::tie(b.spec->priority, b.want, b.spec->memory_bytes, a.spec->name) <
           std::tie(a.spec->priority, a.want, a.spec->memory_bytes, b.spec->name);
  });

  respect_limits(jobs, planned, limits);
  for (PlanJob& job : jobs) {
    const auto [first, last] =
        std::equal_range(running.begin(), running.end(), Assignment{job.spec->name, 0, {}, {}, 0, false},
                         [](const Assignment& a, const Assignment& b) { return a.deployment < b.deployment; });
    for (auto it = first; it != last; ++it) keep_current(job, planned, *it);
  }
  for (PlanJob& job : jobs) place_missing(job, planned);

  std::sort(jobs.begin(), jobs.end(), [](const PlanJob& a, const PlanJob& b) { return a.spec->name < b.spec->name; });
  for (PlanJob& job : jobs) {
    for (auto& [replica, assignment] : job.held) result.assignments.push_back(assignment);
    result.pending.insert(result.pending.end(), job.pending.begin(), job.pending.end());
  }
  std::sort(result.pending.begin(), result.pending.end(), [](const Pending& a, const Pending& b) {
    return std::tie(a.deployment, a.reason.kind, a.replicas, a.reason.text) <
           std::tie(b.deployment, b.reason.kind, b.replicas, b.reason.text);
  });
  result.actions = difference(std::move(running), result.assignments);
  return result;
}

Plan plan(std::span<const DeploymentSpec> specs, const Fleet& fleet, std::span<const Assignment> current,
          const EgressPreference& preference, const PlanLimits& limits) {
  return make_plan(specs, fleet, current, preference, limits, nullptr);
}

}  // namespace berth::deployment
