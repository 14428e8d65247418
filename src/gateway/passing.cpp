// Decides which replica gets a request, what happens if the replica fails, and how long the request waits for one.
#include <charconv>
#include <utility>

#include "gateway/call.hpp"
#include "http/dialer.hpp"
#include "http/forward.hpp"
#include "http/request_checks.hpp"
#include "relay/relay.hpp"
#include "world/duration.hpp"
#include "world/printable.hpp"

namespace berth::gateway {

using http::Async;
using http::error_response;
using http::Head;
using http::Headers;
using http::Link;
using http::Response;

namespace {

constexpr std::string_view own_headers = "x-berth-", own_cookie = "berth-";
// The most replicas that a request tries before it waits or is rejected.
constexpr std::size_t tries_max = 20;

Response full(const std::string& who, std::string_view what) {
  Response response = error_response(429, "full", who + " busy" + std::string(what), "try again later");
  response.headers.set("retry-after", "1");
  return response;
}

Response no_other(std::string_view deployment) {
  return error_response(502, "failed", "no other replica of " + std::string(deployment) + " can take this request");
}

// Reasons name replicas and nodes, which not every caller may know.
Response failed_response(bool may_know, const std::string& why) {
  return may_know ? error_response(502, "failed", why)
                  : error_response(502, "failed", "no replica answered",
                                   "berth why request ID shows an operator the reason");
}

Response late_response(bool may_know, const DeploymentId& deployment, const std::string& replica,
                       std::chrono::milliseconds time) {
  return error_response(504, "failed",
                        (may_know ? "the replica " + replica : "the replica") + " did not begin to answer within " +
                            world::duration_text(time),
                        "if it needs longer, raise serving.first_byte_timeout of " + deployment.text());
}

// The cookies without Berth's own, which are for its page.
std::string other_cookies(std::string_view header) {
  std::string others;
  for (const std::string_view pair : cookies_of(header))
    if (!pair.starts_with(own_cookie)) others.append(others.empty() ? "" : "; ").append(pair);
  return others;
}

// The answer if no replica can be reached. Its advice is for operators.
Response unavailable(bool may_know, const Deployment& deployment) {
  const std::string name = deployment.name.text();
  if (deployment.endpoints.empty())
    return error_response(503, "unavailable", "the deployment " + name + " has no ready replica",
                          "berth status shows an operator why");
  std::set<NodeId> nodes;
  bool is_direct = false;
  for (const Endpoint& endpoint : deployment.endpoints) {
    nodes.insert(endpoint.node);
    is_direct |= endpoint.address.has_value();
  }
  if (is_direct)
    return error_response(503, "unavailable", "this gateway has no address for the replicas of " + name,
                          "berth endpoints shows an operator their addresses; [addresses] in the server's file can set "
                          "that of a node");
  std::string named;
  if (may_know)
    for (const NodeId& node : nodes) named += (named.empty() ? ": " : ", ") + node.text();
  return error_response(503, "unavailable",
                        "no node with a replica of " + name + " is connected to this gateway" + named,
                        "berth status shows an operator which nodes are not connected and what to do");
}

std::string listed(const std::vector<DeviceId>& devices) {
  std::string text;
  for (const DeviceId& device : devices) text.append(text.empty() ? "" : ",").append(device.text());
  return text;
}

// Includes the address, because a restarted replica listens on another port.
std::string pool_of(const Endpoint& endpoint) { return endpoint.name + ' ' + *endpoint.address; }

// A proxy inside the replica answers with these if the server behind it is down.
bool is_failure(int status) { return status >= 502 && status <= 504; }

std::optional<std::uint32_t> in_flight_of(std::string_view load) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(load.data(), load.data() + load.size(), value);
  return error == std::errc() && end != load.data() ? std::optional(value) : std::nullopt;
}

}  // namespace

