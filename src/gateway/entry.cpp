// Identifies the caller and the deployment of a request.
#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "gateway/call.hpp"
#include "gateway/json_peek.hpp"
#include "http/request_checks.hpp"
#include "http/secret.hpp"
#include "world/printable.hpp"
#include "world/wall_time.hpp"

namespace berth::gateway {

namespace json = boost::json;
using deployment::KeySource;
using http::Async;
using http::error_response;
using http::Link;
using http::Response;

namespace {

constexpr std::string_view bearer = "bearer ", header_deployment = "x-berth-deployment";
constexpr std::size_t short_body = 64 * 1024;

std::optional<std::string> cookie(const http::Headers& headers, std::string_view wanted) {
  for (const auto& [header, value] : headers) {
    if (header != "cookie") continue;
    for (const std::string_view pair : cookies_of(value)) {
      const std::size_t equals = pair.find('=');
      if (equals != pair.npos && pair.substr(0, equals) == wanted) return std::string(pair.substr(equals + 1));
    }
  }
  return std::nullopt;
}

}  // namespace

// A token bucket: a burst of as many requests as the caller may send in a second, then one for each refill.
bool Gateway::take_turn(const Caller& caller) {
  if (!caller.per_second) return true;
  const auto most = static_cast<double>(*caller.per_second);
  const TimePoint now = real_clock().now();
  Turns& turns = turns_.try_emplace(caller.id, Turns{most, now}).first->second;
  turns.left = std::min(most, turns.left + most * std::chrono::duration<double>(now - turns.at).count());
  turns.at = now;
  if (turns.left < 1) return false;
  turns.left -= 1;
  return true;
}

// False if the request comes from another site's page or uses a foreign host name that resolves to this machine: a
// browser on this machine would let such pages send requests without a key.
bool Gateway::is_from_here(const Call& call) const {
  const std::string host = http::host_name(call.head.headers.get("host").value_or("")).value_or("");
  const bool is_known =
      http::is_loopback_name(host) || std::any_of(view_.deployments.begin(), view_.deployments.end(),
                                                  [&](const auto& item) { return item.second.serving.host == host; });
  // Browsers request images and frames of a page without an Origin header.
  const auto site = call.head.headers.get("sec-fetch-site");
  return is_known && !call.head.headers.get("origin") && (!site || *site == "same-origin" || *site == "none");
}

std::optional<Response> Gateway::authenticate(Call& call) {
  const auto header = call.head.headers.get("authorization");
  const auto other = call.head.headers.get("x-api-key");
  if (!header && !other) {
    const bool is_open = std::any_of(view_.deployments.begin(), view_.deployments.end(),
                                     [](const auto& item) { return item.second.serving.open; });
    const bool is_near = call.peer.is_loopback && is_open;
    if (is_near && is_from_here(call)) {
      call.caller = "local";
      call.may_know = true;
      return std::nullopt;
    }
    return error_response(401, "no_key",
                          is_near
                              ? "this request needs a key, because its Host, Origin or Sec-Fetch-Site is not that of "
                                "a request from this machine"
                              : "this request needs a key",
                          "berth token add call --deployment NAME creates one; send it as Authorization: Bearer KEY");
  }
  if (header && http::lower_case(header->substr(0, bearer.size())) != bearer)
    return error_response(401, "no_key", "the header Authorization does not begin with Bearer");
  const std::string_view key = header ? header->substr(bearer.size()) : *other;
  if (key.starts_with(http::control_prefix))
    return error_response(401, "wrong_key", "this is a token for the server, which is not accepted here",
                          "berth token add call creates a key for requests");
  const auto found = view_.callers.find(http::sha256(key));
  if (found == view_.callers.end()) return error_response(401, "wrong_key", "this key is not known");
  const Caller& caller = found->second;
  if (caller.expires_ms && *caller.expires_ms <= world::wall_time_ms())
    return error_response(401, "wrong_key", "this key has expired", "berth token add call creates another");
  call.caller = caller.id;
  if (!take_turn(caller)) {
    Response response = error_response(
        429, "too_many",
        "this key is limited to " + std::to_string(*caller.per_second) + " requests per second at this gateway");
    response.headers.set("retry-after", "1");
    return response;
  }
  const auto now = in_flight_.find(caller.id);
  if (caller.concurrent_max && now != in_flight_.end() && now->second >= *caller.concurrent_max) {
    Response response = error_response(
        429, "too_many",
        "this key is limited to " + std::to_string(*caller.concurrent_max) + " requests at a time at this gateway");
    response.headers.set("retry-after", "1");
    return response;
  }
  call.credential = found->first;
  call.weight = caller.weight;
  call.may_call = caller.deployment;
  call.may_know = caller.may_explain;
  return std::nullopt;
}

// A client may wait for "100 Continue" before it sends a long body.
Async<void> Gateway::permit_body(Call& call) {
  const bool waits = http::lower_case(call.head.headers.get("expect").value_or("")) == "100-continue";
  if (!waits || call.client.is_read() || !call.client.waiting().empty()) co_return;
  call.client.wire().write_by(real_clock().now() + options_.client_time);
  co_await call.client.write("HTTP/1.1 100 Continue\r\n\r\n");
  call.client.wire().write_by(TimePoint::max());
}

std::size_t Gateway::room_for_body(const Call& call) const {
  const auto left = [](std::size_t most, std::size_t taken) { return most - std::min(most, taken); };
  const auto own = peeked_of_.find(call.caller);
  const std::size_t of_caller = std::max(options_.peek_bytes_all / 2, options_.peek_bytes);
  return std::min(left(options_.peek_bytes_all, peeked_bytes_),
                  left(of_caller, own == peeked_of_.end() ? 0 : own->second));
}

void Gateway::forget_body(Call& call) {
  if (call.peeked == 0) return;
  const auto own = peeked_of_.find(call.caller);
  peeked_bytes_ -= call.peeked;
  own->second -= std::exchange(call.peeked, 0);
  if (own->second == 0) peeked_of_.erase(own);
  std::string().swap(call.body_begin);  // an assignment would keep the memory
}

// Reads the body into memory until it is complete, exceeds `bytes_max`, or the bodies of all requests take too much
// memory.
Async<std::optional<Response>> Gateway::read_body(Call& call, std::size_t bytes_max) {
  while (!call.client.is_read() && call.body_begin.size() <= bytes_max && room_for_body(call) > 0) {
    call.client.wire().read_by(real_clock().now() + options_.client_time);
    const Link::Piece piece = co_await call.client.read_piece();
    if (piece.outcome == Link::Outcome::timed_out)
      co_return error_response(408, "timeout", "the body of the request took too long");
    if (piece.outcome != Link::Outcome::done)
      co_return error_response(400, "invalid_argument", "the body of the request is malformed");
    call.body_begin += piece.bytes;
    call.peeked += piece.bytes.size();
    peeked_bytes_ += piece.bytes.size();
    peeked_of_[call.caller] += piece.bytes.size();
  }
  call.client.wire().read_by(TimePoint::max());
  call.body_begin.shrink_to_fit();
  co_return std::nullopt;
}

// Reads the whole body, so that it can be searched.
Async<std::optional<Response>> Gateway::read_whole_body(Call& call, std::string what, std::string advice) {
  const bool is_too_long = call.client.body().length.value_or(0) > options_.peek_bytes;
  std::optional<Response> refused;
  if (!is_too_long) refused = co_await read_body(call, options_.peek_bytes);
  if (refused) co_return refused;
  if (call.client.is_read()) co_return std::nullopt;
  if (is_too_long || call.body_begin.size() > options_.peek_bytes)
    co_return error_response(413, "too_long", "the body is too long to be searched for " + what, advice);
  Response response = error_response(
      503, "busy", "this gateway has no memory left to search the body of the request for " + what, advice);
  response.headers.set("retry-after", "1");
  co_return response;
}

Async<std::optional<Response>> Gateway::read_model(Call& call) {
  const std::string advice = "name the deployment in the header x-berth-deployment";
  auto refused = co_await read_whole_body(call, "the model", advice);
  if (refused) co_return refused;
  const Peeked peeked = peek_member(call.body_begin, "model");
  switch (peeked.outcome) {
    case Peeked::Outcome::ambiguous:
      co_return error_response(400, "invalid_argument", "the body has two members \"model\"");
    case Peeked::Outcome::not_json:
      co_return error_response(400, "invalid_argument", "the body is not a JSON object", advice);
    case Peeked::Outcome::too_long:
      co_return error_response(
          400, "invalid_argument",
          "the model that the body names has more than " + std::to_string(peeked_bytes_max) + " bytes");
    case Peeked::Outcome::absent: co_return error_response(404, "no_route", "the body names no model", advice);
    case Peeked::Outcome::found: break;
  }
  const auto found = routes_.by_model(peeked.text);
  if (!found && routes_.is_shared(peeked.text))
    co_return error_response(400, "ambiguous", "several deployments serve the model \"" + peeked.text + "\"",
                             "name one of the deployments as the model, or in the header x-berth-deployment");
  if (!found)
    co_return error_response(404, "no_route", "no deployment serves the model \"" + peeked.text + "\"",
                             "see GET /v1/models");
  call.deployment = *found;
  co_return std::nullopt;
}

// The key that keeps the request on one replica, if its deployment has such keys.
Async<std::optional<Response>> Gateway::read_key(Call& call) {
  const Served& served = *served_.at(call.deployment);
  if (!served.source) co_return std::nullopt;
  const KeySource source = *served.source;
  const bool is_strict = view_.deployments.at(call.deployment).serving.affinity == Affinity::strict;
  if (source.kind == KeySource::Kind::header) {
    if (call.head.headers.count(source.name) > 1)
      co_return error_response(400, "invalid_argument", "the request has several headers \"" + source.name + "\"");
    if (const auto value = call.head.headers.get(source.name)) call.key = std::string(*value);
  } else if (source.kind == KeySource::Kind::cookie) {
    // Uses the first of several cookies with this name; browsers put the longest path first (RFC 6265).
    call.key = cookie(call.head.headers, source.name);
  } else if (!call.client.body().is_empty()) {
    auto refused = co_await read_whole_body(call, "its key", "send a shorter body");
    if (refused) co_return refused;
    Peeked peeked = peek_member(call.body_begin, source.name);
    if (peeked.outcome == Peeked::Outcome::ambiguous)
      co_return error_response(400, "invalid_argument", "the body has two members \"" + source.name + "\"");
    if (peeked.outcome == Peeked::Outcome::too_long) peeked.text.assign(peeked_bytes_max + 1, ' ');
    if (peeked.outcome == Peeked::Outcome::not_json && is_strict)
      co_return error_response(400, "invalid_argument", "the body is not a JSON object");
    call.key = std::move(peeked.text);
  }
  if (call.key && call.key->empty()) call.key.reset();
  if (call.key && call.key->size() > peeked_bytes_max)
    co_return error_response(400, "invalid_argument",
                             "the key of this request, " + deployment::to_text(source) + ", has more than " +
                                 std::to_string(peeked_bytes_max) + " bytes");
  if (!call.key && is_strict)
    co_return error_response(400, "invalid_argument",
                             "requests for " + call.deployment.text() +
                                 " need a key, and this one has none: " + deployment::to_text(source));
  co_return std::nullopt;
}

Async<std::optional<Response>> Gateway::find_deployment(Call& call) {
  http::Request request;
  if (!http::set_target(request, call.head.target))
    co_return error_response(400, "invalid_argument", "the path of the request is malformed");
  call.path = request.path;
  const std::string_view authority = call.head.headers.get("host").value_or("");
  const auto host = http::host_name(authority);
  if (!host && !authority.empty())
    co_return error_response(400, "invalid_argument", "the header Host of the request is malformed");
  std::optional<DeploymentId> found;
  if (const auto named = call.head.headers.get(header_deployment)) {
    if (!view_.deployments.contains(DeploymentId(std::string(*named))))
      co_return error_response(404, "no_route", "no deployment is called \"" + world::printable(*named) + "\"");
    found.emplace(std::string(*named));
  } else {
    found = routes_.by_address({host.value_or(""), call.path});
  }
  if (found)
    call.deployment = *found;
  else if (call.path == "/v1/models" && call.head.method == "GET")
    co_return models_answer(call);
  else if (!call.client.body().is_empty()) {
    auto refused = co_await read_model(call);
    if (refused) co_return refused;
  } else {
    co_return error_response(404, "no_route", "no deployment has this address", "GET /v1/models lists the deployments");
  }
  const Deployment& deployment = view_.deployments.at(call.deployment);
  const bool is_allowed =
      call.may_call ? *call.may_call == call.deployment : deployment.serving.open && call.peer.is_loopback;
  if (!is_allowed)
    co_return call.may_call
        ? error_response(403, "forbidden", "this key is not for the deployment " + call.deployment.text())
        : error_response(401, "no_key", "this request needs a key");
  auto refused = co_await read_key(call);
  if (refused) co_return refused;
  // A short body is kept, so that the request can be sent again.
  if (call.client.body().length.value_or(UINT64_MAX) <= short_body && room_for_body(call) >= short_body)
    co_return co_await read_body(call, short_body);
  co_return std::nullopt;
}

Response Gateway::models_answer(const Call& call) const {
  json::array data;
  for (const std::string& model : routes_.models()) {
    const DeploymentId deployment = *routes_.by_model(model);
    if (call.may_call ? *call.may_call != deployment : !view_.deployments.at(deployment).serving.open) continue;
    data.push_back(json::object{{"id", model}, {"object", "model"}, {"owned_by", "berth"}});
  }
  return http::json_response(200, json::serialize(json::object{{"object", "list"}, {"data", std::move(data)}}) + "\n");
}

}  // namespace berth::gateway
