// What a gateway knows of the fleet, as the server tells it: which deployments can be called and how, where their
// replicas are, and who may call them. Plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "berth/deployment.hpp"
#include "berth/ids.hpp"

namespace berth::gateway {

// One incarnation of a replica.
struct Endpoint {
  std::string name;  // "chat/0#17"
  NodeId node;
  std::uint32_t concurrent_max = 1;
  bool is_draining = false;  // takes no new requests
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

struct Deployment {
  DeploymentId name;
  std::string model;                // requests that name it in their body are for this deployment; empty: none
  std::optional<std::string> host;  // requests for this host, without a port
  std::optional<std::string> path;  // requests below this path: "/chat"; it is not removed
  bool is_open = false;             // callers on this machine need no key
  OnCapacityExhausted on_full = OnCapacityExhausted::queue;
  std::optional<DeploymentId> fallback;
  std::chrono::milliseconds queue_time{30'000};
  std::uint32_t queue_max = 1000;
  bool idempotent = false;  // may be sent to a second replica when the first one has died
  std::vector<Endpoint> endpoints;
  friend bool operator==(const Deployment&, const Deployment&) = default;
};

// Who may call a deployment.
struct Caller {
  std::string id;      // "t7"
  std::string sha256;  // of its key
  DeploymentId deployment;
  std::uint32_t weight = 1;  // of its share where callers wait
  std::optional<std::uint32_t> per_second, concurrent_max;
  std::optional<std::uint64_t> expires_ms;  // wall time
  friend bool operator==(const Caller&, const Caller&) = default;
};

struct FleetView {
  std::uint64_t revision = 0;
  std::map<DeploymentId, Deployment> deployments;
  std::map<std::string, Caller> callers;  // by sha256
  friend bool operator==(const FleetView&, const FleetView&) = default;
};

}  // namespace berth::gateway
