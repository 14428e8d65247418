#include "server/gateway_view.hpp"

#include <algorithm>
#include <map>

#include "deployment/command.hpp"
#include "server/access.hpp"

namespace berth::server {

using fleet::EndpointState;
using fleet::ReplicaState;
using fleet::Role;

namespace {

// Whether its replicas are given a port or a socket to listen on.
bool can_be_called(const DeploymentSpec& spec) {
  return deployment::uses_placeholder(spec, "port") || deployment::uses_placeholder(spec, "socket");
}

// Returns nothing if the incarnation does not serve yet.
std::optional<EndpointState> state_of(const Leader& leader, const fleet::Assigned& assigned) {
  const NodeId& node = assigned.place.node;
  if (leader.health(node) == controller::NodeHealth::lost) return EndpointState::gone;
  const LastReport* const last = leader.last_report(node);
  // A restarted server has no reports from its nodes yet. The node's relay knows whether the replica serves.
  if (!last) return assigned.stopping ? EndpointState::draining : EndpointState::ready;
  for (const fleet::ReplicaReport& report : last->report.replicas) {
    if (report.key != assigned.key()) continue;
    switch (report.state) {
      case ReplicaState::ready: return assigned.stopping ? EndpointState::draining : EndpointState::ready;
      case ReplicaState::unready: return assigned.stopping ? EndpointState::draining : EndpointState::unready;
      case ReplicaState::stopping: return EndpointState::draining;
      case ReplicaState::backing_off:
      case ReplicaState::gone: return EndpointState::gone;
      case ReplicaState::waiting:
      case ReplicaState::starting:
      case ReplicaState::refused: return std::nullopt;
    }
  }
  return std::nullopt;
}

// Returns nothing if gateways reach the incarnation through its node's relay. Uses the revision that it runs, because
// the deployment may have changed since.
std::optional<std::string> direct_address_of(const Leader& leader, const fleet::DesiredDeployment& wanted,
                                             const fleet::Assigned& assigned) {
  const DeploymentSpec* const spec = controller::spec_of(wanted, assigned.revision);
  if (!spec || spec->serving.reach != Reach::direct) return std::nullopt;
  const std::string host = leader.address_of(assigned.place.node);
  const LastReport* const last = leader.last_report(assigned.place.node);
  if (host.empty() || !last) return "";
  for (const fleet::ReplicaReport& report : last->report.replicas)
    if (report.key == assigned.key() && report.port) return in_brackets(host) + ":" + std::to_string(*report.port);
  return "";
}

// Rounded up, so that no limit becomes zero.
std::optional<std::uint32_t> share_of(std::optional<std::uint32_t> limit, std::size_t gateways) {
  if (!limit) return limit;
  return static_cast<std::uint32_t>((*limit + gateways - 1) / gateways);
}

}  // namespace

std::vector<fleet::ServedDeployment> served_deployments(const Leader& leader, bool with_gone) {
  std::vector<fleet::ServedDeployment> served;
  std::map<DeploymentId, std::size_t> index;
  for (const auto& [name, wanted] : leader.state().desired.deployments) {
    const DeploymentSpec& spec = wanted.spec;
    if (!can_be_called(spec)) continue;
    index[name] = served.size();
    served.push_back({name, spec.model, spec.serving, spec.idempotent, {}, wanted.shards});
  }
  for (const auto& [node, list] : leader.state().assignments) {
    for (const fleet::Assigned& replica : list.assigned) {
      const auto at = index.find(replica.place.deployment);
      if (at == index.end()) continue;
      fleet::ServedDeployment& deployment = served[at->second];
      const auto state = state_of(leader, replica);
      if (!state || (*state == EndpointState::gone && !with_gone)) continue;
      deployment.endpoints.push_back(
          {to_string(replica.key()),
           node,
           deployment.serving.max_concurrent,
           *state,
           replica.place.devices,
           {},
           direct_address_of(leader, leader.state().desired.deployments.at(replica.place.deployment), replica)});
    }
  }
  for (fleet::ServedDeployment& deployment : served) {
    std::sort(deployment.endpoints.begin(), deployment.endpoints.end(),
              [](const fleet::Endpoint& a, const fleet::Endpoint& b) { return a.name < b.name; });
  }
  return served;
}

fleet::GatewayView as_seen_from(fleet::GatewayView view, bool is_here) {
  if (is_here) return view;
  for (fleet::ServedDeployment& deployment : view.deployments)
    for (fleet::Endpoint& endpoint : deployment.endpoints)
      if (endpoint.address && (endpoint.address->starts_with("127.") || endpoint.address->starts_with("[::1]")))
        endpoint.address = "";
  return view;
}

fleet::GatewayView gateway_view(const Leader& leader, const fleet::Credential& gateway, std::size_t gateways) {
  fleet::GatewayView view;
  view.epoch = leader.epoch();
  view.deployments = served_deployments(leader, false);
  // Gateways of earlier versions do not know the state `unready`.
  for (fleet::ServedDeployment& deployment : view.deployments)
    for (fleet::Endpoint& endpoint : deployment.endpoints)
      if (endpoint.state == EndpointState::unready) endpoint.state = EndpointState::draining;
  for (const auto& [id, credential] : leader.state().credentials) {
    if (credential.role == Role::call && credential.deployment)
      view.callers.push_back({id, credential.name.value_or(id), credential.sha256, *credential.deployment,
                              credential.weight, share_of(credential.per_second, gateways),
                              share_of(credential.concurrent_max, gateways), credential.expires_ms,
                              credential.may_explain});
    if (credential.role == Role::node && credential.node)
      view.relays.push_back({*credential.node, relay_key(credential, gateway)});
  }
  return view;
}

}  // namespace berth::server