Headers Gateway::headers_for_replica(const Call& call) const {
  Headers passed = http::end_to_end(call.head.headers);
  std::vector<std::string> cookies;
  for (const auto& [name, value] : passed)
    if (name == "cookie") cookies.push_back(other_cookies(value));
  passed.remove_if([](const std::string& name, const std::string&) {
    // WSGI and CGI do not distinguish X_Forwarded_For from X-Forwarded-For.
    return name == "authorization" || name == "x-api-key" || name == "cookie" || name.starts_with(own_headers) ||
           name.find('_') != name.npos;
  });
  for (std::string& others : cookies)
    if (!others.empty()) passed.add("cookie", std::move(others));
  passed.set("x-forwarded-for", call.peer.address);
  passed.set("x-forwarded-proto", call.peer.is_tls ? "https" : "http");
  passed.set(header_request_id, call.record.id);
  passed.set(header_trace, call.trace.text);
  if (call.trace.is_new) passed.remove(header_trace_state);
  return passed;
}

void Gateway::Served::set_keys(const Deployment& deployment) {
  source.reset();
  if (deployment.serving.key) {
    if (auto parsed = deployment::parse_key_source(*deployment.serving.key)) source = *std::move(parsed);
  }
  if (deployment.shards == shards) return;
  shards = deployment.shards;
  table.reset();
  if (!shards) return;
  if (auto parsed = ShardTable::parse(*shards)) table = *std::move(parsed);
}

// In order of preference: the owner of the key, and then the others if the request may use them.
std::vector<DeviceId> Gateway::Served::replicas_for(const Call& call, const Deployment& deployment) const {
  if (!call.key || !table) return {};
  std::vector<DeviceId> order = table->in_order(table->space().shard_of(*call.key));
  if (deployment.serving.affinity == Affinity::strict && !order.empty()) order.resize(1);
  return order;
}

std::string Gateway::Served::line_of(const Call& call, const Deployment& deployment) const {
  if (!call.key || !table || deployment.serving.affinity != Affinity::strict) return {};
  const DeviceId* const owner = table->route(*call.key);
  return owner ? owner->text() : std::string();
}

// Wakes requests that wait for any replica, and those that wait for this one.
void Gateway::Served::wake_for(const Endpoint& endpoint) {
  if (const auto line = lines.find(""); line != lines.end()) wake_next(line->second);
  if (const auto line = lines.find(std::string(replica_of(endpoint))); line != lines.end()) wake_next(line->second);
}

std::optional<Endpoint> Gateway::choose(Call& call, Served& served, const std::set<std::string>& left_out) {
  const TimePoint now = real_clock().now();
  const Deployment& deployment = view_.deployments.at(call.deployment);
  const std::vector<DeviceId> replicas = served.replicas_for(call, deployment);
  Balance::Seen& seen = call.record.candidates;
  std::optional<Endpoint> chosen = replicas.empty()
                                       ? served.balance.choose(left_out, next_ticket_++, now, &seen, call.work_class())
                                       : served.balance.choose_first(replicas, left_out, now, &seen);
  note_choice(call, replicas.empty() ? served.balance.policy() : to_string(deployment.serving.affinity));
  return chosen;
}

// Notices when the client of a waiting request is gone.
Async<void> Gateway::watch(Link& client, Waiter& waiter) {
  const Link::Outcome outcome = co_await client.read_ahead();
  if (outcome == Link::Outcome::done) {  // the buffer is full
    // Checked immediately as well, because a waiting request begins a new wait several times a second.
    waiter.is_gone = client.wire().has_hung_up();
    if (!waiter.is_gone) waiter.is_gone = co_await http::wait_for_hang_up(client, waiter.is_over);
  } else {
    waiter.is_gone = outcome == Link::Outcome::ended || (outcome == Link::Outcome::failed && !client.is_cancelled());
  }
  if (waiter.is_gone) waiter.signal.notify();
}

