// The gateway's end of the path to replicas: connections that the relays of nodes have opened to this gateway, and on
// which the gateway sends requests. Each carries one request at a time, so that nothing is mixed on it. A relay opens
// another one when few are idle. For the thread of the gateway's server.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "berth/ids.hpp"
#include "http/async.hpp"
#include "http/link.hpp"
#include "http/loop.hpp"
#include "http/message.hpp"

namespace berth::relay {

// The upgrade protocol that a relay requests, and its path.
inline constexpr std::string_view relay_protocol = "berth-relay-1", relay_path = "/.berth/relay";
// A sentence about a gateway or a relay that uses another protocol: "berth-relay-2", or text that it has chosen.
std::string protocol_problem(const std::string& who, std::string_view theirs);
// The answer to a relay with another protocol.
std::string protocol_refusal();

class RelayLinks {
 public:
  explicit RelayLinks(http::Loop& loop) : loop_(loop) {}

  // Answers the request of a relay and keeps its connection; returns when that is over.
  // `credential` is the one that it has proven.
  http::Async<void> keep(http::Link& link, const NodeId& node, std::string credential = {});
  // Closes connections with other credentials.
  void keep_only(const std::set<std::string>& credentials);

  // An idle connection to the relay of that node. Null: there was none until `until`. give_back() follows.
  http::Async<http::Link*> take(const NodeId& node, TimePoint until);
  // `is_usable`: it can carry another request. If it ended because the machine is lost, idle ones are closed too.
  void give_back(const NodeId& node, http::Link& link, bool is_usable);

  // Another gateway takes over, now or later, and needs connections from the relays: this one keeps one idle
  // connection per node for its remaining requests.
  void hand_over();
  // The gateway ends: idle connections are closed now, others when they are given back.
  void end();

  std::size_t idle(const NodeId& node) const;
  // The number of connections of all nodes, idle or not.
  std::size_t size() const;
  // How many more connections the relay of the node should open: a few idle ones, and one for each waiting request.
  std::size_t missing(const NodeId& node) const;
  // Whether there is at least one, idle or not.
  bool has(const NodeId& node) const;

 private:
  struct Kept {
    http::Link* link = nullptr;
    std::string credential;
    http::Signal over;
  };
  struct Waiter {
    http::Signal signal;
    http::Link* link = nullptr;
  };
  struct Idle {
    http::Link* link = nullptr;
    TimePoint since{};
  };
  struct OfNode {
    std::map<http::Link*, Kept*> all;
    std::vector<Idle> idle;  // the most recently used one is at the end
    std::deque<Waiter*> waiters;
  };
  void offer(OfNode& node, http::Link& link);

  void forget_if_empty(const NodeId& node);

  http::Loop& loop_;
  std::map<NodeId, OfNode> nodes_;
  bool hands_over_ = false, is_ending_ = false;
};

}  // namespace berth::relay
