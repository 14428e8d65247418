#include "controller/observe.hpp"

#include <algorithm>
#include <utility>

#include "deployment/replica_ranges.hpp"

namespace berth::controller {

using fleet::DesiredDeployment;
using fleet::EventKind;
using fleet::ReplicaState;

std::string_view to_string(DeploymentState state) noexcept {
  switch (state) {
    case DeploymentState::pending: return "pending";
    case DeploymentState::updating: return "updating";
    case DeploymentState::serving: return "serving";
    case DeploymentState::degraded: return "degraded";
    case DeploymentState::failed: return "failed";
    case DeploymentState::paused: return "paused";
  }
  return "pending";
}

namespace {

std::string times_in_a_row(std::uint32_t failures) {
  return failures == 1 ? "once" : std::to_string(failures) + " times in a row";
}

// It has ended, or has failed more than once and is not ready again: a restart alone does not make it healthy.
bool is_failing(const Incarnation& incarnation) {
  return incarnation.is_in(ReplicaState::backing_off) || (incarnation.failures() > 1 && !incarnation.is_ready());
}

// Describes an incarnation that is not ready.
std::string describe(const Incarnation& incarnation) {
  std::string text = name_of(incarnation.assigned.key()) + " on " + incarnation.assigned.place.node.text() + ": ";
  if (incarnation.age >= suspect_after) return text + "its node is silent";
  if (!incarnation.report) return text + "waiting for the node to accept it";
  const bool waits = incarnation.is_in(ReplicaState::backing_off);
  if (!waits) text += fleet::state_in_words(to_string(incarnation.report->state));
  if (incarnation.report->failures > 0)
    text += (waits ? "failed " : ", failed ") + times_in_a_row(incarnation.report->failures);
  if (!incarnation.report->reason.empty()) text += ": " + incarnation.report->reason;
  return text;
}

// The facts that determine the state of a deployment and its reason. A null pointer means that there is none.
struct Findings {
  std::uint32_t replicas = 0, ready = 0, updated = 0;
  const std::string* paused = nullptr;    // why its rollout is paused
  const Incarnation* failing = nullptr;   // the first one that ended, or keeps ending
  const Pending* pending = nullptr;       // the first replicas that fit nowhere
  const Incarnation* starting = nullptr;  // the first one that is not ready, whether failing or not
  bool has_lost_ready = false;            // a replica that is not ready was ready before
};

// The first condition that holds decides.
DeploymentState state_of(const Findings& found) {
  const bool all_ready = found.ready == found.replicas, none_ready = found.ready == 0;
  const bool all_updated = found.updated == found.replicas;
  if (found.paused) return DeploymentState::paused;
  if (all_ready && all_updated && !found.pending && !found.starting) return DeploymentState::serving;
  if (none_ready && found.failing) return DeploymentState::failed;
  if (none_ready && found.pending) return DeploymentState::pending;
  if (!all_ready && (found.failing || found.pending)) return DeploymentState::degraded;
  // Not during a rollout, in which the successor of a replica that was ready is already starting.
  if (!all_ready && all_updated && found.has_lost_ready) return DeploymentState::degraded;
  return DeploymentState::updating;
}

// The first condition that holds decides; those that the operator can act on come first.
std::string reason_of(const Findings& found) {
  if (found.paused) return *found.paused;
  if (found.failing) return describe(*found.failing);
  if (found.pending) return found.pending->reason.text;
  if (found.starting) return describe(*found.starting);
  return {};
}

std::string_view change_to(NodeHealth health) {
  switch (health) {
    case NodeHealth::healthy: return " reports again";
    case NodeHealth::suspect: return " is suspect: no report for 6 s";
    case NodeHealth::lost: break;
  }
  return " is lost: no report for 30 s";
}

class Observer {
 public:
  Observer(const Survey& survey, Step& step) : survey_(survey), input_(survey.input), out_(step) {}

  void run() {
    std::sort(out_.pending.begin(), out_.pending.end(), [](const Pending& a, const Pending& b) {
      return std::tie(a.deployment, a.reason.kind, a.replicas) < std::tie(b.deployment, b.reason.kind, b.replicas);
    });
    for (const auto& [id, wanted] : survey_.desired.deployments) observe_deployment(id, wanted);
    observe_replicas();
    observe_nodes();
    observe_pending();
    clean_memory();
    find_look_again();
    find_awaited();
    out_.memory.has_baseline = true;
  }

