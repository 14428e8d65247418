// What can be called, in the form for gateways and people, derived from the leader's state.
#pragma once

#include <string>
#include <vector>

#include "fleet/endpoints.hpp"
#include "server/leader.hpp"

namespace berth::server {

// Deployments whose replicas listen somewhere, with the incarnations that serve or are about to end. `with_gone`:
// also those that can no longer be reached.
std::vector<fleet::ServedDeployment> served_deployments(const Leader& leader, bool with_gone);

// Formats a host before a port; IPv6 addresses need brackets.
inline std::string in_brackets(const std::string& host) {
  return host.find(':') == host.npos ? host : "[" + host + "]";
}

// The view for one gateway, whose keys no other gateway has. Without a number. `gateways`: how many share the limits
// of callers, at least one.
fleet::GatewayView gateway_view(const Leader& leader, const fleet::Credential& gateway, std::size_t gateways);

// The view as a gateway on this machine, or on another one, can use it: a loopback address means a different machine
// elsewhere.
fleet::GatewayView as_seen_from(fleet::GatewayView view, bool is_here);

}  // namespace berth::server