// Returns nothing if there may be room now, or if the client is gone.
Async<std::optional<Response>> Gateway::wait_for_room(Call& call, bool may_connect) {
  Served& served = *served_.at(call.deployment);
  const Deployment& spec = view_.deployments.at(call.deployment);
  const bool queues = spec.serving.on_capacity_exhausted == OnCapacityExhausted::queue;
  const TimePoint until = call.waits_since + (queues ? spec.serving.queue_timeout : Duration(options_.relay_time));
  const std::string name = served.line_of(call, spec);
  const std::string who = name.empty() ? "all replicas of " + call.deployment.text() + " are"
                                       : "the replica of this key" + (call.may_know ? ", " + name + "," : "") + " is";
  if (!queues && !may_connect) co_return full(who, "");
  // A request that was already next, or at a replica, goes to the front, even if another has become next in the
  // meantime.
  const bool was_next = call.waited > Duration::zero() || !call.failed.empty();
  if (!was_next && served.waiting() >= spec.serving.queue_max) co_return full(who, ", and the queue is full");
  Waiter waiter{.signal = http::Signal(loop_), .is_over = http::Signal(loop_)};
  Line& line = served.lines[name];
  if (was_next)
    line.queue.push_front(call.caller, call.weight, waiter);
  else
    line.queue.push(call.caller, call.weight, waiter);
  http::Running watching(watch(call.client, waiter));
  const TimePoint began = real_clock().now();
  const bool is_woken = co_await waiter.signal.wait(until);
  call.client.wire().cancel();
  waiter.is_over.notify();
  co_await watching.join();
  call.waited += real_clock().now() - began;
  if (waiter.is_next)
    --line.woken;
  else
    line.queue.remove(call.caller, waiter);
  call.wakes_next = waiter.may_be_more;
  call.is_over = waiter.is_gone;
  // If the caller of this request was revoked, its key moved to another line, or the deployment is gone, wakes the next
  // request in the line.
  const auto known = view_.deployments.find(call.deployment);
  const bool has_left =
      known == view_.deployments.end() || served.line_of(call, known->second) != name || is_revoked(call);
  if (waiter.is_next && (waiter.is_gone || has_left)) wake_next(line, waiter.may_be_more);
  if (line.size() == 0) served.lines.erase(name);
  if (!waiter.is_gone && !is_woken && !waiter.is_next)
    co_return full(who, name.empty() ? ", and none became free in time" : " and did not become free in time");
  co_return std::nullopt;
}

bool Gateway::is_revoked(const Call& call) const {
  return !call.credential.empty() && !view_.callers.contains(call.credential);
}

void Gateway::explain(const Call& call, const Endpoint* replica, Headers& headers) {
  if (!call.may_know || call.head.headers.get("x-berth-explain") != "1") return;
  if (replica) headers.set("x-berth-replica", replica->name);
  if (replica && !replica->devices.empty()) headers.set("x-berth-device", listed(replica->devices));
  if (!call.record.policy.empty()) headers.set("x-berth-policy", call.record.policy);
  headers.set("x-berth-wait-ms",
              std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(call.waited).count()));
}

bool Gateway::can_reach(const Endpoint& endpoint) const {
  return endpoint.address ? !endpoint.address->empty() : links_.has(endpoint.node);
}

Async<std::unique_ptr<Link>> Gateway::connect(const Endpoint& endpoint, std::string& problem) {
  std::unique_ptr<Link> idle = direct_.take(pool_of(endpoint));
  if (idle) co_return std::move(idle);
  Result<http::Dialer> dialer = http::Dialer::create({.url = "http://" + *endpoint.address});
  if (!dialer) {
    problem = dialer.error().message;
    co_return nullptr;
  }
  auto connected = co_await dialer->connect(loop_, real_clock().now() + options_.relay_time);
  if (!connected) {
    problem = connected.error().message;
    co_return nullptr;
  }
  (*connected)->wire().notice_loss(http::peer_lost_time);
  co_return *std::move(connected);
}

