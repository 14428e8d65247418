// The part of the API for gateways' reports, single requests, and predictions of how a request would be routed.
#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "fleet_format/fleet_json.hpp"
#include "gateway/routes.hpp"
#include "http/request_checks.hpp"
#include "server/answers.hpp"
#include "server/api.hpp"
#include "server/gateway_view.hpp"
#include "server/route_view.hpp"

namespace berth::server {

namespace json = boost::json;

void Api::put_gateway_report(const Call& call) {
  auto report = read_body(call.request, [](const json::object& body, const std::string& where) {
    format::check_members(body, {"report"}, where);
    return format::gateway_report_of(format::member(body, "report", where), where + ".report");
  });
  if (!report) return send(call.responder, report.error());
  const auto found = leader_.state().credentials.find(call.who.credential);
  const std::string name =
      found == leader_.state().credentials.end() ? call.who.credential : found->second.name.value_or(found->first);
  const std::size_t records = report->requests.size();
  note_report(name, *report);
  reports_.take(name, *std::move(report), leader_.now());
  send(call.responder, json::object{{"requests", records}});
}

void Api::note_report(const std::string& gateway, const fleet::GatewayReport& report) {
  if (!gateway_events_.is_needed(gateway, report)) return;
  GatewayEvents::KnownSubjects known;
  for (const auto& [id, wanted] : leader_.state().desired.deployments) known.deployments.insert(id.text());
  for (const auto& [node, list] : leader_.state().assignments)
    for (const fleet::Assigned& replica : list.assigned) known.incarnations.insert(to_string(replica.key()));
  static_cast<void>(leader_.note(gateway_events_.take(gateway, report, known, leader_.now())));
}

void Api::look_at_gateways() {
  std::set<std::string> expected, reporting;
  for (const auto& [id, credential] : leader_.state().credentials)
    if (credential.role == fleet::Role::gateway && credential.address) expected.insert(credential.name.value_or(id));
  for (const auto& [name, report] : reports_.current(leader_.now())) reporting.insert(name);
  static_cast<void>(leader_.note(gateway_events_.look(expected, reporting, leader_.now())));
  const std::size_t present = std::max<std::size_t>(1, gateway_events_.present());
  if (std::exchange(gateways_present_, present) != present) notify_gateways();
  const fleet::Desired& desired = leader_.state().desired;
  if (gateway_events_.has_compared(desired.version)) return;
  fleet::GatewayView view;
  view.deployments = served_deployments(leader_, false);
  const gateway::Routes routes(gateway::indexed(view).deployments);
  static_cast<void>(leader_.note(gateway_events_.compare_routes(desired.version, desired.cluster, routes.conflicts())));
}

void Api::get_request(const Call& call) {
  const std::string& id = call.part("ID");
  json::array requests;
  for (const fleet::RequestRecord& record : reports_.find(id)) requests.push_back(format::to_json(record));
  if (requests.empty())
    return call.responder.send(http::error_response(404, "not_found",
                                                    "the server has no record of request " + format::in_quotes(id),
                                                    "take the id from x-request-id of an answer. A record arrives a "
                                                    "second after the answer, and a server keeps the last 10,000 "
                                                    "since it started"));
  send(call.responder, json::object{{"requests", std::move(requests)}});
}

void Api::post_route(const Call& call) {
  const auto question = read_body(call.request, [](const json::object& body, const std::string& where) {
    format::check_members(body, {"deployment", "host", "path", "model"}, where);
    const auto text = [&](const char* name) {
      return format::optional_member(body, name, where, format::text_of).value_or("");
    };
    RouteQuestion read;
    if (const std::string deployment = text("deployment"); !deployment.empty()) read.deployment.emplace(deployment);
    read.host = http::host_name(text("host")).value_or("");
    read.path = text("path");
    read.model = text("model");
    if (!read.deployment && read.path.empty() && read.host.empty() && read.model.empty())
      throw format::JsonError{where + " names neither a deployment, nor a path, a host or a model"};
    read.path = read.path.substr(0, read.path.find('?'));
    return read;
  });
  if (!question) return send(call.responder, question.error());
  send(call.responder, json::object{{"route", format::to_json(route_view(leader_, reports_, *question))}});
}

}  // namespace berth::server
