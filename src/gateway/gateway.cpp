#include "gateway/gateway.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <set>
#include <utility>

#include "gateway/json_peek.hpp"
#include "http/forward.hpp"
#include "http/request_checks.hpp"
#include "http/secret.hpp"
#include "relay/relay.hpp"
#include "world/wall_time.hpp"

namespace berth::gateway {

namespace json = boost::json;
using http::Async;
using http::error_response;
using http::Head;
using http::Headers;
using http::Link;
using http::Response;

namespace {

constexpr std::string_view bearer = "Bearer ", own_headers = "x-berth-", own_cookie = "berth-";
constexpr std::string_view header_deployment = "x-berth-deployment";
constexpr std::string_view local_caller = "local";
constexpr std::chrono::milliseconds wake_every{100}, body_time{20'000};
constexpr std::size_t refusals_max = 20, short_body = 64 * 1024;

Response full(std::string_view deployment, std::string_view what) {
  Response response = error_response(
      429, "full", "all replicas of " + std::string(deployment) + " are busy" + std::string(what), "try again later");
  response.headers.set("retry-after", "1");
  return response;
}

// Without Berth's own cookies, which are for its page.
std::string other_cookies(std::string_view header) {
  std::string others;
  while (!header.empty()) {
    const std::size_t end = header.find(';');
    std::string_view pair = header.substr(0, end);
    pair.remove_prefix(std::min(pair.find_first_not_of(" \t"), pair.size()));
    if (!pair.empty() && !pair.starts_with(own_cookie)) others.append(others.empty() ? "" : "; ").append(pair);
    header = end == header.npos ? std::string_view() : header.substr(end + 1);
  }
  return others;
}

std::optional<std::uint32_t> in_flight_of(std::string_view load) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(load.data(), load.data() + load.size(), value);
  return error == std::errc() && end != load.data() ? std::optional(value) : std::nullopt;
}

}  // namespace

// A deployment, with who waits for it.
struct Gateway::Served {
  explicit Served(const Policy& policy) : balance(policy) {}
  Balance balance;
  FairQueue<Waiter> queue;
  std::uint32_t woken = 0;  // left the queue and have not tried yet
};

struct Gateway::Waiter {
  http::Signal signal;
  bool is_next = false;
  bool is_gone = false;  // its client
};

// One request.
struct Gateway::Call {
  Link& client;
  Head& head;
  const http::Peer& peer;
  TimePoint began = real_clock().now();
  std::string path = {};  // decoded
  std::string caller = std::string(local_caller);
  std::uint32_t weight = 1;
  std::optional<DeploymentId> may_call = {};  // only this one
  DeploymentId deployment = {};
  std::string body_begin = {};  // that was read to find out the model
  std::set<std::string> tried = {};
  std::map<std::string, std::string> unreachable = {};  // those of them where it did not begin, and why
  std::uint32_t failures = 0;
  Duration waited{};
  bool is_over = false;    // answered, or its client is gone
  bool is_kept = false;    // the client's connection
  std::size_t peeked = 0;  // bytes of the budget
};

Gateway::Gateway(http::Loop& loop, GatewayOptions options)
    : loop_(loop), options_(std::move(options)), links_(loop), tick_(loop) {
  ticking_.emplace(wake_regularly());
}

Gateway::~Gateway() = default;

void Gateway::set(FleetView view) {
  view_ = std::move(view);
  routes_ = Routes(view_.deployments);
  std::set<std::string> callers;
  for (const auto& [sum, caller] : view_.callers) callers.insert(caller.id);
  std::erase_if(turns_, [&](const auto& item) { return !callers.contains(item.first); });
  for (const auto& [name, deployment] : view_.deployments) {
    auto& served = served_[name];
    const Policy* const policy = find_policy(deployment.serving.policy.value_or("least_loaded"));
    if (!served) served = std::make_unique<Served>(*find_policy("least_loaded"));
    if (policy) served->balance.set_policy(*policy);
    served->balance.set(deployment.endpoints);
    wake_next(*served);
  }
  for (const auto& [name, served] : served_)
    if (!view_.deployments.contains(name)) served->balance.set({});
  std::erase_if(served_, [&](const auto& item) {
    const Served& served = *item.second;
    return !view_.deployments.contains(item.first) && served.balance.in_flight() == 0 && served.queue.size() == 0 &&
           served.woken == 0;
  });
}

void Gateway::end() {
  is_ending_ = true;
  links_.end();
  tick_.notify();
}

std::size_t Gateway::waiting() const {
  std::size_t all = 0;
  for (const auto& [name, served] : served_) all += served->queue.size();
  return all;
}

void Gateway::wake_next(Served& served) {
  Waiter* const next = served.queue.pop();
  if (next == nullptr) return;
  next->is_next = true;
  ++served.woken;
  next->signal.notify();
}

// Replicas that other gateways have used become free without a word.
Async<void> Gateway::wake_regularly() {
  while (!is_ending_) {
    co_await tick_.wait(real_clock().now() + wake_every);
    for (const auto& [name, served] : served_)
      if (served->woken == 0) wake_next(*served);
  }
}

// As many at once as it may send in a second, and then one for each that became free.
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

// Not sent by the page of another site, nor for a name that somebody else has pointed at this machine: browsers on this
// machine would let such pages ask without a key.
bool Gateway::is_from_here(const Call& call) const {
  const std::string host = http::host_name(call.head.headers.get("host").value_or("")).value_or("");
  const bool is_known =
      http::is_loopback_name(host) || std::any_of(view_.deployments.begin(), view_.deployments.end(),
                                                  [&](const auto& item) { return item.second.serving.host == host; });
  return is_known && !call.head.headers.get("origin");
}

std::optional<Response> Gateway::authenticate(Call& call) {
  const auto header = call.head.headers.get("authorization");
  const auto other = call.head.headers.get("x-api-key");
  if (!header && !other) {
    const bool is_open = std::any_of(view_.deployments.begin(), view_.deployments.end(),
                                     [](const auto& item) { return item.second.serving.open; });
    if (call.peer.is_loopback && is_open && is_from_here(call)) return std::nullopt;
    return error_response(401, "no_key", "this request needs a key",
                          "berth token add call --deployment NAME creates one; send it as Authorization: Bearer KEY");
  }
  if (header && !header->starts_with(bearer))
    return error_response(401, "no_key", "only Authorization: Bearer is known here");
  const std::string_view key = header ? header->substr(bearer.size()) : *other;
  if (key.starts_with(http::control_prefix))
    return error_response(401, "wrong_key", "this is a token for the server, which is not accepted here",
                          "berth token add call creates a key for requests");
  const auto found = view_.callers.find(http::sha256(key));
  if (found == view_.callers.end()) return error_response(401, "wrong_key", "this key is not known");
  const Caller& caller = found->second;
  if (caller.expires_ms && *caller.expires_ms <= world::wall_time_ms())
    return error_response(401, "wrong_key", "this key has expired", "berth token add call creates another");
  if (!take_turn(caller)) {
    Response response = error_response(
        429, "too_many", "this key may send " + std::to_string(*caller.per_second) + " requests per second");
    response.headers.set("retry-after", "1");
    return response;
  }
  const auto now = in_flight_.find(caller.id);
  if (caller.concurrent_max && now != in_flight_.end() && now->second >= *caller.concurrent_max) {
    Response response = error_response(
        429, "too_many", "this key may have " + std::to_string(*caller.concurrent_max) + " requests at a time");
    response.headers.set("retry-after", "1");
    return response;
  }
  call.caller = caller.id;
  call.weight = caller.weight;
  call.may_call = caller.deployment;
  return std::nullopt;
}

// A client may wait for this before it sends a long body.
Async<void> Gateway::permit_body(Call& call) {
  const bool waits = http::lower_case(call.head.headers.get("expect").value_or("")) == "100-continue";
  if (waits && !call.client.is_read() && call.client.waiting().empty())
    co_await call.client.write("HTTP/1.1 100 Continue\r\n\r\n");
}

// Into memory: all of it, or more than `bytes_max` where it is longer.
Async<std::optional<Response>> Gateway::read_body(Call& call, std::size_t bytes_max) {
  while (!call.client.is_read() && call.body_begin.size() <= bytes_max) {
    call.client.wire().read_by(real_clock().now() + body_time);
    const Link::Piece piece = co_await call.client.read_piece();
    if (piece.outcome == Link::Outcome::timed_out)
      co_return error_response(408, "timeout", "the body of the request took too long");
    if (piece.outcome != Link::Outcome::done)
      co_return error_response(400, "invalid_argument", "the body of the request is malformed");
    call.body_begin += piece.bytes;
    call.peeked += piece.bytes.size();
    peeked_bytes_ += piece.bytes.size();
  }
  call.client.wire().read_by(TimePoint::max());
  co_return std::nullopt;
}

Async<std::optional<Response>> Gateway::read_model(Call& call) {
  const std::string advice = "name the deployment in the header x-berth-deployment";
  const bool has_room = peeked_bytes_ + options_.peek_bytes <= options_.peek_bytes_all;
  if (has_room) {
    auto refused = co_await read_body(call, options_.peek_bytes);
    if (refused) co_return refused;
  }
  if (!call.client.is_read())
    co_return error_response(413, "too_long", "the body is too long to look for the model in it", advice);
  const Peeked peeked = peek_model(call.body_begin);
  switch (peeked.outcome) {
    case Peeked::Outcome::ambiguous:
      co_return error_response(400, "invalid_argument", "the body has two members \"model\"");
    case Peeked::Outcome::not_json:
      co_return error_response(400, "invalid_argument", "the body is not a JSON object", advice);
    case Peeked::Outcome::absent: co_return error_response(404, "no_route", "the body names no model", advice);
    case Peeked::Outcome::found: break;
  }
  const auto found = routes_.by_model(peeked.model);
  if (!found)
    co_return error_response(404, "no_route", "no deployment serves the model \"" + peeked.model + "\"",
                             "GET /v1/models lists them");
  call.deployment = *found;
  co_return std::nullopt;
}

Async<std::optional<Response>> Gateway::find_deployment(Call& call) {
  http::Request request;
  if (!http::set_target(request, call.head.target))
    co_return error_response(400, "invalid_argument", "the path of the request is malformed");
  call.path = request.path;
  const std::string host = http::host_name(call.head.headers.get("host").value_or("")).value_or("");
  std::optional<DeploymentId> found;
  if (const auto named = call.head.headers.get(header_deployment)) {
    if (!view_.deployments.contains(DeploymentId(std::string(*named))))
      co_return error_response(404, "no_route", "no deployment is called \"" + std::string(*named) + "\"");
    found.emplace(std::string(*named));
  } else {
    found = routes_.by_address({host, call.path});
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
  // A short body is kept, so that the request can be sent again.
  if (call.client.body().length.value_or(UINT64_MAX) <= short_body &&
      peeked_bytes_ + short_body <= options_.peek_bytes_all)
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

Headers Gateway::headers_for_replica(const Call& call) const {
  Headers passed;
  for (const auto& [name, value] : http::end_to_end(call.head.headers)) {
    if (name == "authorization" || name == "x-api-key" || name.starts_with(own_headers)) continue;
    if (name == "cookie") {
      if (std::string others = other_cookies(value); !others.empty()) passed.add(name, std::move(others));
    } else {
      passed.add(name, value);
    }
  }
  passed.set("x-forwarded-for", call.peer.address);
  passed.set("x-forwarded-proto", call.peer.is_tls ? "https" : "http");
  return passed;
}

// Notices when the client of a request that waits is gone.
Async<void> Gateway::watch(Link& client, Waiter& waiter) {
  const Link::Outcome outcome = co_await client.read_ahead();
  waiter.is_gone = outcome == Link::Outcome::ended || (outcome == Link::Outcome::failed && !client.is_cancelled());
  if (waiter.is_gone) waiter.signal.notify();
}

// Absent: there may be room now, or the client is gone.
Async<std::optional<Response>> Gateway::wait_for_room(Call& call) {
  Served& served = *served_.at(call.deployment);
  const Deployment& spec = view_.deployments.at(call.deployment);
  const TimePoint until = call.began + spec.serving.queue_timeout;
  if (spec.serving.on_capacity_exhausted != OnCapacityExhausted::queue) co_return full(call.deployment.text(), "");
  if (served.queue.size() >= spec.serving.queue_max)
    co_return full(call.deployment.text(), ", and as many requests as may wait do");
  Waiter waiter{http::Signal(loop_)};
  // One that was next before stays so.
  if (call.waited > Duration::zero())
    served.queue.push_front(call.caller, call.weight, waiter);
  else
    served.queue.push(call.caller, call.weight, waiter);
  http::Running watching(watch(call.client, waiter));
  const TimePoint began = real_clock().now();
  const bool is_woken = co_await waiter.signal.wait(until);
  call.client.wire().cancel();
  co_await watching.join();
  call.waited += real_clock().now() - began;
  if (waiter.is_next)
    --served.woken;
  else
    served.queue.remove(call.caller, waiter);
  if (waiter.is_gone) {
    call.is_over = true;
    if (waiter.is_next) wake_next(served);
    co_return std::nullopt;
  }
  if (!is_woken && !waiter.is_next) co_return full(call.deployment.text(), ", and none became free in time");
  co_return std::nullopt;
}

// Absent: the call is over, or another replica may be tried.
Async<std::optional<Response>> Gateway::try_once(Call& call, const Endpoint& endpoint) {
  Served& served = *served_.at(call.deployment);
  const TimePoint began = real_clock().now();
  Link* const relay = co_await links_.take(endpoint.node, began + options_.relay_time);
  http::Forwarded forwarded;
  std::optional<std::string> refused, failed;
  const bool is_whole = call.client.is_read();  // the body is in memory, or there is none
  if (relay == nullptr) {
    failed = "node " + endpoint.node.text() + " has no connection to this gateway";
  } else {
    Headers headers = headers_for_replica(call);
    headers.set(relay::header_target, endpoint.name);
    http::ForwardOptions options;
    options.first_byte_time = options_.first_byte_time;
    options.body_begin = call.body_begin;
    options.waits_for_continue = !is_whole;
    if (options.waits_for_continue) headers.set("expect", "100-continue");
    options.text = http::request_text(call.head, headers, call.client.body());
    const bool is_explained = call.head.headers.get("x-berth-explain") == "1";
    options.on_answer = [&](Head& answer) {
      if (const auto load = answer.headers.get(relay::header_load))
        if (const auto count = in_flight_of(*load)) served.balance.report(endpoint.name, *count, real_clock().now());
      if (const auto why = answer.headers.get(relay::header_refused)) refused = std::string(*why);
      if (const auto why = answer.headers.get(relay::header_failed)) failed = std::string(*why);
      if (refused || failed) return false;
      Headers given;
      for (const auto& [name, value] : answer.headers)
        if (!name.starts_with(own_headers)) given.add(name, value);
      if (is_explained) {
        given.set("x-berth-replica", endpoint.name);
        given.set("x-berth-wait-ms",
                  std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(call.waited).count()));
      }
      answer.headers = std::move(given);
      return true;
    };
    forwarded = co_await http::forward(call.client, call.head, *relay, options);
    const bool is_usable =
        forwarded.is_server_kept || (forwarded.end == http::Forwarded::End::withheld && relay->is_read() &&
                                     relay->body().keeps_connection && relay->wire().is_open());
    links_.give_back(endpoint.node, *relay, is_usable);
    if (forwarded.end == http::Forwarded::End::server_failed && !failed)
      failed = "the relay of node " + endpoint.node.text() + " failed: " + forwarded.problem;
  }
  const bool is_bad_answer = forwarded.status >= 502 && forwarded.status <= 504;
  Ending ending = is_bad_answer ? Ending::failed : Ending::answered;
  if (failed)
    ending = Ending::failed;
  else if (refused)
    ending = Ending::refused;
  else if (forwarded.end == http::Forwarded::End::client_gone)
    ending = Ending::abandoned;
  served.balance.settle(endpoint.name, ending, real_clock().now() - began, real_clock().now());
  wake_next(served);
  call.tried.insert(endpoint.name);
  if (refused && failed) call.unreachable[endpoint.name] = *failed;
  if (refused) co_return std::nullopt;
  if (!failed) {
    call.is_over = true;
    call.is_kept = forwarded.is_client_kept;
    co_return std::nullopt;
  }
  ++call.failures;
  const bool may_repeat = !forwarded.reached_client && is_whole && call.failures < 2 &&
                          (relay == nullptr || (view_.deployments.contains(call.deployment) &&
                                                view_.deployments.at(call.deployment).idempotent));
  if (may_repeat) co_return std::nullopt;
  call.is_over = forwarded.reached_client;
  if (call.is_over) co_return std::nullopt;
  co_return error_response(502, "failed", "the replica " + endpoint.name + " did not answer: " + *failed);
}

Async<std::optional<Response>> Gateway::serve(Call& call) {
  bool has_fallen_back = false;
  while (!call.is_over) {
    const auto known = view_.deployments.find(call.deployment);
    if (known == view_.deployments.end())
      co_return error_response(404, "no_route", "the deployment " + call.deployment.text() + " was deleted");
    Served& served = *served_.at(call.deployment);
    const bool is_first_in_line = call.waited > Duration::zero() || served.queue.size() + served.woken == 0;
    std::optional<Endpoint> chosen;
    std::set<std::string> left_out = call.tried;
    const bool has_replicas = !known->second.endpoints.empty();
    bool is_connected = false;  // at least one of their nodes
    for (const Endpoint& endpoint : known->second.endpoints) {
      if (links_.has(endpoint.node))
        is_connected = true;
      else
        left_out.insert(endpoint.name);
    }
    if (is_first_in_line) chosen = served.balance.choose(left_out, next_ticket_++, real_clock().now());
    if (chosen) {
      auto refused = co_await try_once(call, *chosen);
      if (refused) co_return refused;
      if (call.tried.size() > refusals_max) co_return full(call.deployment.text(), "");
      continue;
    }
    if (call.failures > 0)
      co_return error_response(502, "failed",
                               "no other replica of " + call.deployment.text() + " can take this request");
    if (!call.tried.empty() && call.unreachable.size() == call.tried.size())
      co_return error_response(
          502, "failed",
          "no replica of " + call.deployment.text() + " can be reached: " + call.unreachable.begin()->second);
    if (known->second.serving.on_capacity_exhausted == OnCapacityExhausted::fallback &&
        known->second.serving.fallback && !has_fallen_back &&
        view_.deployments.contains(*known->second.serving.fallback)) {
      has_fallen_back = true;
      call.deployment = *known->second.serving.fallback;
      call.tried.clear();
      call.unreachable.clear();
      continue;
    }
    call.tried.clear();  // what refused it may have room later
    call.unreachable.clear();
    auto refused = co_await wait_for_room(call);
    if (refused && !is_connected)
      co_return error_response(
          503, "unavailable",
          !has_replicas ? "the deployment " + call.deployment.text() + " has no replica that is ready"
                        : "no node with a replica of " + call.deployment.text() + " is connected to this gateway");
    if (refused) co_return refused;
  }
  co_return std::nullopt;
}

Async<bool> Gateway::send(Call& call, Response response) {
  const bool is_kept = call.client.is_read() && call.client.body().keeps_connection;
  Link::Body body{.is_chunked = false, .length = response.body.size()};
  std::string text = http::response_text(response.status, response.headers, body, is_kept);
  if (call.head.method != "HEAD") text += response.body;
  const http::ErrorValue error = co_await call.client.write(text);
  co_return is_kept && !error;
}

Async<bool> Gateway::handle(Link& client, Head& head, const http::Peer& peer) {
  if (head.target == relay::relay_path) {
    const std::optional<NodeId> node = options_.relay_of(head, peer);
    if (node)
      co_await links_.keep(client, *node, peer.credential);
    else
      co_await client.write("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    co_return false;
  }
  Call call{client, head, peer};
  ++calls_;
  std::optional<Response> answer = authenticate(call);
  if (!answer) {
    ++in_flight_[call.caller];
    co_await permit_body(call);
    answer = co_await find_deployment(call);
    if (!answer) answer = co_await serve(call);
    if (--in_flight_[call.caller] == 0) in_flight_.erase(call.caller);
  }
  peeked_bytes_ -= call.peeked;
  bool is_kept = call.is_kept;
  if (answer) is_kept = co_await send(call, *std::move(answer));
  --calls_;
  co_return is_kept;
}

}  // namespace berth::gateway
