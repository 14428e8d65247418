// Which nodes have no connection to which gateways, so that requests at those gateways do not reach their replicas:
// made from what gateways report. Nodes that are silent or ignore this server are left out.
#pragma once

#include <string>
#include <vector>

#include "server/gateway_reports.hpp"
#include "server/leader.hpp"

namespace berth::server {

struct Unconnected {
  std::string gateway, address;    // the address that relays get
  std::vector<NodeId> nodes = {};  // by name, at least one
  bool is_elsewhere = false;       // one of them is not on the server's machine
};
// Sorted by the name of the gateway.
std::vector<Unconnected> unconnected_nodes(const Leader& leader, const GatewayReports& reports);
// The address at which relays reach a gateway, for people: "port 8081 of the server's machine" for ":8081".
std::string gateway_place(const std::string& address);
// "node gpu-1 has no connection to `gateway`", what follows from it and what to do.
std::string text_of(const Unconnected& found, const std::string& gateway);

}  // namespace berth::server
