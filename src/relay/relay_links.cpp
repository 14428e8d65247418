#include "relay/relay_links.hpp"

#include <algorithm>
#include <utility>

#include "world/printable.hpp"

namespace berth::relay {

using http::Async;
using http::Link;

namespace {

// Idle connections beyond this number, left over from a burst, are closed after this time.
constexpr std::size_t idle_many = 16;
constexpr Duration idle_time = std::chrono::seconds(60);
// If fewer connections are idle, more are opened, at most `missing_max` at a time, however many requests wait.
constexpr std::size_t idle_few = 4, missing_max = 64;
constexpr std::size_t protocol_bytes_max = 64;  // limit for another side's protocol name in messages

}  // namespace

std::string protocol_problem(const std::string& who, std::string_view theirs) {
  return who + " uses the relay protocol \"" + world::printable(theirs.substr(0, protocol_bytes_max)) +
         "\", and this berth uses \"" + std::string(relay_protocol) +
         "\", so no requests pass between them; upgrade the older berth";
}

std::string protocol_refusal() {
  return "HTTP/1.1 426 Upgrade Required\r\nconnection: upgrade, close\r\nupgrade: " + std::string(relay_protocol) +
         "\r\ncontent-length: 0\r\n\r\n";
}

Async<void> RelayLinks::keep(Link& link, const NodeId& node, std::string credential) {
  std::string text = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: ";
  text.append(relay_protocol).append("\r\n\r\n");
  const http::ErrorValue error = co_await link.write(text);
  if (error) co_return;
  link.wire().notice_loss(http::peer_lost_time);
  Kept kept{&link, std::move(credential), http::Signal(loop_)};
  OfNode& of = nodes_[node];
  of.all[&link] = &kept;
  offer(of, link);
  co_await kept.over.wait();
  of.all.erase(&link);
  std::erase_if(of.idle, [&](const Idle& idle) { return idle.link == &link; });
  forget_if_empty(node);
}

void RelayLinks::forget_if_empty(const NodeId& node) {
  const auto found = nodes_.find(node);
  if (found != nodes_.end() && found->second.all.empty() && found->second.waiters.empty()) nodes_.erase(found);
}

void RelayLinks::keep_only(const std::set<std::string>& credentials) {
  for (auto& [node, of] : nodes_) {
    for (const auto& [link, kept] : of.all) {
      if (credentials.contains(kept->credential)) continue;
      // If the connection carries a request, the request fails and gives it back.
      link->wire().close();
      const auto is_it = [link = link](const Idle& idle) { return idle.link == link; };
      if (std::erase_if(of.idle, is_it) > 0) kept->over.notify();
    }
  }
}

void RelayLinks::hand_over() {
  hands_over_ = true;
  for (auto& [node, of] : nodes_) {
    while (of.idle.size() > 1) {
      of.all.at(of.idle.back().link)->over.notify();
      of.idle.pop_back();
    }
  }
}

void RelayLinks::end() {
  is_ending_ = true;
  for (auto& [node, of] : nodes_)
    for (const Idle& idle : std::exchange(of.idle, {})) of.all.at(idle.link)->over.notify();
}

void RelayLinks::offer(OfNode& node, Link& link) {
  const bool is_spare = hands_over_ && node.waiters.empty() && !node.idle.empty();
  if (is_ending_ || is_spare) return node.all.at(&link)->over.notify();
  if (node.waiters.empty()) {
    const TimePoint now = real_clock().now();
    // Connections are closed at this end, where it is known that no request is on its way.
    if (node.idle.size() >= idle_many && now - node.idle.front().since > idle_time) {
      node.all.at(node.idle.front().link)->over.notify();
      node.idle.erase(node.idle.begin());
    }
    return node.idle.push_back({&link, now});
  }
  Waiter& waiter = *node.waiters.front();
  node.waiters.pop_front();
  waiter.link = &link;
  waiter.signal.notify();
}

Async<Link*> RelayLinks::take(const NodeId& node, TimePoint until) {
  OfNode& of = nodes_[node];
  while (!of.idle.empty()) {
    Link* const link = of.idle.back().link;
    of.idle.pop_back();
    if (!link->is_stale()) co_return link;
    of.all.at(link)->over.notify();
  }
  Waiter waiter{http::Signal(loop_)};
  of.waiters.push_back(&waiter);
  const bool is_offered = co_await waiter.signal.wait(until);
  if (!is_offered && waiter.link == nullptr) {
    std::erase(of.waiters, &waiter);
    forget_if_empty(node);
  }
  co_return waiter.link;
}

void RelayLinks::give_back(const NodeId& node, Link& link, bool is_usable) {
  OfNode& of = nodes_.at(node);
  if (is_usable) return offer(of, link);
  of.all.at(&link)->over.notify();
  // If the host is down, closes all idle connections, so that requests need not find this out one by one. Connections
  // with a request find out by themselves.
  if (link.error() == http::host_down())
    for (const Idle& idle : std::exchange(of.idle, {})) of.all.at(idle.link)->over.notify();
}

std::size_t RelayLinks::idle(const NodeId& node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? 0 : found->second.idle.size();
}

std::size_t RelayLinks::size() const {
  std::size_t all = 0;
  for (const auto& [node, of] : nodes_) all += of.all.size();
  return all;
}

std::size_t RelayLinks::missing(const NodeId& node) const {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || found->second.idle.size() >= idle_few) return 0;
  return std::min(idle_few - found->second.idle.size() + found->second.waiters.size(), missing_max);
}

bool RelayLinks::has(const NodeId& node) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && !found->second.all.empty();
}

}  // namespace berth::relay
