// What a server sends to gateways about the fleet: which deployments can be called and how, where their replicas
// are, who may call them, and which relays are trusted. Plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/ids.hpp"
#include "deployment/names.hpp"

namespace berth::fleet {

enum class EndpointState : std::uint8_t {
  ready,
  unready,   // runs, and its readiness probe fails; reported to gateways as draining
  draining,  // takes no new requests
  gone,      // cannot be reached: it has ended, or its node is silent
};
std::string_view to_string(EndpointState state) noexcept;

// Requests of a deployment or to a replica in the last ten to twenty seconds, as the gateways count them. Unknown
// values are absent.
struct Traffic {
  std::optional<double> requests_per_s, rejected_per_s, failed_per_s, retried_per_s;
  std::optional<double> first_byte_s_p50, first_byte_s_p99, total_s_p50, total_s_p99;
  std::uint64_t waiting = 0, in_flight = 0;  // now
  std::vector<std::string> ejected_by;       // gateways that temporarily skip the replica
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

// One incarnation of a replica.
struct Endpoint {
  std::string name;  // "chat/0#17"
  NodeId node;
  std::uint32_t concurrent_max = 1;
  EndpointState state = EndpointState::ready;
  std::vector<DeviceId> devices = {};
  std::optional<Traffic> traffic = {};  // for people; not sent to gateways
  // "10.0.0.5:41001", where gateways connect to it. Absent: they reach it through the relay of its node. Empty: not
  // known, or not reachable from the machine of this gateway.
  std::optional<std::string> address = {};
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// A deployment with the endpoints of its replicas.
struct ServedDeployment {
  DeploymentId name;
  std::string model;  // requests with this model in their body go to this deployment; empty: none
  ServingOptions serving;
  bool idempotent = false;  // may be sent to a second replica if the first one has died
  std::vector<Endpoint> endpoints;
  std::optional<std::string> shards = {};  // as in DesiredDeployment
  std::optional<Traffic> traffic = {};     // as in Endpoint
  friend bool operator==(const ServedDeployment&, const ServedDeployment&) = default;
};

// Who may call a deployment.
struct Caller {
  std::string id;      // "t7"
  std::string name;    // "app"
  std::string sha256;  // of its key
  DeploymentId deployment;
  std::uint32_t weight = 1;                                 // weight of its share when callers wait
  std::optional<std::uint32_t> per_second, concurrent_max;  // the share of this gateway
  std::optional<std::uint64_t> expires_ms;                  // wall time
  bool may_explain = false;  // it may request which replica answered, and on which devices
  friend bool operator==(const Caller&, const Caller&) = default;
};

// The requests of a caller, for people.
struct CallerTraffic {
  std::string id;                          // "t7", "local" without a key, "other": of callers beyond those with a row
  std::optional<std::string> name;         // of its key
  std::optional<DeploymentId> deployment;  // the deployment that its key is for
  Traffic traffic;
};

// The relay of a node, as one gateway knows it.
struct RelayKey {
  NodeId node;
  std::string key;  // as in GatewayOrder
  friend bool operator==(const RelayKey&, const RelayKey&) = default;
};

struct GatewayView {
  std::uint64_t epoch = 0, number = 0;  // epoch of the server, and number of the view within it
  std::vector<ServedDeployment> deployments;
  std::vector<Caller> callers;
  std::vector<RelayKey> relays;
  friend bool operator==(const GatewayView&, const GatewayView&) = default;
};

}  // namespace berth::fleet
