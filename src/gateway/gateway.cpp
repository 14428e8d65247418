#include "gateway/gateway.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "gateway/call.hpp"
#include "http/forward.hpp"
#include "relay/relay.hpp"
#include "world/wall_time.hpp"

namespace berth::gateway {

using http::Async;
using http::Head;
using http::Link;
using http::Response;

namespace {

constexpr std::chrono::milliseconds wake_every{100};

Response not_ready() {
  Response response =
      http::error_response(503, "unavailable", "this gateway has no contact with its server yet", "try again");
  response.headers.set("retry-after", "1");
  return response;
}

}  // namespace

Gateway::Gateway(http::Loop& loop, GatewayOptions options)
    : loop_(loop), options_(std::move(options)), links_(loop), traffic_(world::wall_time_ms()), tick_(loop) {
  ticking_.emplace(wake_regularly());
}

Gateway::~Gateway() = default;

void Gateway::set(FleetView view) {
  // A restarted server has no reports from the nodes yet. Known addresses remain valid, because a replica keeps its
  // port as long as it runs.
  for (auto& [name, deployment] : view.deployments) {
    const auto before = view_.deployments.find(name);
    if (before == view_.deployments.end()) continue;
    for (Endpoint& endpoint : deployment.endpoints) {
      if (endpoint.address != "") continue;
      for (const Endpoint& known : before->second.endpoints)
        if (known.name == endpoint.name) endpoint.address = known.address;
    }
  }
  view_ = std::move(view);
  has_view_ = true;
  routes_ = Routes(view_.deployments);
  std::set<std::string> callers;
  for (const auto& [sum, caller] : view_.callers) callers.insert(caller.id);
  std::erase_if(turns_, [&](const auto& item) { return !callers.contains(item.first); });
  for (const auto& [name, deployment] : view_.deployments) {
    auto& served = served_[name];
    const Policy* const policy = find_policy(deployment.serving.policy.value_or(std::string(default_policy)));
    if (!served) served = std::make_unique<Served>(*find_policy(default_policy));
    if (policy) served->balance.set_policy(*policy);
    served->balance.set(deployment.endpoints);
    served->set_keys(deployment);
    wake_all(*served);
  }
  std::set<std::string> deployments, replicas;
  for (const auto& [name, deployment] : view_.deployments) {
    deployments.insert(name.text());
    for (const Endpoint& endpoint : deployment.endpoints) replicas.insert(endpoint.name);
  }
  traffic_.keep_only(deployments, replicas, callers);
  for (const auto& [name, served] : served_)
    if (!view_.deployments.contains(name)) served->balance.set({});
  std::erase_if(served_, [&](const auto& item) {
    const Served& served = *item.second;
    return !view_.deployments.contains(item.first) && served.balance.in_flight() == 0 && served.lines.empty();
  });
}

void Gateway::end() {
  is_ending_ = true;
  links_.end();
  direct_.clear();
  tick_.notify();
}

std::size_t Gateway::waiting() const {
  std::size_t all = 0;
  for (const auto& [name, served] : served_) all += served->waiting();
  return all;
}

void Gateway::wake_next(Line& line, bool may_be_more) {
  Waiter* const next = line.queue.pop();
  if (next == nullptr) return;
  next->is_next = true;
  next->may_be_more = may_be_more;
  ++line.woken;
  next->signal.notify();
}

void Gateway::wake_all(Served& served) {
  for (auto& [name, line] : served.lines)
    if (line.woken == 0) wake_next(line, true);
}

// Waiting requests try again regularly, because requests that end at other gateways make room without notice.
Async<void> Gateway::wake_regularly() {
  while (!is_ending_) {
    co_await tick_.wait(real_clock().now() + wake_every);
    for (const auto& [name, served] : served_) wake_all(*served);
    direct_.close_old(real_clock().now());
  }
}

Async<bool> Gateway::send(Call& call, Response response) {
  const bool is_kept = call.client.is_read() && call.client.body().keeps_connection && !is_leaving_;
  response.headers.set(header_request_id, call.record.id);
  explain(call, nullptr, response.headers);
  Link::Body body{.is_chunked = false, .length = response.body.size()};
  std::string text = http::response_text(response.status, response.headers, body, is_kept);
  if (call.head.method != "HEAD") text += response.body;
  // A client that keeps sending requests and never reads must not block this coroutine.
  call.client.wire().write_by(real_clock().now() + options_.client_time);
  const http::ErrorValue error = co_await call.client.write(text);
  call.client.wire().write_by(TimePoint::max());
  co_return is_kept && !error;
}

Async<bool> Gateway::handle(Link& client, Head& head, const http::Peer& peer) {
  if (head.target == relay::relay_path) {
    const std::optional<NodeId> node = options_.relay_of(head, peer);
    const std::string_view protocol = head.headers.get("upgrade").value_or("");
    if (!node) {
      co_await client.write("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    } else if (protocol != relay::relay_protocol) {
      if (options_.on_other_protocol) options_.on_other_protocol(*node, protocol);
      co_await client.write(relay::protocol_refusal());
    } else {
      co_await links_.keep(client, *node, peer.credential);
    }
    co_return false;
  }
  Call call{client, head, peer};
  call.record.id = request_id(head.headers.get(header_request_id), real_random());
  call.record.at_ms = world::wall_time_ms();
  call.trace = trace_parent(head.headers.get(header_trace), real_random());
  ++calls_;
  std::optional<Response> answer = has_view_ ? authenticate(call) : not_ready();
  if (!answer) {
    ++in_flight_[call.caller];
    co_await permit_body(call);
    answer = co_await find_deployment(call);
    if (!answer) answer = co_await serve(call);
    if (--in_flight_[call.caller] == 0) in_flight_.erase(call.caller);
  }
  forget_body(call);
  bool is_kept = call.is_kept;
  if (answer) is_kept = co_await send(call, *answer);
  finish(call, answer ? &*answer : nullptr);
  --calls_;
  co_return is_kept;
}

}  // namespace berth::gateway
