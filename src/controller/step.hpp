// One step of the controller: what is wanted, what was assigned, what the nodes report and what the operator said
// about them come in as plain data; incarnations to start, to stop and to forget come out, with reasons, states and
// events. Pure: no clock, no store, no random source. Unchanged input gives no action. The loop around it
// commits a step as a whole or not at all; if the commit fails, it throws the step away, with its memory, and takes
// another.
//
// What it promises: an incarnation is given devices and bytes that no other one has, those that are to end
// included, until their nodes say that they are gone; nothing that serves is stopped before its successor is
// ready, but for what the limits of a rollout allow; what is single has one incarnation that may run.
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

// Three reports, sent every 2 s, were lost: nothing new is placed on the node.
inline constexpr Duration suspect_after = std::chrono::seconds(6);
// Shown as lost. Its replicas are replaced by what their own deployment says (replace_time).
inline constexpr Duration lost_after = std::chrono::seconds(30);
// Two reports were lost: no rollout waits for the end of what runs there.
inline constexpr Duration unanswered_after = std::chrono::seconds(4);
// From the end of `stop_grace` until a node has said that a replica is gone; a rollout waits no longer.
inline constexpr Duration end_slack = std::chrono::seconds(2);
// Failures in a row after which a rollout pauses, or a device that is under suspicion is left.
inline constexpr std::uint32_t failures_max = 3;

enum class NodeHealth : std::uint8_t { healthy, suspect, lost };
std::string_view to_string(NodeHealth health) noexcept;

struct NodeState {
  const fleet::NodeReport* report = nullptr;  // the last one; null: none so far
  TimePoint reported_at{};                    // when it came; at the earliest when this server began to lead
  Intent intent = Intent::in_service;         // the operator's
  std::string intent_reason = {};
  std::map<DeviceId, fleet::DeviceIntent> devices = {};  // the operator's, of single devices
};
NodeHealth health_of(const NodeState& node, TimePoint now) noexcept;

// How long a node is silent until its replicas are replaced. A single one must have ended by itself before: its
// agent begins to stop it after `stop_after`, which takes up to `stop_grace`, and 5 s are for clocks that differ and
// machines that are slow.
Duration replace_time(const DeploymentSpec& spec) noexcept;

// The spec that incarnations of this revision run: what is wanted, or one of the earlier ones; null: forgotten.
const DeploymentSpec* spec_of(const fleet::DesiredDeployment& wanted, std::uint64_t revision) noexcept;
// Whether a replica of one may go on as a replica of the other: they differ in nothing that a node sees.
bool runs_the_same(const DeploymentSpec& a, const DeploymentSpec& b);

using ReplicaName = std::pair<DeploymentId, std::uint32_t>;

// What a step remembers for the next one. It may be lost at any time; then some back-off begins anew and some
// events are not told.
struct Memory {
  // A node that refused a deployment is left alone for 1 s, 2 s, ... 60 s.
  struct Avoided {
    TimePoint until{};
    std::uint32_t refusals = 0;
    std::string reason = {};  // of the last refusal
    friend bool operator==(const Avoided&, const Avoided&) = default;
  };
  std::map<std::pair<DeploymentId, NodeId>, Avoided> avoided;
  // Replicas that were stopped so that their successors have room: placed before all others.
  std::set<ReplicaName> returning;
  // What was seen, so that events tell of changes. The first step tells only of what it does itself, and what a node
  // says first was told by the server before, unless the node has joined since.
  bool has_looked = false;
  std::set<NodeId> awaited;  // nodes that had not reported at the first step, and have not since
  struct Seen {
    bool was_ready = false;
    std::uint32_t failures = 0;
    std::uint32_t failures_at_pause = 0;
    std::optional<TimePoint> end_due{};  // by when it must have ended; absent: it was not told to stop
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  std::map<fleet::ReplicaKey, Seen> replicas;
  std::map<NodeId, NodeHealth> nodes;
  std::map<std::pair<NodeId, DeviceId>, Health> devices;  // those that are not healthy
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
  pending,   // nothing of it serves, and something fits nowhere
  updating,  // replicas start or are being replaced
  serving,   // all of it is ready and of the wanted revision
  degraded,  // fewer replicas serve than wanted, and not because of a rollout
  failed,    // nothing of it serves, and replicas keep ending
  paused,    // its rollout goes no further
};
std::string_view to_string(DeploymentState state) noexcept;

struct DeploymentStatus {
  DeploymentId deployment;
  DeploymentState state = DeploymentState::pending;
  std::uint32_t replicas = 0, ready = 0, updated = 0;
  std::string reason;  // the one to look at first; empty: all is well
  friend bool operator==(const DeploymentStatus&, const DeploymentStatus&) = default;
};

struct Step {
  std::vector<fleet::Assigned> start;
  std::vector<fleet::ReplicaKey> stop;    // to be marked as stopping
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
// fleet whose nodes do at once what they are told. `restarts` are replicas whose command or settings change; their
// place may stay the same.
struct Preview {
  Plan plan;
  std::vector<ReplicaName> restarts;
  deployment::SmallestChanges changes;  // of plan.pending
};
Preview preview(const Input& input, const fleet::Desired& proposed);

// The evidence for what the last step said about replicas without a place. Empty for a paused rollout, and where there
// is room by now.
deployment::Evidence why_pending(const Input& input, const Pending& pending);

}  // namespace berth::controller
