// What a gateway knows of the fleet, as the server tells it: which deployments can be called and how, where their
// replicas are, who may call them, and which relays it may believe. Plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/deployment.hpp"
#include "berth/ids.hpp"

namespace berth::fleet {

enum class EndpointState : std::uint8_t {
  ready,
  draining,  // takes no new requests
  gone,      // cannot be reached: it has ended, or its node is silent
};
std::string_view to_string(EndpointState state) noexcept;

// One incarnation of a replica.
struct Endpoint {
  std::string name;  // "chat/0#17"
  NodeId node;
  std::uint32_t concurrent_max = 1;
  EndpointState state = EndpointState::ready;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// A deployment with the endpoints of its replicas.
struct ServedDeployment {
  DeploymentId name;
  std::string model;  // requests that name it in their body are for this deployment; empty: none
  Serving serving;
  bool idempotent = false;  // may be sent to a second replica when the first one has died
  std::vector<Endpoint> endpoints;
  std::optional<std::string> shards = {};  // as in Wanted
  friend bool operator==(const ServedDeployment&, const ServedDeployment&) = default;
};

// Who may call a deployment.
struct Caller {
  std::string id;      // "t7"
  std::string name;    // "app"
  std::string sha256;  // of its key
  DeploymentId deployment;
  std::uint32_t weight = 1;  // of its share where callers wait
  std::optional<std::uint32_t> per_second, concurrent_max;
  std::optional<std::uint64_t> expires_ms;  // wall time
  friend bool operator==(const Caller&, const Caller&) = default;
};

// The relay of a node, as one gateway knows it.
struct RelayKey {
  NodeId node;
  std::string key;  // as in GatewayOrder
  friend bool operator==(const RelayKey&, const RelayKey&) = default;
};

struct GatewayView {
  std::uint64_t epoch = 0, number = 0;  // of the server, and of the view within its epoch
  std::vector<ServedDeployment> deployments;
  std::vector<Caller> callers;
  std::vector<RelayKey> relays;
  friend bool operator==(const GatewayView&, const GatewayView&) = default;
};

}  // namespace berth::fleet
