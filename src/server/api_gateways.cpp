// The part of the API about served deployments, for people and for gateways.
#include <boost/json.hpp>

#include "berth/shard_table.hpp"
#include "fleet_format/fleet_json.hpp"
#include "http/listening.hpp"
#include "http/request_checks.hpp"
#include "server/answers.hpp"
#include "server/api.hpp"
#include "server/gateway_view.hpp"
#include "server/unconnected.hpp"

namespace berth::server {

namespace json = boost::json;

namespace {

constexpr std::chrono::milliseconds gateways_every{100};

std::uint64_t number_in(const http::Request& request, const char* name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? 0 : read_number(found->second, UINT64_MAX).value_or(0);
}

}  // namespace

json::array Api::connection_warnings() const {
  json::array warnings;
  for (const Unconnected& found : unconnected_nodes(leader_, reports_))
    warnings.push_back(json::object{{"subject", "gateway " + found.gateway}, {"text", text_of(found, "it")}});
  return warnings;
}

void Api::get_endpoints(const Call& call) {
  json::array deployments;
  for (fleet::ServedDeployment& deployment : served_deployments(leader_, true)) {
    deployment.shards.reset();  // /api/v1/shards has them
    deployment.traffic = reports_.of_deployment(deployment.name.text(), leader_.now());
    for (fleet::Endpoint& endpoint : deployment.endpoints)
      endpoint.traffic = reports_.of_replica(endpoint.name, leader_.now());
    deployments.push_back(format::to_json(deployment));
  }
  json::array gateways;
  const auto current = reports_.current(leader_.now());
  for (const auto& [id, credential] : leader_.state().credentials) {
    if (credential.role != fleet::Role::gateway || !credential.address) continue;
    const std::string& name = credential.name.value_or(id);
    gateways.push_back(
        json::object{{"name", name}, {"address", *credential.address}, {"reports", current.contains(name)}});
  }
  json::array callers;
  for (const std::string& id : reports_.callers(leader_.now())) {
    auto traffic = id.empty() ? std::nullopt : reports_.of_caller(id, leader_.now());
    if (!traffic) continue;
    fleet::CallerTraffic caller{id, {}, {}, *std::move(traffic)};
    if (const auto key = leader_.state().credentials.find(id); key != leader_.state().credentials.end()) {
      caller.name = key->second.name;
      caller.deployment = key->second.deployment;
    }
    callers.push_back(format::to_json(caller));
  }
  json::object out{{"revision", leader_.change_count()},
                   {"deployments", std::move(deployments)},
                   {"gateways", std::move(gateways)},
                   {"callers", std::move(callers)}};
  if (json::array warnings = connection_warnings(); !warnings.empty()) out["warnings"] = std::move(warnings);
  send(call.responder, out);
}

// Includes the whole tables, so that a client can find the replica of a key without revealing the key.
void Api::get_shards(const Call& call) {
  json::array deployments;
  for (const fleet::ServedDeployment& deployment : served_deployments(leader_, true)) {
    const auto table = deployment.shards ? ShardTable::parse(*deployment.shards) : Result<ShardTable>(ShardTable());
    if (!deployment.shards || !table) continue;
    json::array owners;
    for (const ShardOwner& owner : table->owners()) {
      json::object shown{{"replica", owner.id.text()}, {"shards", table->shards_of(owner.id)}};
      // Shows the incarnation that serves if there are several.
      for (const fleet::Endpoint& endpoint : deployment.endpoints) {
        if (!endpoint.name.starts_with(owner.id.text() + "#")) continue;
        if (endpoint.state == fleet::EndpointState::ready || !shown.contains("state"))
          shown["state"] = to_string(endpoint.state);
      }
      owners.push_back(std::move(shown));
    }
    deployments.push_back(json::object{
        {"name", deployment.name.text()},
        {"key", deployment.serving.key.value_or("")},
        {"affinity", to_string(deployment.serving.affinity)},
        {"on_capacity_exhausted", to_string(deployment.serving.on_capacity_exhausted)},
        {"epoch", table->epoch()},
        {"shards", table->space().count()},
        {"shards_moved", leader_.state().desired.deployments.at(deployment.name).shards_moved},
        {"owners", std::move(owners)},
        {"table", *deployment.shards},
    });
    if (deployment.serving.fallback) deployments.back().as_object()["fallback"] = deployment.serving.fallback->text();
  }
  send(call.responder, json::object{{"revision", leader_.change_count()}, {"deployments", std::move(deployments)}});
}

// If a gateway listens on all addresses of its machine, relays use the address that its connection comes from.
void Api::put_gateway_address(const Call& call) {
  struct Body {
    std::uint64_t port = 0;
    std::string host;  // empty: it listens on all addresses of its machine
  };
  const auto body = read_body(call.request, [](const json::object& object, const std::string& where) {
    format::check_members(object, {"port", "host"}, where);
    Body read{format::whole_of(format::member(object, "port", where), where + ".port"),
              format::optional_member(object, "host", where, format::text_of).value_or("")};
    if (read.port == 0 || read.port > 65535) throw format::JsonError{where + ".port is not a port"};
    if (!read.host.empty() && !http::parse_listen_address(in_brackets(read.host) + ":1"))
      throw format::JsonError{where + ".host is not an IP address"};
    return read;
  });
  if (!body) return send(call.responder, body.error());
  const http::Peer& peer = call.request.peer;
  const bool is_here = peer.is_loopback || peer.unix_uid;
  const std::string host = !body->host.empty() ? body->host : is_here ? "" : peer.address;
  const std::string address = in_brackets(host) + ":" + std::to_string(body->port);
  if (const auto set = leader_.set_gateway_address(call.who.credential, address); !set)
    return send(call.responder, set.error());
  send(call.responder, json::object{{"address", address}});
}

// Brings the view of this gateway up to date.
const fleet::GatewayView& Api::show_gateway(const std::string& credential) {
  fleet::GatewayView& shown = gateways_shown_[credential];
  const auto found = leader_.state().credentials.find(credential);
  if (found == leader_.state().credentials.end()) return shown;
  fleet::GatewayView view = gateway_view(leader_, found->second, gateways_present_);
  view.number = shown.number;
  if (shown.number == 0 || view != shown) {
    shown = std::move(view);
    ++shown.number;
  }
  return shown;
}

void Api::get_gateway_endpoints(const Call& call) {
  const std::string credential = call.who.credential;
  const fleet::GatewayView& view = show_gateway(credential);
  const std::uint64_t wait_s = std::min(number_in(call.request, "wait_s"), wait_max_s);
  const std::uint64_t known = number_in(call.request, "revision");
  if (wait_s == 0 || view.epoch != number_in(call.request, "epoch") || view.number != known)
    return send(call.responder, format::to_json(as_seen_from(view, call.request.peer.is_loopback)));
  const std::uint64_t number = next_number_++;
  gateway_polls_.emplace(number, GatewayPoll{credential, known, call.responder, call.request.peer.is_loopback});
  call.responder.on_gone([this, number] { gateway_polls_.erase(number); });
  hooks_.after(std::chrono::seconds(wait_s), [this, number] { answer_gateway(number, true); });
}

// `is_late`: answers even if nothing has changed.
void Api::answer_gateway(std::uint64_t number, bool is_late) {
  const auto found = gateway_polls_.find(number);
  if (found == gateway_polls_.end()) return;
  const GatewayPoll poll = found->second;
  if (!leader_.state().credentials.contains(poll.credential)) {
    gateways_shown_.erase(poll.credential);
    poll.responder.send(http::error_response(401, "not_logged_in", "a valid token is required"));
  } else {
    const fleet::GatewayView& view = show_gateway(poll.credential);
    if (view.number == poll.known && !is_late) return;
    send(poll.responder, format::to_json(as_seen_from(view, poll.is_here)));
  }
  gateway_polls_.erase(number);
}

void Api::notify_gateways() {
  if (gateways_are_due_ || gateway_polls_.empty()) return;
  gateways_are_due_ = true;
  hooks_.after(gateways_every, [this] {
    gateways_are_due_ = false;
    std::vector<std::uint64_t> waiting;
    for (const auto& [number, poll] : gateway_polls_) waiting.push_back(number);
    for (const std::uint64_t number : waiting) answer_gateway(number, false);
  });
}

}  // namespace berth::server
