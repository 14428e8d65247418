// What can be called, as gateways and people are told: made from what the leader has.
#pragma once

#include <string>
#include <vector>

#include "fleet/endpoints.hpp"
#include "server/leader.hpp"

namespace berth::server {

// Deployments whose replicas listen somewhere, with the incarnations that serve or are about to end. `with_gone`: also
// those that cannot be reached any more.
std::vector<fleet::ServedDeployment> served_deployments(const Leader& leader, bool with_gone);

// A host before a port; an address of IPv6 needs them.
inline std::string in_brackets(const std::string& host) {
  return host.find(':') == host.npos ? host : "[" + host + "]";
}

// For one gateway: its keys are no one else's. Without a number.
fleet::GatewayView gateway_view(const Leader& leader, const fleet::Credential& gateway);

// As a gateway on this machine, or on another one, can use it: a loopback address of this machine is another machine
// there.
fleet::GatewayView as_seen_from(fleet::GatewayView view, bool is_here);

}  // namespace berth::server
