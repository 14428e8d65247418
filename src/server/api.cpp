#include "server/api.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <tuple>

#include "fleet_format/fleet_json.hpp"
#include "format/json_reading.hpp"
#include "placement/nearest_name.hpp"
#include "server/answers.hpp"
#include "server/openapi.hpp"
#include "server/request_metrics.hpp"
#include "server/views.hpp"
#include "world/wall_time.hpp"

namespace berth::server {

namespace json = boost::json;
using fleet::Role;

namespace {

constexpr std::chrono::milliseconds change_every{250}, api_tick_every{1'000};
constexpr std::uint64_t events_max = 1000;
// Time for a gateway to start before it counts as missing.
constexpr Duration gateway_start_time = std::chrono::seconds(10);

Intent intent_in(const json::object& body, const std::string& where) {
  return format::intent_of(format::member(body, "intent", where), where + ".intent");
}

}  // namespace

Api::Api(std::string version, Access access, http::StaticFiles page, Leader& leader, const Signing& signing,
         Hooks hooks)
    : version_(std::move(version)),
      access_(std::move(access)),
      page_(std::move(page)),
      hooks_(std::move(hooks)),
      leader_(leader),
      signing_(signing),
      started_ms_(world::wall_time_ms()) {
  leader_.notify([this] { changed(); }, [this](const NodeId& node) { orders_changed(node); });
}

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route>& table = *new std::vector<Route>{
      {"GET", "/api/v1/openapi.json", Role::read, &Api::get_openapi},
      {"GET", "/api/v1/status", Role::read, &Api::get_status},
      {"GET", "/api/v1/nodes", Role::read, &Api::get_nodes},
      {"GET", "/api/v1/nodes/{NAME}", Role::read, &Api::get_node},
      {"PUT", "/api/v1/nodes/{NAME}/intent", Role::operate, &Api::put_node_intent},
      {"PUT", "/api/v1/nodes/{NAME}/devices/{DEVICE}/intent", Role::operate, &Api::put_device_intent},
      {"DELETE", "/api/v1/nodes/{NAME}", Role::operate, &Api::delete_node},
      {"GET", "/api/v1/nodes/{NAME}/history", Role::read, &Api::get_history},
      {"GET", "/api/v1/project", Role::read, &Api::get_project},
      {"PUT", "/api/v1/project", Role::deploy, &Api::put_project},
      {"GET", "/api/v1/deployments", Role::read, &Api::get_deployments},
      {"GET", "/api/v1/deployments/{NAME}", Role::read, &Api::get_deployment},
      {"DELETE", "/api/v1/deployments/{NAME}", Role::deploy, &Api::delete_deployment},
      {"POST", "/api/v1/deployments/{NAME}/scale", Role::deploy, &Api::post_scale},
      {"POST", "/api/v1/deployments/{NAME}/rollout", Role::operate, &Api::post_rollout},
      {"GET", "/api/v1/replicas", Role::read, &Api::get_replicas},
      {"GET", "/api/v1/replicas/{NAME}/{N}", Role::read, &Api::get_replica},
      {"GET", "/api/v1/replicas/{NAME}/{N}/logs", Role::operate, &Api::get_logs},
      {"GET", "/api/v1/endpoints", Role::read, &Api::get_endpoints},
      {"GET", "/api/v1/shards", Role::read, &Api::get_shards},
      {"GET", "/api/v1/requests/{ID}", Role::operate, &Api::get_request},
      {"POST", "/api/v1/route", Role::operate, &Api::post_route},
      {"GET", "/api/v1/jobs", Role::read, &Api::get_jobs},
      {"GET", "/api/v1/events", Role::read, &Api::get_events},
      {"GET", "/api/v1/stream", Role::read, &Api::get_stream},
      {"GET", "/api/v1/tokens", Role::deploy, &Api::get_tokens},
      {"POST", "/api/v1/tokens", Role::deploy, &Api::post_token},
      {"DELETE", "/api/v1/tokens/{ID}", Role::deploy, &Api::delete_token},
      {"POST", "/api/v1/certificate", Role::read, &Api::post_certificate},
      {"POST", "/api/v1/agent/certificate", Role::node, &Api::post_certificate},
      {"POST", "/api/v1/login", std::nullopt, &Api::post_login},
      {"POST", "/api/v1/logout", std::nullopt, &Api::post_logout},
      {"GET", "/api/v1/session", Role::read, &Api::get_session},
      {"POST", "/api/v1/agent/join", Role::join, &Api::post_join},
      {"POST", "/api/v1/agent/report", Role::node, &Api::post_report},
      {"GET", "/api/v1/agent/assignments", Role::node, &Api::get_assignments},
      {"POST", "/api/v1/agent/logs/{ID}", Role::node, &Api::post_logs},
      {"POST", "/api/v1/gateway/certificate", Role::gateway, &Api::post_certificate},
      {"PUT", "/api/v1/gateway/address", Role::gateway, &Api::put_gateway_address},
      {"GET", "/api/v1/gateway/endpoints", Role::gateway, &Api::get_gateway_endpoints},
      {"PUT", "/api/v1/gateway/report", Role::gateway, &Api::put_gateway_report},
  };
  return table;
}

bool Api::answer_outside_api(const http::Request& request, const http::Responder& responder) {
  if (request.path == "/healthz") {
    send(responder, json::object{{"status", "ok"}});
  } else if (request.path == "/readyz") {
    if (!leader_.problem().empty())
      responder.send(
          http::error_response(503, "unavailable", "the controller cannot decide", "berth status shows why"));
    else
      send(responder, json::object{{"status", "ok"}});
  } else if (request.path == "/metrics") {
    // Metrics name nodes and deployments, so only callers on this machine get them without a token.
    if (request.peer.is_loopback || admit(request, Role::read, responder))
      responder.send({200,
                      {{"content-type", "text/plain; version=0.0.4; charset=utf-8"}},
                      fleet_metrics_text(leader_, counts_, reports_,
                                         {version_, started_ms_, hooks_.connections(), hooks_.connections_max,
                                          hooks_.store_space ? hooks_.store_space() : std::nullopt}) +
                          request_metrics_text(reports_, leader_.now())});
  } else if (auto file = page_.answer(request)) {
    responder.send(*std::move(file));
  } else {
    return false;
  }
  return true;
}

std::size_t Api::body_bytes(const http::Request& head) const {
  constexpr std::size_t login_bytes = 4 * 1024, stranger_bytes = 64 * 1024, body_bytes = 4 * 1024 * 1024;
  for (const char* path : {"/api/v1/login", "/api/v1/logout", "/api/v1/certificate", "/api/v1/agent/join",
                           "/api/v1/agent/certificate", "/api/v1/gateway/certificate", "/api/v1/gateway/address"})
    if (head.path == path) return login_bytes;
  const bool is_known = access_.who(head, leader_.state().credentials, world::wall_time_ms()).has_value();
  return is_known ? body_bytes : stranger_bytes;
}

std::optional<Who> Api::admit(const http::Request& request, Role role, const http::Responder& responder) {
  std::optional<Who> who = access_.who(request, leader_.state().credentials, world::wall_time_ms());
  const auto& certificate = request.peer.certificate;
  if (!who && certificate && certificate->expires_ms <= world::wall_time_ms()) {
    responder.send(http::error_response(401, "not_logged_in", "this certificate has expired",
                                        "get a new one: join again with this node, or use berth login"));
    return who;
  }
  // Checked as of time 0, so that an expired token is still recognised.
  if (!who && access_.who(request, leader_.state().credentials, 0)) {
    responder.send(
        http::error_response(401, "not_logged_in", "this token has expired", "berth token add creates another"));
  } else if (!who) {
    responder.send(http::error_response(401, "not_logged_in", "a valid token is required"));
  } else if (!may(*who, role)) {
    responder.send(http::error_response(403, "forbidden",
                                        "this needs the role " + std::string(to_string(role)) +
                                            (who->is_session ? "; this session has " : "; this token has ") +
                                            std::string(to_string(who->role)),
                                        advice_about_role(*who)));
    who.reset();
  }
  return who;
}

void Api::handle(const http::Request& request, const http::Responder& responder) {
  const std::vector<std::string>& path = request.segments;
  if (path.size() < 2 || path[0] != "api" || path[1] != "v1") {
    if (!answer_outside_api(request, responder)) responder.send(http::error_response(404, "not_found", "unknown path"));
    return;
  }
  const Route* found = nullptr;
  bool is_known_path = false;
  for (const Route& route : routes()) {
    if (!route.path.matches(path)) continue;
    if (route.method == request.method) found = &route;
    is_known_path = true;
  }
  if (!found)
    return responder.send(
        is_known_path
            ? http::error_response(405, "wrong_method", "this path does not support this method")
            : http::error_response(404, "not_found", "unknown path", "docs/reference/openapi.json lists all paths"));
  Who who;
  if (found->role) {
    const std::optional<Who> known = admit(request, *found->role, responder);
    if (!known) return;
    who = *known;
  }
  if (!request.body.empty() && found->handler != &Api::post_logs && !is_json(request))
    return responder.send(
        http::error_response(415, "wrong_type", "the body is not JSON", "set Content-Type: application/json"));
  (this->*found->handler)({*found, request, who, responder});
}

void Api::decide() {
  // Errors are left to the loop, which reports them and tries again.
  static_cast<void>(leader_.step());
  hooks_.wake();
}

void Api::get_openapi(const Call& call) {
  call.responder.send(http::json_response(200, std::string(openapi_document())));
}

void Api::get_status(const Call& call) {
  json::object status = status_view(leader_, version_, started_ms_);
  const TimePoint now = leader_.now();
  if (own_gateway_ && now - own_gateway_->second > gateway_start_time &&
      !reports_.current(now).contains(own_gateway_->first)) {
    if (!status.contains("warnings")) status["warnings"] = json::array();
    status["warnings"].as_array().push_back(
        json::object{{"subject", "gateway " + own_gateway_->first},
                     {"text", "it does not report and may not be running; see the log of berth serve"}});
  }
  for (json::value& warning : connection_warnings()) {
    if (!status.contains("warnings")) status["warnings"] = json::array();
    status["warnings"].as_array().push_back(std::move(warning));
  }
  send(call.responder, status);
}

void Api::get_nodes(const Call& call) {
  send(call.responder, json::object{{"revision", leader_.change_count()}, {"nodes", nodes_view(leader_)}});
}

void Api::send_node(const NodeId& node, const http::Responder& responder, const Plan* plan) {
  const auto found = leader_.state().nodes.find(node);
  if (found == leader_.state().nodes.end()) return send(responder, leader_.no_node(node));
  json::object out{{"revision", leader_.change_count()}, {"node", node_view(leader_, found->second)}};
  if (plan) out["plan"] = plan_view(leader_, *plan);
  send(responder, out);
}

void Api::get_node(const Call& call) { send_node(NodeId(call.part("NAME")), call.responder); }

void Api::put_node_intent(const Call& call) {
  const auto wanted = read_body(call.request, [](const json::object& body, const std::string& where) {
    format::check_members(body, {"intent", "reason", "dry_run"}, where);
    return std::tuple(intent_in(body, where), reason_in(body, where), dry_run_in(body, where));
  });
  if (!wanted) return send(call.responder, wanted.error());
  const auto& [intent, reason, is_dry_run] = *wanted;
  const NodeId node(call.part("NAME"));
  if (is_dry_run) return preview_intent(node, std::nullopt, intent, call.responder);
  if (const auto set = leader_.set_intent(node, intent, call.who.actor, reason); !set)
    return send(call.responder, set.error());
  decide();
  send_node(node, call.responder);
}

void Api::preview_intent(const NodeId& node, const std::optional<DeviceId>& device, Intent intent,
                         const http::Responder& responder) {
  controller::Input input = leader_.input();
  const auto found = input.nodes.find(node);
  if (found == input.nodes.end()) return send_node(node, responder);  // answers with 404
  const std::optional<DeviceId> there = device ? leader_.find_device(node, *device) : std::nullopt;
  if (device && !there)
    return responder.send(http::error_response(404, "not_found",
                                               "node " + node.text() + " has no device \"" + device->text() + "\"",
                                               "see berth nodes " + node.text()));
  (there ? found->second.devices[*there].intent : found->second.intent) = intent;
  const Plan plan = controller::preview(input, *input.desired).plan;
  send_node(node, responder, &plan);
}

void Api::put_device_intent(const Call& call) {
  bool is_dry_run = false;
  const auto wanted = read_body(call.request, [&](const json::object& body, const std::string& where) {
    format::check_members(body, {"intent", "reason", "dry_run"}, where);
    is_dry_run = dry_run_in(body, where);
    fleet::DeviceIntent read{intent_in(body, where), call.who.actor, {}};
    read.reason = reason_in(body, where);
    return read;
  });
  if (!wanted) return send(call.responder, wanted.error());
  const NodeId node(call.part("NAME"));
  const DeviceId device(call.part("DEVICE"));
  if (is_dry_run) return preview_intent(node, device, wanted->intent, call.responder);
  if (const auto set = leader_.set_device_intent(node, device, *wanted); !set) return send(call.responder, set.error());
  decide();
  send_node(node, call.responder);
}

void Api::delete_node(const Call& call) {
  const NodeId node(call.part("NAME"));
  if (const auto removed = leader_.forget_node(node, call.who.actor); !removed)
    return send(call.responder, removed.error());
  history_.forget(node);
  decide();
  send(call.responder, json::object{{"revision", leader_.change_count()}, {"removed", node.text()}});
}

void Api::get_history(const Call& call) {
  const auto device = call.request.query.find("device");
  if (device == call.request.query.end())
    return call.responder.send(
        http::error_response(400, "invalid_argument", "the request does not name a device", "add ?device=ID"));
  const NodeId node(call.part("NAME"));
  json::object out{{"node", node.text()}, {"device", device->second}};
  for (auto& [key, value] : history_.samples(node, device->second)) out[key] = value;
  send(call.responder, out);
}

void Api::get_jobs(const Call& call) {
  send(call.responder, json::object{{"revision", leader_.change_count()}, {"jobs", jobs_view(leader_)}});
}

void Api::get_replicas(const Call& call) {
  std::optional<DeploymentId> only;
  if (const auto named = call.request.query.find("deployment"); named != call.request.query.end())
    only.emplace(named->second);
  json::array replicas = replicas_view(leader_, only);
  add_restarts(replicas);
  // Replicas of a deleted deployment may still be ending.
  if (only && replicas.empty() && !leader_.state().desired.deployments.contains(*only))
    return send(call.responder, leader_.no_deployment(*only));
  send(call.responder, json::object{{"revision", leader_.change_count()},
                                    {"replicas", std::move(replicas)},
                                    {"pending", pending_view(leader_, only)}});
}

void Api::add_restarts(json::array& incarnations) const {
  for (json::value& value : incarnations) {
    json::object& incarnation = value.get_object();
    const auto replica = static_cast<std::uint32_t>(incarnation.at("replica").to_number<std::uint64_t>());
    const DeploymentId deployment(std::string(incarnation.at("deployment").get_string()));
    incarnation["restarts"] = counts_.restarts(deployment, replica);
  }
}

Error Api::no_replica(const DeploymentId& name, const std::string& number) const {
  Error error{ErrorCode::not_found, "there is no replica " + name.text() + "/" + number, "see berth replicas"};
  if (leader_.state().desired.deployments.contains(name)) return error;
  const std::string advice = leader_.no_deployment(name).advice;
  if (advice.ends_with('?')) error.advice = advice.substr(0, advice.size() - 1) + "/" + number + "?";
  return error;
}

bool Api::is_wanted(const DeploymentId& name, std::optional<std::uint64_t> replica) const {
  const auto wanted = leader_.state().desired.deployments.find(name);
  return replica && wanted != leader_.state().desired.deployments.end() && *replica < wanted->second.spec.replicas;
}

void Api::get_replica(const Call& call) {
  const DeploymentId name(call.part("NAME"));
  const std::string& number = call.part("N");
  const auto index = read_number(number, replicas_max);
  json::object view = index ? replica_view(leader_, name, static_cast<std::uint32_t>(*index)) : json::object();
  if (!is_wanted(name, index) && (!index || view.at("incarnations").as_array().empty()))
    return send(call.responder, no_replica(name, number));
  add_restarts(view.at("incarnations").as_array());
  send(call.responder, view);
}

Result<void> Api::check_subject(const std::string& subject) const {
  const store::State& state = leader_.state();
  std::vector<std::string> known{state.desired.cluster};
  for (const auto& [name, wanted] : state.desired.deployments) known.push_back(name.text());
  for (const auto& [name, record] : state.nodes) {
    known.push_back(name.text());
    known.push_back("node/" + name.text());
  }
  for (const auto& [id, credential] : state.credentials)
    known.push_back(credential.role == Role::gateway ? "gateway/" + credential.name.value_or(id) : "token/" + id);
  const std::string of_replica = subject.substr(0, subject.rfind('/'));
  const std::vector<std::string_view> names(known.begin(), known.end());
  for (const std::string_view name : names) {
    if (name == subject || name == of_replica) return {};
  }
  const auto nearest = placement::nearest_name(subject, names);
  return Error{ErrorCode::not_found, "there is no event about " + format::in_quotes(subject),
               nearest ? "did you mean " + std::string(*nearest) + "?"
                       : "name a deployment, NAME/N, node/NAME, gateway/NAME or token/ID"};
}

void Api::get_events(const Call& call) {
  const auto query = [&](const char* name, std::uint64_t otherwise) {
    const auto found = call.request.query.find(name);
    return found == call.request.query.end() ? otherwise : read_number(found->second, UINT64_MAX).value_or(otherwise);
  };
  const std::uint64_t limit = std::clamp<std::uint64_t>(query("limit", 100), 1, events_max);
  const std::uint64_t newest = leader_.state().last_event;
  const auto subject = call.request.query.find("subject");
  // The newest events of one subject may be among many others.
  const std::uint64_t look = subject == call.request.query.end() ? limit : events_max;
  const std::uint64_t after = query("after", newest > look ? newest - look : 0);
  const bool by_people = call.request.query.contains("people");
  const auto events = by_people ? leader_.actions(look) : leader_.events(after, look);
  if (!events) return send(call.responder, events.error());
  json::array list;
  for (const fleet::Event& event : *events) {
    if (subject == call.request.query.end() || fleet::is_about(event.subject, subject->second))
      list.push_back(format::to_json(event));
  }
  // A subject that no longer exists may still have events.
  if (subject != call.request.query.end() && list.empty() && !call.request.query.contains("after")) {
    if (const Result<void> known = check_subject(subject->second); !known) return send(call.responder, known.error());
  }
  if (list.size() > limit) list.erase(list.begin(), list.end() - static_cast<std::ptrdiff_t>(limit));
  send(call.responder,
       json::object{{"events", std::move(list)}, {"last", events->empty() ? after : events->back().id}});
}

void Api::get_stream(const Call& call) {
  http::Stream stream = call.responder.stream(http::event_stream_head());
  const auto change = http::Event{"change", "", format::document({{"revision", leader_.change_count()}})};
  stream.write(to_text(change));
  if (const auto last = http::last_event_id(call.request)) {
    if (const auto number = read_number(*last, UINT64_MAX)) {
      if (const auto missed = leader_.events(*number, events_max)) {
        for (const fleet::Event& event : *missed)
          stream.write(
              to_text(http::Event{"event", std::to_string(event.id), format::document(format::to_json(event))}));
      }
    }
  }
  const std::uint64_t number = next_number_++;
  streams_.emplace(number, Listener{call.who.credential, stream});
  call.responder.on_gone([this, number] { streams_.erase(number); });
}

void Api::changed() {
  notify_gateways();
  if (change_is_due_ || streams_.empty()) return;
  change_is_due_ = true;
  hooks_.after(change_every, [this] {
    change_is_due_ = false;
    std::string text = to_text(http::Event{"change", "", format::document({{"revision", leader_.change_count()}})});
    for (const fleet::Event& event : leader_.recent_events()) {
      if (event.id > last_event_sent_)
        text += to_text(http::Event{"event", std::to_string(event.id), format::document(format::to_json(event))});
    }
    last_event_sent_ = leader_.state().last_event;
    for (const auto& [number, listener] : streams_) listener.stream.write(text);
  });
}

void Api::tick() {
  const TimePoint now = real_clock().now();
  access_.forget_old_sessions(now);
  if (streams_.empty()) last_event_sent_ = leader_.state().last_event;
  const auto is_valid_now = [&](const std::string& credential) {
    return is_valid(credential, leader_.state().credentials, world::wall_time_ms());
  };
  for (const auto& [number, listener] : streams_)
    if (!is_valid_now(listener.credential)) listener.stream.close();
  end_readers(now, is_valid_now);
  look_at_gateways();
  counts_.keep_only(leader_.state());
  hooks_.after(api_tick_every, [this] { tick(); });
}

void Api::end() {
  for (const auto& [node, poll] : std::exchange(polls_, {})) send_orders(node, poll.responder);
  for (const auto& [number, poll] : std::exchange(gateway_polls_, {}))
    poll.responder.send(http::error_response(503, "unavailable", "the server is shutting down"));
  for (const auto& [number, listener] : streams_) listener.stream.close();
  for (auto& [id, reader] : readers_) {
    if (reader.stream)
      reader.stream->close();
    else
      reader.responder.send(http::error_response(503, "unavailable", "the server is shutting down"));
    answer_piece(reader, false, false);
  }
  readers_.clear();
}

}  // namespace berth::server
