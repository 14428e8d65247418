// What a gateway knows of the fleet (fleet/endpoints.hpp), in the form in which requests look for it.
#pragma once

#include <map>
#include <string>

#include "fleet/endpoints.hpp"

namespace berth::gateway {

using fleet::Caller;
using fleet::Endpoint;
using Deployment = fleet::ServedDeployment;

struct FleetView {
  std::map<DeploymentId, Deployment> deployments;
  std::map<std::string, Caller> callers;  // by sha256
};

inline FleetView indexed(const fleet::GatewayView& told) {
  FleetView view;
  for (const Deployment& deployment : told.deployments) view.deployments.emplace(deployment.name, deployment);
  for (const Caller& caller : told.callers) view.callers.emplace(caller.sha256, caller);
  return view;
}

// Takes no new requests.
inline bool is_draining(const Endpoint& endpoint) { return endpoint.state != fleet::EndpointState::ready; }

}  // namespace berth::gateway
