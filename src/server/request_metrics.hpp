// Counts of requests for Prometheus, with the gateway as a label: a sum over gateways would fall where one of them
// ends, and a counter that falls is read as one that began again.
#pragma once

#include <string>

#include "server/gateway_reports.hpp"

namespace berth::server {

// Of the gateways that are current; empty where there is none.
std::string request_metrics_text(const GatewayReports& reports, TimePoint now);

}  // namespace berth::server
