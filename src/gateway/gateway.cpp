#include "gateway/gateway.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "gateway/call.hpp"
#include "http/forward.hpp"
#include "relay/relay.hpp"

namespace berth::gateway {

using http::Async;
using http::Head;
using http::Link;
using http::Response;

namespace {

constexpr std::chrono::milliseconds wake_every{100};

Response not_ready() {
  Response response =
      http::error_response(503, "unavailable", "this gateway has not heard its server yet", "try again");
  response.headers.set("retry-after", "1");
  return response;
}

}  // namespace

Gateway::Gateway(http::Loop& loop, GatewayOptions options)
    : loop_(loop), options_(std::move(options)), links_(loop), tick_(loop) {
  ticking_.emplace(wake_regularly());
}

Gateway::~Gateway() = default;

void Gateway::set(FleetView view) {
  view_ = std::move(view);
  has_view_ = true;
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
  std::optional<Response> answer = has_view_ ? authenticate(call) : not_ready();
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
