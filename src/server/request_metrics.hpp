// Counts of requests for Prometheus, with the gateway as a label: a sum over gateways would fall when one of them
// ends, and Prometheus reads a falling counter as a restart.
#pragma once

#include <string>

#include "server/gateway_reports.hpp"

namespace berth::server {

// For the current gateways; empty if there are none.
std::string request_metrics_text(const GatewayReports& reports, TimePoint now);

}  // namespace berth::server