 private:
  void add_event(EventKind kind, std::string subject, std::string text) {
    if (input_.memory.has_baseline)
      out_.events.push_back({0, input_.now_ms, kind, "controller", std::move(subject), std::move(text)});
  }

  // False until the node has reported to this server once: its first report must not cause events.
  bool is_new(const NodeId& node) const { return !input_.memory.awaited.contains(node); }

  void find_awaited() {
    std::set<NodeId>& awaited = out_.memory.awaited;
    if (!input_.memory.has_baseline) {
      for (const auto& [id, state] : input_.nodes) awaited.insert(id);
    }
    std::erase_if(awaited, [&](const NodeId& id) {
      const auto node = input_.nodes.find(id);
      return node == input_.nodes.end() || node->second.report;
    });
  }

  const Pending* pending_of(const DeploymentId& id) const {
    const auto found = std::lower_bound(out_.pending.begin(), out_.pending.end(), id,
                                        [](const Pending& a, const DeploymentId& b) { return a.deployment < b; });
    return found != out_.pending.end() && found->deployment == id ? &*found : nullptr;
  }

  // Why a rollout is paused, by this step or an earlier one; null if it is not.
  const std::string* pause_of(const DeploymentId& id, const DesiredDeployment& wanted) const {
    for (const Step::Pause& pause : out_.pause) {
      if (pause.deployment == id) return &pause.reason;
    }
    return wanted.paused ? &*wanted.paused : nullptr;
  }

  void observe_deployment(const DeploymentId& id, const DesiredDeployment& wanted) {
    Findings found{.replicas = wanted.spec.replicas, .paused = pause_of(id, wanted), .pending = pending_of(id)};
    for (std::uint32_t replica = 0; replica < wanted.spec.replicas; ++replica) {
      const ReplicaName name{id, replica};
      const auto& all = survey_.all_of(name);
      found.ready += std::any_of(all.begin(), all.end(), [](const Incarnation* incarnation) {
        return incarnation->is_live() && incarnation->is_ready();
      });
      const Incarnation* const current = survey_.current(name);
      if (!current) continue;
      found.updated += current->is_up_to_date ? 1 : 0;
      if (!found.failing && is_failing(*current)) found.failing = current;
      if (!found.starting && !current->is_ready()) found.starting = current;
      found.has_lost_ready = found.has_lost_ready || current->was_ready();
    }
    out_.deployments.push_back({id, state_of(found), found.replicas, found.ready, found.updated, reason_of(found)});
  }

  // Null if its deployment is not wanted or its revision has been forgotten.
  const DeploymentSpec* spec_of(const Incarnation& incarnation) const {
    const auto wanted = survey_.desired.deployments.find(incarnation.assigned.place.deployment);
    if (wanted == survey_.desired.deployments.end()) return nullptr;
    return controller::spec_of(wanted->second, incarnation.assigned.revision);
  }

  void observe_replicas() {
    std::map<fleet::ReplicaKey, Memory::Seen> seen;
    for (const Incarnation& incarnation : survey_.incarnations) {
      if (incarnation.is_forgotten) continue;
      const fleet::ReplicaKey key = incarnation.assigned.key();
      Memory::Seen& now = seen[key];
      if (const auto before = out_.memory.replicas.find(key); before != out_.memory.replicas.end())
        now = before->second;
      if (incarnation.assigned.stopping && !now.end_due) {
        const DeploymentSpec* spec = spec_of(incarnation);
        now.end_due = input_.now + (spec ? spec->stop_grace : Duration{}) + end_slack;
      }
      if (!incarnation.report || incarnation.assigned.stopping) continue;
      const std::string place = " on " + incarnation.assigned.place.node.text();
      const bool causes_events = is_new(incarnation.assigned.place.node);
      if (causes_events && incarnation.report->failures > now.failures)
        add_event(EventKind::failed, name_of(key),
                  "failed" + place +
                      (incarnation.report->failures > 1
                           ? ", " + std::to_string(incarnation.report->failures) + " times in a row: "
                           : ": ") +
                      incarnation.report->reason);
      now.failures = incarnation.report->failures;
      const bool is_ready = incarnation.is_in(ReplicaState::ready);
      if (causes_events && is_ready && !now.was_ready) add_event(EventKind::ready, name_of(key), "serves" + place);
      if (now.was_ready && incarnation.is_in(ReplicaState::unready))
        add_event(EventKind::failed, name_of(key), "is not ready" + place + ": " + incarnation.report->reason);
      now.was_ready = is_ready;
    }
    out_.memory.replicas = std::move(seen);
  }

