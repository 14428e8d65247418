// The content of a Store, and a change of it. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "berth/ids.hpp"
#include "deployment/names.hpp"
#include "fleet/fleet.hpp"

namespace berth::store {

// What one node must run.
struct NodeAssignments {
  std::uint64_t version = 0;  // given by the store; 0: there is no such list
  std::vector<fleet::Assigned> assigned;
  friend bool operator==(const NodeAssignments&, const NodeAssignments&) = default;
};

// Everything except the events, as one consistent snapshot. The operator's intent is in the record of the node.
struct State {
  fleet::Desired desired;
  std::map<NodeId, fleet::NodeRecord> nodes;
  std::map<NodeId, NodeAssignments> assignments;  // nodes without any are left out
  std::map<std::string, fleet::Credential> credentials;
  std::uint64_t next_generation = 1;
  std::uint64_t last_event = 0;     // its id
  std::string leader;               // the current or last leader; empty: there has never been one
  std::uint64_t epoch = 0;          // of its leadership
  std::uint64_t change_number = 0;  // of the last change that it includes (engine.hpp)
  // Entries that cannot be read, one sentence each. Their subjects are left out, or treated as safely as
  // possible: an incarnation is stopped, a node is cordoned.
  std::vector<std::string> damaged;
  std::set<DeploymentId> unreadable;  // desired, with a damaged record: its replicas stay as they are
  friend bool operator==(const State&, const State&) = default;
};

// A change of the state, and the state it was based on. Start with change_of(state).
struct Change {
  std::uint64_t epoch = 0;
  std::optional<std::uint64_t> project_version;  // absent: it does not depend on the desired state

  // Desired state; any of these creates the next version of the project. No record: the deployment is removed.
  std::map<DeploymentId, std::optional<fleet::DesiredDeployment>> deployments;
  std::optional<std::string> cluster;
  std::optional<EgressPreference> egress_preference;
  bool changes_desired() const { return !deployments.empty() || cluster || egress_preference; }

  // Each list is replaced as a whole, and carries the version of the one it was based on. An empty list is removed.
  std::map<NodeId, NodeAssignments> assignments;
  // The numbers that this change gives to new incarnations: [State::next_generation, the next one after it).
  std::optional<std::pair<std::uint64_t, std::uint64_t>> generations;

  // No record: removed.
  std::map<NodeId, std::optional<fleet::NodeRecord>> nodes;
  std::map<std::string, std::optional<fleet::Credential>> credentials;
  std::vector<fleet::Event> events;  // their ids are given by the store
};

// An action of a person, as opposed to one of a node, a server or the controller. Stored separately, so that no node
// can displace it.
inline bool is_action(const fleet::Event& event) {
  return event.actor.starts_with("user:") || event.actor.starts_with("token:");
}

// An empty change that depends on the epoch and the project version of `state`.
inline Change change_of(const State& state) {
  Change change;
  change.epoch = state.epoch;
  change.project_version = state.desired.version;
  return change;
}

enum class Moved : std::uint8_t { leader, project, assignments };

struct [[nodiscard]] Committed {
  std::optional<Moved> moved;       // absent: all of it is committed
  std::string reason;               // if it moved: the reason, in one sentence
  std::uint64_t change_number = 0;  // of its last transaction (engine.hpp)
  explicit operator bool() const noexcept { return !moved; }
};

}  // namespace berth::store
