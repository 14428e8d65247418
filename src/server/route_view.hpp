// What would happen to a request now: made from what gateways are told and what they have reported, by the rules by
// which they decide (gateway/routes.hpp, gateway/balance.hpp).
#pragma once

#include <optional>
#include <string>

#include "fleet/requests.hpp"
#include "server/gateway_reports.hpp"
#include "server/leader.hpp"

namespace berth::server {

struct RouteQuestion {
  std::optional<DeploymentId> deployment;  // as in the header x-berth-deployment
  std::string host;                        // lower case, without a port
  std::string path;
  std::string model;  // that the body names; empty: none
};
fleet::RouteAnswer route_view(const Leader& leader, const GatewayReports& reports, const RouteQuestion& question);

}  // namespace berth::server
