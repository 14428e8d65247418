// One step of the controller: plain data comes in (the desired deployments, the assignments, the nodes' reports and
// the operator's intents); incarnations to start, stop and forget come out, with reasons, states and events. Pure:
// no clock, no store, no random source. Unchanged input produces no actions. The loop around it commits a step as a
// whole or not at all; if the commit fails, it throws the step away, with its memory, and takes another.
//
// Guarantees: an incarnation gets devices and bytes that no other one has, including ending ones until their
// nodes report that they are gone; no serving replica is stopped before its successor is ready, except
// within the limits of a rollout; a `single` replica has at most one incarnation that may run.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "deployment/evidence.hpp"
#include "fleet/fleet.hpp"

namespace berth::controller {

// Three reports, sent every 2 s, were lost: no new replicas are placed on the node.
inline constexpr Duration suspect_after = std::chrono::seconds(6);
// Shown as lost. When its replicas are replaced depends on their deployment (replace_time).
inline constexpr Duration lost_after = std::chrono::seconds(30);
// Two reports were lost: rollouts do not wait for replicas there to end.
inline constexpr Duration unanswered_after = std::chrono::seconds(4);
// How long after `stop_grace` a rollout waits for a node to report that a replica is gone.
inline constexpr Duration end_slack = std::chrono::seconds(2);
// Failures in a row after which a rollout pauses, or replicas leave a device that is under suspicion.
inline constexpr std::uint32_t failures_max = 3;

enum class NodeHealth : std::uint8_t { healthy, suspect, lost };
std::string_view to_string(NodeHealth health) noexcept;

struct NodeState {
  const fleet::NodeReport* report = nullptr;  // the last one; null: none so far
  TimePoint reported_at{};                    // when it arrived, but not before this server became leader
  Intent intent = Intent::in_service;         // the operator's
  std::string intent_reason = {};
  std::map<DeviceId, fleet::DeviceIntent> devices = {};  // the operator's intents for single devices
};
NodeHealth health_of(const NodeState& node, TimePoint now) noexcept;

// How long a node is silent before its replicas are replaced. A `single` replica must have ended by itself by then:
// its agent begins to stop it after `stop_after`, which takes up to `stop_grace`, and 5 s allow for differing clocks
// and slow machines.
Duration replace_time(const DeploymentSpec& spec) noexcept;

// The spec that incarnations of this revision run: the wanted one, or an earlier one; null: forgotten.
const DeploymentSpec* spec_of(const fleet::DesiredDeployment& wanted, std::uint64_t revision) noexcept;
// Whether a replica of one spec can continue as a replica of the other, because they do not differ in anything that a
// node sees.
bool runs_the_same(const DeploymentSpec& a, const DeploymentSpec& b);

using ReplicaName = std::pair<DeploymentId, std::uint32_t>;

// What a step remembers for the next one. It may be lost at any time; then some back-offs start again and
// some events are omitted.
struct Memory {
  // A node that refused a deployment is left alone for 1 s, 2 s, ... 60 s.
  struct Avoided {
    TimePoint until{};
    std::uint32_t refusals = 0;
    std::string reason = {};  // of the last refusal
    friend bool operator==(const Avoided&, const Avoided&) = default;
  };
  std::map<std::pair<DeploymentId, NodeId>, Avoided> avoided;
  // Replicas that were stopped to make room for their successors; placed before all others.
  std::set<ReplicaName> returning;
  // The last observations, so that events report changes only. The first step reports only its own actions; the
  // first news from a node was reported by the previous server, unless the node has joined since.
  bool has_baseline = false;
  std::set<NodeId> awaited;  // nodes that had not reported at the first step, and have not since
  struct Seen {
    bool was_ready = false;
    std::uint32_t failures = 0;
    std::uint32_t failures_at_pause = 0;
    std::optional<TimePoint> end_due{};  // when it must have ended; absent: it was not told to stop
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  std::map<fleet::ReplicaKey, Seen> replicas;
  std::map<NodeId, NodeHealth> nodes;
  std::map<std::pair<NodeId, DeviceId>, Health> devices;  // the devices that are not healthy
  std::map<DeploymentId, ReasonKind> pending;
  std::map<DeploymentId, std::uint64_t> rollouts;  // the revision that is being rolled out
  friend bool operator==(const Memory&, const Memory&) = default;
};

struct Input {
  const fleet::Desired* desired = nullptr;
  std::span<const fleet::Assigned> assigned;  // each generation once
  std::map<NodeId, NodeState> nodes;          // all that have joined
  // Desired deployments with unreadable specs: their replicas stay as they are.
  std::set<DeploymentId> unreadable = {};
  Memory memory;
  std::uint64_t next_generation = 1;
  TimePoint now{};
  std::uint64_t now_ms = 0;  // wall time, for events and display only
};

enum class DeploymentState : std::uint8_t {
  pending,   // no replica serves, and some fit nowhere
  updating,  // replicas start or are being replaced
  serving,   // all replicas are ready and have the wanted revision
  degraded,  // fewer replicas serve than wanted, and not because of a rollout
  failed,    // no replica serves, and replicas keep ending
  paused,    // its rollout does not continue
};
std::string_view to_string(DeploymentState state) noexcept;

struct DeploymentStatus {
  DeploymentId deployment;
  DeploymentState state = DeploymentState::pending;
  std::uint32_t replicas = 0, ready = 0, updated = 0;
  std::string reason;  // the most important one; empty: all is well
  friend bool operator==(const DeploymentStatus&, const DeploymentStatus&) = default;
};

struct Step {
  std::vector<fleet::Assigned> start;
  std::vector<fleet::ReplicaKey> stop;    // replicas to be marked as stopping
  std::vector<fleet::ReplicaKey> forget;  // ended, or never ran
  struct Pause {
    DeploymentId deployment;
    std::string reason;
  };
  std::vector<Pause> pause;
  std::vector<Pending> pending;
  std::vector<DeploymentStatus> deployments;
  std::vector<fleet::Event> events;
  Memory memory;
  std::uint64_t next_generation = 1;
  std::optional<TimePoint> look_again;  // when time alone may change something

  bool has_actions() const { return !start.empty() || !stop.empty() || !forget.empty() || !pause.empty(); }
};

Step step(const Input& input);

// What would change if `proposed` were wanted, for `plan --server` and dry runs: the steps that would be taken, on a
// fleet whose nodes carry out orders at once. `restarts` are replicas whose command or settings change; their place
// may stay the same.
struct Preview {
  Plan plan;
  std::vector<ReplicaName> restarts;
  deployment::SmallestChanges changes;  // of plan.pending
};
Preview preview(const Input& input, const fleet::Desired& proposed);

// The evidence for the last step's reasons about replicas without a place. Empty for a paused rollout, and if there
// is room by now.
deployment::Evidence why_pending(const Input& input, const Pending& pending);

}  // namespace berth::controller
