#include "agent/relay_targets.hpp"

#include <algorithm>
#include <map>

#include "http/request_checks.hpp"
#include "http/url.hpp"

namespace berth::agent {

using fleet::ReplicaReport;
using fleet::ReplicaState;

std::string address_of(const FoundJob& job) {
  if (job.port) return "http://127.0.0.1:" + std::to_string(*job.port);
  return job.socket.empty() ? "" : "unix:" + job.socket;
}

std::vector<relay::Target> relay_targets(std::span<const FoundJob> jobs, std::span<const ReplicaReport> reports,
                                         const fleet::NodeOrders& orders,
                                         const std::function<std::string(const std::string& job)>& folder_of) {
  std::map<std::string, ReplicaState> states;  // by job; a second job of a replica is not in any report
  for (const ReplicaReport& report : reports) states.emplace(report.job, report.state);
  std::vector<relay::Target> targets;
  for (const FoundJob& job : jobs) {
    const auto state = states.find(job.id);
    if (job.state != FoundState::running || job.is_leftover || address_of(job).empty() || !job.direct.empty() ||
        state == states.end())
      continue;
    const bool is_ready = state->second == ReplicaState::ready;
    // It may still have requests from when it was ready.
    const bool was_ready = state->second == ReplicaState::unready || state->second == ReplicaState::stopping;
    if (!is_ready && !was_ready) continue;
    const auto order = std::find_if(orders.orders.begin(), orders.orders.end(),
                                    [&](const fleet::ReplicaOrder& entry) { return entry.assigned.key() == job.key; });
    const ServingOptions serving = order == orders.orders.end() ? ServingOptions() : order->spec.serving;
    targets.push_back(
        {to_string(job.key), address_of(job), serving.max_concurrent, !is_ready || job.is_stopping, folder_of(job.id)});
  }
  std::sort(targets.begin(), targets.end(),
            [](const relay::Target& a, const relay::Target& b) { return a.name < b.name; });
  return targets;
}

std::optional<std::string> gateway_url(const std::string& address, const std::string& server) {
  const Result<http::Url> own = http::parse_url(server);
  if (!own) return std::nullopt;
  const bool is_here = own->kind == http::Url::Kind::unix_socket || http::is_loopback_name(own->host);
  std::string host = is_here ? "127.0.0.1" : own->host;
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  const std::string text = "http://" + (address.starts_with(':') ? host : "") + address;
  const Result<http::Url> url = http::parse_url(text);
  if (!url || (http::is_loopback_name(url->host) && !is_here)) return std::nullopt;
  return text;
}

std::vector<relay::GatewayAddress> relay_gateways(const fleet::NodeOrders& orders, const std::string& server) {
  std::vector<relay::GatewayAddress> gateways;
  for (const fleet::GatewayOrder& gateway : orders.gateways)
    if (std::optional<std::string> url = gateway_url(gateway.address, server))
      gateways.push_back({gateway.name, *std::move(url), gateway.key});
  return gateways;
}

}  // namespace berth::agent
