// What a gateway knows of the fleet (fleet/endpoints.hpp), indexed for the lookups of requests.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "fleet/endpoints.hpp"

namespace berth::gateway {

using fleet::Caller;
using fleet::Endpoint;
using Deployment = fleet::ServedDeployment;

struct FleetView {
  std::map<DeploymentId, Deployment> deployments;
  std::map<std::string, Caller> callers;  // by sha256
};

inline FleetView indexed(const fleet::GatewayView& gateway_view) {
  FleetView view;
  for (const Deployment& deployment : gateway_view.deployments) view.deployments.emplace(deployment.name, deployment);
  for (const Caller& caller : gateway_view.callers) view.callers.emplace(caller.sha256, caller);
  return view;
}

// "chat/0" of "chat/0#17".
inline std::string_view replica_of(const Endpoint& endpoint) {
  return std::string_view(endpoint.name).substr(0, endpoint.name.rfind('#'));
}

// Takes no new requests.
inline bool is_draining(const Endpoint& endpoint) { return endpoint.state != fleet::EndpointState::ready; }

}  // namespace berth::gateway
