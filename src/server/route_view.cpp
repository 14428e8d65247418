#include "server/route_view.hpp"

#include <algorithm>

#include "gateway/balance.hpp"
#include "gateway/routes.hpp"
#include "server/gateway_view.hpp"

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

// Uses the requests in flight at all gateways; a replica counts as ejected if all of them skip it.
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

}  // namespace

RouteAnswer route_view(const Leader& leader, const GatewayReports& reports, const RouteQuestion& question) {
  const TimePoint now = leader.now();
  RouteAnswer answer;
  for (const auto& [name, report] : reports.current(now)) answer.gateways.push_back(name);
  fleet::GatewayView told;
  told.deployments = served_deployments(leader, false);
  const gateway::FleetView view = gateway::indexed(told);
  match(view, question, answer);
  if (!answer.deployment) return answer;
  const ServedDeployment& deployment = view.deployments.at(*answer.deployment);
  const std::string name = deployment.name.text(), subject = "the request is for " + name;
  const std::string advice = "berth why key KEY --deployment " + name + " shows where a key belongs";
  if (deployment.serving.key && deployment.serving.affinity == Affinity::strict) {
    answer.text = subject + ", and its key (" + *deployment.serving.key +
                  ") decides which replica gets it; without one it would get a 400; " + advice;
    return answer;
  }
  const Policy* const policy = find_policy(deployment.serving.policy.value_or(std::string(gateway::default_policy)));
  gateway::Balance balance(policy ? *policy : *find_policy(gateway::default_policy));
  balance.set(deployment.endpoints);
  assume_reported(balance, deployment, reports, now);
  answer.policy = std::string(balance.policy());
  const auto chosen = balance.look(0, now, &answer.candidates);
  if (chosen) {
    answer.replica = chosen->name;
    answer.text = subject + " and would go to " + chosen->name;
  } else if (deployment.endpoints.empty()) {
    answer.text = subject + ", which has no ready replica; it would get a 503";
  } else {
    answer.text = subject + ", whose replicas are all busy; " + when_full(deployment);
  }
  if (chosen && deployment.serving.key)
    answer.text += "; if it has a key (" + *deployment.serving.key + "), the key decides, and " + advice;
  return answer;
}

}  // namespace berth::server