  void observe_nodes() {
    std::map<NodeId, NodeHealth> nodes;
    std::map<std::pair<NodeId, DeviceId>, Health> devices;
    for (const auto& [id, state] : input_.nodes) {
      const NodeHealth health = health_of(state, input_.now);
      nodes.emplace(id, health);
      const auto before = out_.memory.nodes.find(id);
      if (before == out_.memory.nodes.end()) {
        add_event(EventKind::node, "node/" + id.text(), id.text() + " is part of the fleet");
      } else if (before->second != health) {
        add_event(EventKind::node, "node/" + id.text(), id.text() + std::string(change_to(health)));
      }
      if (!state.report) continue;
      for (const NodeDevice& device : state.report->node.devices) {
        if (device.health != Health::healthy) devices.emplace(std::pair(id, device.info.id), device.health);
        const auto known = out_.memory.devices.find({id, device.info.id});
        const Health was = known == out_.memory.devices.end() ? Health::healthy : known->second;
        if (was != device.health && is_new(id))
          add_event(EventKind::device, "node/" + id.text(),
                    "device " + device.info.id.text() + " is " + std::string(to_string(device.health)));
      }
    }
    out_.memory.nodes = std::move(nodes);
    out_.memory.devices = std::move(devices);
  }

  void observe_pending() {
    // Until all present nodes have reported, it is not known what is missing.
    const bool is_awaiting =
        std::any_of(input_.memory.awaited.begin(), input_.memory.awaited.end(), [&](const NodeId& id) {
          const auto node = input_.nodes.find(id);
          return node != input_.nodes.end() && health_of(node->second, input_.now) == NodeHealth::healthy;
        });
    std::map<DeploymentId, ReasonKind> kinds;
    for (const Pending& pending : out_.pending) {
      if (!kinds.emplace(pending.deployment, pending.reason.kind).second) continue;
      const auto before = out_.memory.pending.find(pending.deployment);
      if (before != out_.memory.pending.end() && before->second == pending.reason.kind) continue;
      if (is_awaiting) {
        if (before == out_.memory.pending.end()) kinds.erase(pending.deployment);
        continue;
      }
      const std::string name = pending.deployment.text() + "/" + deployment::replica_ranges(pending.replicas);
      add_event(EventKind::pending, pending.deployment.text(),
                (pending.replicas.empty() ? std::string() : name + ": ") + pending.reason.text);
    }
    out_.memory.pending = std::move(kinds);
  }

  void clean_memory() {
    // Refusals are forgotten ten minutes after the node may be tried again.
    std::erase_if(out_.memory.avoided, [&](const auto& entry) {
      return !survey_.desired.deployments.contains(entry.first.first) || !input_.nodes.contains(entry.first.second) ||
             entry.second.until + std::chrono::minutes(10) < input_.now;
    });
    std::erase_if(out_.memory.rollouts,
                  [&](const auto& entry) { return !survey_.desired.deployments.contains(entry.first); });
  }

  void find_look_again() {
    const auto consider = [&](TimePoint when) {
      if (when > input_.now && (!out_.look_again || when < *out_.look_again)) out_.look_again = when;
    };
    for (const auto& [id, state] : input_.nodes) {
      consider(state.reported_at + suspect_after);
      consider(state.reported_at + lost_after);
    }
    for (const Incarnation& incarnation : survey_.incarnations) {
      const auto node = input_.nodes.find(incarnation.assigned.place.node);
      if (incarnation.is_forgotten || node == input_.nodes.end()) continue;
      if (incarnation.assigned.stopping) consider(node->second.reported_at + unanswered_after);
      if (const auto& due = out_.memory.replicas.at(incarnation.assigned.key()).end_due) consider(*due);
      const DeploymentSpec* spec = spec_of(incarnation);
      consider(node->second.reported_at +
               (spec ? replace_time(*spec) : std::chrono::seconds(incarnation.assigned.replace_s)));
    }
    for (const auto& [pair, avoided] : out_.memory.avoided) consider(avoided.until);
  }

  const Survey& survey_;
  const Input& input_;
  Step& out_;
};

}  // namespace

void observe(const Survey& survey, Step& step) { Observer(survey, step).run(); }

}  // namespace berth::controller
