// The nouns of a fleet: what is wanted, what has been decided, and what the nodes report. Plain data: the
// store keeps it, the controller decides on it, and the agents carry it out; src/fleet_format has its
// JSON.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deployment/names.hpp"
#include "fleet/reported_device.hpp"

namespace berth::fleet {

// One deployment as desired by the operator.
struct DesiredDeployment {
  DeploymentSpec spec;
  // The number of the spec: grows when anything but the count of replicas changes.
  std::uint64_t revision = 0;
  // Earlier specs, the newest first, for an undo.
  std::vector<DeploymentSpec> earlier;
  // Why the rollout is paused; absent: it continues.
  std::optional<std::string> paused;
  // Which replica owns which keys, as written by ShardTable::to_text(); absent: its requests have no keys.
  std::optional<std::string> shards = {};
  std::uint32_t shards_moved = 0;  // number of shards moved by the last change of that table
  // Replicas of earlier revisions than this one are replaced even if their settings are the same.
  std::optional<std::uint64_t> restart_revision = {};
  UnknownFields unknown = {};
  friend bool operator==(const DesiredDeployment&, const DesiredDeployment&) = default;
};
inline constexpr std::size_t earlier_max = 10;

// All deployments. `version` grows with every accepted change.
struct Desired {
  std::uint64_t version = 0;
  std::string cluster;
  std::map<DeploymentId, DesiredDeployment> deployments;
  EgressPreference egress_preference;
  friend bool operator==(const Desired&, const Desired&) = default;
};

// One incarnation of a replica. Generations are unique in the fleet; of two incarnations of a replica the one
// with the higher generation is the newer.
struct ReplicaKey {
  DeploymentId deployment;
  std::uint32_t replica = 0;
  std::uint64_t generation = 0;
  friend bool operator==(const ReplicaKey&, const ReplicaKey&) = default;
  friend auto operator<=>(const ReplicaKey&, const ReplicaKey&) = default;
};
// "chat/0", and "chat/0#17" with the generation.
std::string name_of(const ReplicaKey& key);
std::string to_string(const ReplicaKey& key);

// An incarnation in its place, as committed.
struct Assigned {
  Assignment place;
  std::uint64_t generation = 0;
  std::uint64_t revision = 0;  // the deployment's revision that it runs
  // It should be stopped. It stays assigned until its node reports that it is gone.
  bool stopping = false;
  std::uint64_t since_ms = 0;  // wall time of its commit, for display
  // It counts as ended this many seconds after the last report of its node, even if its deployment was forgotten.
  std::uint64_t replace_s = 0;
  UnknownFields unknown = {};
  ReplicaKey key() const { return {place.deployment, place.replica, generation}; }
  friend bool operator==(const Assigned&, const Assigned&) = default;
};

enum class ReplicaState : std::uint8_t {
  waiting,      // its agent has not accepted it yet
  starting,     // accepted: the ledger of its machine holds its lease
  ready,        // serves
  unready,      // running, but a probe fails
  backing_off,  // ended; will be restarted later
  refused,      // its agent refuses to run it
  stopping,     // was told to end
  gone,         // no longer runs, and holds nothing
};
std::string_view to_string(ReplicaState state) noexcept;
// A state of the API as sentences and tables have it: "waiting to restart" for "backing_off", "not ready" for
// "unready".
std::string_view state_in_words(std::string_view state) noexcept;
// Whether a replica in this state holds its devices.
constexpr bool holds_devices(ReplicaState state) noexcept {
  return state != ReplicaState::refused && state != ReplicaState::gone;
}

// An agent's report about one incarnation.
struct ReplicaReport {
  ReplicaKey key;
  ReplicaState state = ReplicaState::waiting;
  std::string reason;          // why it is not ready
  std::uint32_t failures = 0;  // consecutive unwanted ends
  std::optional<std::uint16_t> port;
  std::string job;                          // the id of its job on that machine
  std::optional<std::uint64_t> started_ms;  // its node's wall time
  std::optional<std::uint64_t> memory_bytes_peak;
  std::optional<std::uint64_t> next_start_ms = {};  // wall time of its node; of one that is backing off
  friend bool operator==(const ReplicaReport&, const ReplicaReport&) = default;
};

// An agent's report about its node. In `node`, the promises of the ledger do not include the fleet's own replicas.
struct NodeReport {
  NodeView node;
  std::string agent;    // id of this start of the agent: two agents with one name differ in it
  std::string version;  // of its berth
  std::string boot;     // id of this start of the machine
  // When this start of the agent began, on the monotonic clock of the machine: of two starts within one boot, the
  // later one has the higher time. 0: an older agent, which does not report it.
  std::uint64_t agent_start_monotonic_ms = 0;
  std::uint64_t now_ms = 0;  // its wall clock
  std::uint64_t number = 0;  // grows within one start of the agent: a lower number that arrives later is outdated
  std::vector<ReplicaReport> replicas;
  // The orders that the report takes into account. Epoch 0: the agent has none yet, and does not report which
  // replicas serve.
  std::uint64_t epoch = 0, orders_number = 0;
  // The highest epoch of a server that it has followed: it ignores servers with lower epochs. 0: none, or an older
  // agent.
  std::uint64_t epoch_seen = 0;
  // For display: devices with telemetry, including those that the fleet may not use, and the jobs and leases in
  // the machine's ledger.
  std::vector<ReportedDevice> devices;
  std::vector<ReportedLease> leases;
  // One sentence: what is wrong with the node, or (set by the server) which entries are invalid and left out.
  std::string problem;
};

// One incarnation that a node must run or stop.
struct ReplicaOrder {
  Assigned assigned;
  DeploymentSpec spec;  // of the revision that this incarnation runs
  friend bool operator==(const ReplicaOrder&, const ReplicaOrder&) = default;
};

// A gateway that the relay of a node opens connections to.
struct GatewayOrder {
  std::string name;
  std::string address;  // "10.0.0.5:8081"; ":8081": on the machine of the server
  std::string key;      // a shared key with which gateway and relay authenticate each other
  friend bool operator==(const GatewayOrder&, const GatewayOrder&) = default;
};

// Everything that a node must run. `number` grows with every change for that node within an epoch; in JSON its name
// is "revision".
struct NodeOrders {
  std::uint64_t epoch = 0, number = 0;
  std::vector<ReplicaOrder> orders;
  std::vector<GatewayOrder> gateways = {};
};

enum class EventKind : std::uint8_t {
  applied,   // desired state changed
  assigned,  // a replica got a place
  ready,
  failed,  // a replica ended unexpectedly, or a probe failed
  refused,
  stopped,
  moved,
  pending,     // a replica that fits nowhere
  rollout,     // started, paused, continued or finished
  node,        // joined, suspect, lost, back
  intent,      // cordon, drain, uncordon
  device,      // fault, quarantine
  server,      // started, became leader
  credential,  // created, used or revoked; never its text
};
std::string_view to_string(EventKind kind) noexcept;

struct Event {
  std::uint64_t id = 0;  // increasing; assigned by the store
  std::uint64_t at_ms = 0;
  EventKind kind = EventKind::server;
  std::string actor;    // "user:ann", "token:t3", "node:gpu-1", "controller"
  std::string subject;  // "chat/0", "node/gpu-1", "chat"
  std::string text;     // one sentence
  friend bool operator==(const Event&, const Event&) = default;
};
// Whether an event with this subject is about what a user names: the subject itself, the deployment of a replica
// ("chat" for "chat/0"), or a node without "node/".
bool is_about(std::string_view subject, std::string_view name) noexcept;

// read, operate and deploy each include the previous ones; the others stand alone.
enum class Role : std::uint8_t { read, operate, deploy, node, join, gateway, call };
std::string_view to_string(Role role) noexcept;
std::optional<Role> role_named(std::string_view name) noexcept;

// A token as it is stored: its hash, never its text.
struct Credential {
  std::string id;  // "t3"
  Role role = Role::read;
  std::string sha256;                       // hexadecimal, of the token
  std::optional<NodeId> node;               // of role node
  std::optional<std::uint64_t> expires_ms;  // wall time
  std::string made_by;
  std::uint64_t made_ms = 0;
  bool for_gateway = false;                     // role join: for a gateway, not for a node
  std::optional<std::string> name = {};         // name of the gateway or of the caller
  std::optional<std::string> address = {};      // role gateway: where relays reach it, as in GatewayOrder
  std::optional<DeploymentId> deployment = {};  // role call: the one that it may call
  std::uint32_t weight = 1;                     // role call: its share when callers wait
  std::optional<std::uint32_t> per_second = {}, concurrent_max = {};  // of role call
  bool may_explain = false;                                           // role call: see Caller
  UnknownFields unknown = {};
  friend bool operator==(const Credential&, const Credential&) = default;
};

// An operator's intent for one device. The ledger of its machine may have another; the stricter one applies.
struct DeviceIntent {
  Intent intent = Intent::in_service;
  std::string by;
  std::string reason;
  UnknownFields unknown = {};
  friend bool operator==(const DeviceIntent&, const DeviceIntent&) = default;
};

// A node as the store keeps it.
struct NodeRecord {
  NodeId id;
  Intent intent = Intent::in_service;
  std::string intent_by;  // who set the intent last
  std::string intent_reason = {};
  std::string inventory;  // the part of the last report that placement needs, as JSON (format/inventory_json.hpp)
  std::uint64_t joined_ms = 0;
  std::map<DeviceId, DeviceIntent> devices;  // devices that are not in service
  UnknownFields unknown = {};
  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

}  // namespace berth::fleet
