// Metrics of the fleet as this server knows it: nodes, GPUs, deployments, replicas, jobs, the store, and the server
// itself. Those of requests are in request_metrics.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "server/fleet_counts.hpp"
#include "server/gateway_reports.hpp"
#include "server/leader.hpp"

namespace berth::server {

struct StoreSpace {
  std::uint64_t bytes = 0;       // size of the store's files
  std::uint64_t bytes_free = 0;  // free on their file system, for users other than root
};
// Returns nullopt if the store is in memory, or if its files cannot be inspected.
std::optional<StoreSpace> store_space(const std::string& store);

// Facts that the leader does not know.
struct ServerFacts {
  std::string version;
  std::uint64_t started_ms = 0;
  std::size_t connections = 0, connections_max = 0;
  std::optional<StoreSpace> store;
};

std::string fleet_metrics_text(const Leader& leader, const FleetCounts& counts, const GatewayReports& gateways,
                               const ServerFacts& server);

}  // namespace berth::server
