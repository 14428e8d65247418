#include "server/route_view.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "gateway/balance.hpp"
#include "gateway/routes.hpp"
#include "server/gateway_view.hpp"
#include "server/unconnected.hpp"

namespace berth::server {

using fleet::RouteAnswer;
using fleet::ServedDeployment;

namespace {

// Applies the first rule that finds a deployment.
void match(const gateway::FleetView& view, const RouteQuestion& question, RouteAnswer& answer) {
  const gateway::Routes routes(view.deployments);
  if (question.deployment) {
    if (view.deployments.contains(*question.deployment)) {
      answer.deployment = question.deployment;
      answer.matched_by = "deployment";
    } else {
      answer.text = "no deployment that takes requests is called \"" + question.deployment->text() + "\"";
    }
    return;
  }
  if ((answer.deployment = routes.by_address({question.host, question.path}))) {
    answer.matched_by = "address";
  } else if (!question.model.empty() && (answer.deployment = routes.by_model(question.model))) {
    answer.matched_by = "model";
  } else {
    answer.text = question.model.empty() ? "no deployment has this address; a request to it would get a 404"
                                         : "no deployment has this address or serves the model \"" + question.model +
                                               "\"; a request to it would get a 404";
  }
}

std::string when_full(const ServedDeployment& deployment) {
  switch (deployment.serving.on_capacity_exhausted) {
    case OnCapacityExhausted::queue: return "it would wait";
    case OnCapacityExhausted::reject: return "it would get a 429";
    case OnCapacityExhausted::fallback:
      return deployment.serving.fallback ? "it would go to " + deployment.serving.fallback->text() + " instead"
                                         : "it would get a 429";
  }
  return "it would wait";
}

// Uses the requests in flight at all gateways; a replica counts as ejected if all gateways skip it.
void assume_reported(gateway::Balance& balance, const ServedDeployment& deployment, const GatewayReports& reports,
                     TimePoint now) {
  const std::size_t gateways = reports.current(now).size();
  for (const fleet::Endpoint& endpoint : deployment.endpoints) {
    const auto traffic = reports.of_replica(endpoint.name, now);
    if (!traffic) continue;
    balance.assume(endpoint.name, static_cast<std::uint32_t>(traffic->in_flight),
                   gateways > 0 && traffic->ejected_by.size() == gateways, now);
  }
}

// Returns one entry for each gateway that lacks a connection to a node of these replicas, with only those nodes.
std::vector<Unconnected> unconnected_of(const ServedDeployment& deployment, const Leader& leader,
                                        const GatewayReports& reports) {
  std::vector<Unconnected> all = unconnected_nodes(leader, reports);
  for (Unconnected& found : all)
    std::erase_if(found.nodes, [&](const NodeId& node) {
      return std::none_of(deployment.endpoints.begin(), deployment.endpoints.end(),
                          [&](const fleet::Endpoint& endpoint) { return endpoint.node == node && !endpoint.address; });
    });
  std::erase_if(all, [](const Unconnected& found) { return found.nodes.empty(); });
  return all;
}

// The replicas that no gateway reaches.
std::set<std::string> out_of_reach(const ServedDeployment& deployment, const std::vector<Unconnected>& unconnected,
                                   std::size_t gateways) {
  std::map<NodeId, std::size_t> missing;
  for (const Unconnected& found : unconnected)
    for (const NodeId& node : found.nodes) ++missing[node];
  std::set<std::string> names;
  for (const fleet::Endpoint& endpoint : deployment.endpoints)
    if (const auto found = missing.find(endpoint.node);
        !endpoint.address && found != missing.end() && found->second == gateways)
      names.insert(endpoint.name);
  return names;
}

std::string when_unconnected(const ServedDeployment& deployment) {
  switch (deployment.serving.on_capacity_exhausted) {
    case OnCapacityExhausted::queue: return "it would wait, and get a 503 if none connects in time";
    case OnCapacityExhausted::reject: return "it would get a 503";
    case OnCapacityExhausted::fallback: break;
  }
  return deployment.serving.fallback ? when_full(deployment) : "it would get a 503";
}

}  // namespace

RouteAnswer route_view(const Leader& leader, const GatewayReports& reports, const RouteQuestion& question) {
  const TimePoint now = leader.now();
  RouteAnswer answer;
  for (const auto& [name, report] : reports.current(now)) answer.gateways.push_back(name);
  fleet::GatewayView routes;
  routes.deployments = served_deployments(leader, false);
  const gateway::FleetView view = gateway::indexed(routes);
  match(view, question, answer);
  if (!answer.deployment) return answer;
  const ServedDeployment& deployment = view.deployments.at(*answer.deployment);
  const std::string name = deployment.name.text(), subject = "the request is for " + name;
  const std::string advice = "berth why key KEY --deployment " + name + " shows where a key belongs";
  const std::vector<Unconnected> unconnected = unconnected_of(deployment, leader, reports);
  const auto add_unconnected = [&] {
    for (const Unconnected& found : unconnected) answer.text += "; " + text_of(found, "gateway " + found.gateway);
  };
  if (deployment.serving.key && deployment.serving.affinity == Affinity::strict) {
    answer.text = subject + ", and its key (" + *deployment.serving.key +
                  ") decides which replica gets it; without one it would get a 400; " + advice;
    add_unconnected();
    return answer;
  }
  const Policy* const policy = find_policy(deployment.serving.policy.value_or(std::string(gateway::default_policy)));
  gateway::Balance balance(policy ? *policy : *find_policy(gateway::default_policy));
  balance.set(deployment.endpoints);
  assume_reported(balance, deployment, reports, now);
  answer.policy = std::string(balance.policy());
  const std::set<std::string> unreachable = out_of_reach(deployment, unconnected, answer.gateways.size());
  const auto chosen = balance.look(0, now, &answer.candidates, unreachable);
  for (fleet::RequestCandidate& candidate : answer.candidates)
    if (candidate.verdict == fleet::CandidateVerdict::tried) candidate.verdict = fleet::CandidateVerdict::not_connected;
  if (chosen) {
    answer.replica = chosen->name;
    answer.text = subject + " and would go to " + chosen->name;
  } else if (deployment.endpoints.empty()) {
    answer.text = subject + ", which has no ready replica; it would get a 503";
  } else if (unreachable.size() == deployment.endpoints.size()) {
    answer.text = subject + ", and no gateway is connected to a node with a replica; " + when_unconnected(deployment);
  } else if (std::none_of(
                 deployment.endpoints.begin(), deployment.endpoints.end(),
                 [](const fleet::Endpoint& endpoint) { return endpoint.state == fleet::EndpointState::ready; })) {
    answer.text = subject + ", none of whose replicas is ready; " + when_full(deployment);
  } else {
    answer.text = subject + ", whose replicas are all busy; " + when_full(deployment);
  }
  if (chosen && deployment.serving.key)
    answer.text += "; if it has a key (" + *deployment.serving.key + "), the key decides, and " + advice;
  add_unconnected();
  return answer;
}

}  // namespace berth::server