// Returns nothing if the call is over, or if another replica may be tried.
Async<std::optional<Response>> Gateway::try_once(Call& call, const Endpoint& endpoint) {
  Served& served = *served_.at(call.deployment);
  const ServingOptions& serving = view_.deployments.at(call.deployment).serving;
  const auto first_byte_time = std::chrono::duration_cast<std::chrono::milliseconds>(serving.first_byte_timeout);
  const auto silence_time = std::chrono::duration_cast<std::chrono::milliseconds>(serving.idle_timeout);
  const TimePoint began = real_clock().now();
  http::Forwarded forwarded;
  std::optional<std::string> refused, failed;
  const bool is_direct = endpoint.address.has_value();
  std::unique_ptr<Link> own;
  Link* replica = nullptr;  // or the relay of its node
  if (is_direct) {
    std::string problem;
    own = co_await connect(endpoint, problem);
    replica = own.get();
    if (!own) {  // as a relay would report it: the request has not started
      refused = "unreachable";
      failed = problem;
    }
  } else {
    replica = co_await links_.take(endpoint.node, began + options_.relay_time);
    if (!replica && links_.has(endpoint.node))
      refused = "busy";  // slowly read answers occupy all connections of the node
    else if (!replica)
      failed = "node " + endpoint.node.text() + " has no connection to this gateway";
  }
  const bool is_whole = call.client.is_read();  // the body is in memory, or there is none
  if (replica) {
    Headers headers = headers_for_replica(call);
    if (!is_direct) {
      headers.set(relay::header_target, endpoint.name);
      if (const std::size_t missing = links_.missing(endpoint.node); missing > 0)
        headers.set(relay::header_more, std::to_string(missing));
    }
    http::ForwardOptions options;
    options.client_time = options_.client_time;
    options.first_byte_time = first_byte_time;
    options.silence_time = silence_time;
    options.body_begin = call.body_begin;
    options.waits_for_continue = !is_whole && !is_direct;
    if (options.waits_for_continue) headers.set("expect", "100-continue");
    options.text = http::request_text(call.head, headers, call.client.body());
    options.on_answer = [&](Head& answer) {
      if (!is_direct) {  // a replica cannot answer in the name of a relay
        if (const auto load = answer.headers.get(relay::header_load))
          if (const auto count = in_flight_of(*load)) served.balance.report(endpoint.name, *count, real_clock().now());
        if (const auto why = answer.headers.get(relay::header_refused)) refused = world::printable(*why);
        if (const auto why = answer.headers.get(relay::header_failed)) failed = world::printable(*why);
      }
      if (refused || failed) return false;
      options.keeps_client = !is_leaving_;
      note_first_byte(call, answer.status);
      if (!is_failure(answer.status))
        served.balance.learn(endpoint.name, call.first_byte - began, call.first_byte, call.work_class());
      Headers& given = answer.headers;
      given.remove_if([](const std::string& name, const std::string& value) {
        return name.starts_with(own_headers) || (name == "set-cookie" && value.starts_with(own_cookie));
      });
      given.set(header_request_id, call.record.id);
      explain(call, &endpoint, given);
      return true;
    };
    options.on_body_begin_free = [&] { forget_body(call); };  // the request is not sent again
    forwarded = co_await http::forward(call.client, call.head, *replica, options);
    const bool is_usable =
        forwarded.is_server_kept || (forwarded.end == http::Forwarded::End::withheld && replica->is_read() &&
                                     replica->body().keeps_connection && replica->wire().is_open());
    if (!is_direct)
      links_.give_back(endpoint.node, *replica, is_usable);
    else if (is_usable)
      direct_.put(pool_of(endpoint), std::move(own));
    if (forwarded.end == http::Forwarded::End::server_failed && !failed)
      failed = is_direct || forwarded.is_late
                   ? forwarded.problem
                   : "the relay of node " + endpoint.node.text() + " failed: " + forwarded.problem;
  }
  Ending ending = is_failure(forwarded.status) ? Ending::failed : Ending::answered;
  if (failed)
    ending = Ending::failed;
  else if (refused)
    ending = Ending::refused;
  else if (forwarded.end == http::Forwarded::End::client_gone)
    ending = Ending::abandoned;
  served.balance.settle(endpoint.name, ending, real_clock().now(), real_clock().now() - began,
                        failed ? *failed : "it answered with " + std::to_string(forwarded.status));
  note_try(call, endpoint, ending, failed ? *failed : refused.value_or(""), began);
  served.wake_for(endpoint);
  // If the relay is leaving, the replica may be tried again: each retry uses up one of that relay's connections, which
  // limits their number.
  if (refused != relay::refused_leaving) call.tried.insert(endpoint.name);
  if (refused && failed) call.unreachable[endpoint.name] = *failed;
  if (refused) co_return std::nullopt;
  if (!failed) {
    call.is_over = true;
    call.is_kept = forwarded.is_client_kept;
    co_return std::nullopt;
  }
  if (forwarded.is_late && !forwarded.reached_client)
    co_return late_response(call.may_know, call.deployment, endpoint.name, first_byte_time);
  call.failed.insert(endpoint.name);
  call.waits_since = real_clock().now();
  const bool may_repeat = !forwarded.reached_client && is_whole && call.failed.size() < 2 &&
                          (replica == nullptr || (view_.deployments.contains(call.deployment) &&
                                                  view_.deployments.at(call.deployment).idempotent));
  if (may_repeat) co_return std::nullopt;
  call.is_over = forwarded.reached_client;
  if (call.is_over) co_return std::nullopt;
  co_return failed_response(call.may_know, "the replica " + endpoint.name + " did not answer: " + *failed);
}

