// Derives the state of this node's relay (relay/control.hpp) from that of the agent: which replicas can be called
// and where, and where the gateways are. Pure.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "agent/step.hpp"
#include "relay/control.hpp"

namespace berth::agent {

// Where requests for the replica go: "http://127.0.0.1:40001" or "unix:/path"; empty: requests cannot reach it.
std::string address_of(const FoundJob& job);

// One target for each replica that runs and that gateways call through the relay, by name. Only those reported as
// ready accept requests; those that did so before are drained. `folder_of` gives the folder of a job.
std::vector<relay::Target> relay_targets(std::span<const FoundJob> jobs, std::span<const fleet::ReplicaReport> reports,
                                         const fleet::NodeOrders& orders,
                                         const std::function<std::string(const std::string& job)>& folder_of);

// The gateway as the relay of this node reaches it. `address`: of a GatewayOrder; `server`: the URL of this agent's
// server. Absent: it cannot be reached from here, because it listens on the loopback address of another machine.
std::optional<std::string> gateway_url(const std::string& address, const std::string& server);
std::vector<relay::GatewayAddress> relay_gateways(const fleet::NodeOrders& orders, const std::string& server);

}  // namespace berth::agent
