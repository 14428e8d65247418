// What would happen to a request now, from the views and reports of gateways and by their own rules
// (gateway/routes.hpp, gateway/balance.hpp).
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
  std::string model;  // the model that the body names; empty: none
};
fleet::RouteAnswer route_view(const Leader& leader, const GatewayReports& reports, const RouteQuestion& question);

}  // namespace berth::server
