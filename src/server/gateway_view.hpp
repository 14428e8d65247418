// What can be called, as gateways and people are told: made from what the leader has.
#pragma once

#include <vector>

#include "fleet/endpoints.hpp"
#include "server/leader.hpp"

namespace berth::server {

// Deployments whose replicas listen somewhere, with the incarnations that serve or are about to end. `with_gone`: also
// those that cannot be reached any more.
std::vector<fleet::ServedDeployment> served_deployments(const Leader& leader, bool with_gone);

// For one gateway: its keys are no one else's. Without a number.
fleet::GatewayView gateway_view(const Leader& leader, const fleet::Credential& gateway);

}  // namespace berth::server
