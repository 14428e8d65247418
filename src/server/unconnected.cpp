#include "server/unconnected.hpp"

#include <algorithm>
#include <map>

#include "http/request_checks.hpp"

namespace berth::server {
namespace {

constexpr std::size_t named_max = 3;

std::string names_of(const std::vector<NodeId>& nodes) {
  std::string text = nodes.size() == 1 ? "node " : "nodes ";
  const std::size_t shown = nodes.size() > named_max + 1 ? named_max : nodes.size();
  for (std::size_t i = 0; i < shown; ++i)
    text += (i == 0 ? "" : i + 1 == nodes.size() ? " and " : ", ") + nodes[i].text();
  return text + (shown < nodes.size() ? " and " + std::to_string(nodes.size() - shown) + " more" : "");
}

// `address` may have a port.
bool is_on_loopback(const std::string& address) {
  const auto name = http::host_name(address);
  return http::is_loopback_name(name ? *name : address);
}

}  // namespace

std::vector<Unconnected> unconnected_nodes(const Leader& leader, const GatewayReports& reports) {
  std::map<std::string, std::string> addresses;
  for (const auto& [id, credential] : leader.state().credentials)
    if (credential.role == fleet::Role::gateway && credential.address)
      addresses[credential.name.value_or(id)] = *credential.address;
  std::vector<Unconnected> all;
  for (const auto& [name, report] : reports.current(leader.now())) {
    Unconnected found{name, addresses[name]};
    for (const NodeId& node : report->unconnected) {
      const LastReport* const last = leader.last_report(node);
      const bool is_well = last && leader.health(node) == controller::NodeHealth::healthy;
      if (!is_well || leader.is_ignored_by(node)) continue;
      found.nodes.push_back(node);
      found.is_elsewhere = found.is_elsewhere || (!last->address.empty() && !is_on_loopback(last->address));
    }
    std::sort(found.nodes.begin(), found.nodes.end());
    if (!found.nodes.empty()) all.push_back(std::move(found));
  }
  return all;
}

std::string gateway_place(const std::string& address) {
  return address.starts_with(':') ? "port " + address.substr(1) + " of the server's machine" : address;
}

std::string text_of(const Unconnected& found, const std::string& gateway) {
  const bool is_one = found.nodes.size() == 1;
  std::string text = names_of(found.nodes) + (is_one ? " has" : " have") + " no connection to " + gateway + ", so " +
                     (is_one ? "its" : "their") + " replicas get no requests from this gateway; ";
  if (is_on_loopback(found.address) && found.is_elsewhere)
    return text + "the gateway listens on " + found.address +
           ", which other machines cannot reach: give it another address with berth serve --gateway ADDRESS:PORT or "
           "berth gateway --listen ADDRESS:PORT";
  const std::string where = gateway_place(found.address);
  return text + "make sure that " + (is_one ? found.nodes.front().text() : "they") + " can connect to " +
         (where.empty() ? "that gateway" : where) + ", and see the log of berth agent there";
}

}  // namespace berth::server