Async<std::optional<Response>> Gateway::serve(Call& call) {
  bool has_fallen_back = false, has_waited_for_nodes = false;
  while (!call.is_over) {
    const auto known = view_.deployments.find(call.deployment);
    if (known == view_.deployments.end())
      co_return error_response(404, "no_route", "the deployment " + call.deployment.text() + " was deleted");
    if (is_revoked(call)) co_return error_response(401, "wrong_key", "the key was revoked while the request waited");
    Served& served = *served_.at(call.deployment);
    const std::string line = served.line_of(call, known->second);
    const bool queues = known->second.serving.on_capacity_exhausted == OnCapacityExhausted::queue;
    const bool is_first_in_line =
        !queues || call.waited > Duration::zero() || !call.failed.empty() || !served.lines.contains(line);
    std::optional<Endpoint> chosen;
    std::set<std::string> left_out = call.tried;
    const bool has_replicas = !known->second.endpoints.empty();
    bool is_connected = false;  // at least one of their nodes is connected
    bool has_other = false;     // another replica may have room later
    bool has_own = line.empty();
    for (const Endpoint& endpoint : known->second.endpoints) {
      if (!can_reach(endpoint)) {
        left_out.insert(endpoint.name);
        continue;
      }
      is_connected = true;
      has_own |= replica_of(endpoint) == line && !is_draining(endpoint);
      has_other |=
          !is_draining(endpoint) && !call.failed.contains(endpoint.name) && !call.unreachable.contains(endpoint.name);
    }
    if (is_first_in_line && call.tried.size() < tries_max) chosen = choose(call, served, left_out);
    const auto others = served.lines.find(line);
    if (chosen && std::exchange(call.wakes_next, false) && others != served.lines.end())
      wake_next(others->second, true);
    if (chosen) {
      auto refused = co_await try_once(call, *chosen);
      if (refused) co_return refused;
      continue;
    }
    const bool has_failed = !call.failed.empty();
    if (has_failed && !has_other) co_return no_other(call.deployment.text());
    if (!call.unreachable.empty() && !has_other)
      co_return failed_response(call.may_know, "no replica of " + call.deployment.text() +
                                                   " can be reached: " + call.unreachable.begin()->second);
    // If this gateway has just started, its nodes connect within a moment, so this is not a lack of room.
    const bool may_connect = has_replicas && !is_connected && !has_waited_for_nodes;
    if (!has_failed && !may_connect && known->second.serving.on_capacity_exhausted == OnCapacityExhausted::fallback &&
        known->second.serving.fallback && !has_fallen_back &&
        view_.deployments.contains(*known->second.serving.fallback)) {
      has_fallen_back = true;
      call.deployment = *known->second.serving.fallback;
      call.tried.clear();
      call.unreachable.clear();
      call.key.reset();  // the key belongs to the previous deployment
      auto refused = co_await read_key(call);
      if (refused) co_return refused;
      continue;
    }
    call.tried = call.failed;  // replicas that refused the request may have room later
    call.unreachable.clear();
    std::optional<Response> unconnected;
    if (!is_connected) unconnected = unavailable(call.may_know, known->second);
    auto refused = co_await wait_for_room(call, may_connect);
    if (refused && may_connect && !queues) {
      has_waited_for_nodes = true;
      continue;
    }
    if (refused && has_failed) co_return no_other(call.deployment.text());
    if (refused && unconnected) co_return unconnected;
    if (refused && !has_own)
      co_return error_response(
          503, "unavailable", "the replica of this key" + (call.may_know ? ", " + line + "," : "") + " is not ready",
          "berth why " + (call.may_know ? "replica " + line : "request ID") + " shows an operator why");
    if (refused) co_return refused;
  }
  co_return std::nullopt;
}

}  // namespace berth::gateway
