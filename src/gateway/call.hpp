// One request on its way through a gateway, and what the requests of one deployment share. For the parts of Gateway
// alone: gateway.cpp takes requests, entry.cpp finds out who calls what, passing.cpp passes them on, observe.cpp counts
// them.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "gateway/gateway.hpp"
#include "gateway/request_id.hpp"

namespace berth::gateway {

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
  http::Link& client;
  http::Head& head;
  const http::Peer& peer;
  TimePoint began = real_clock().now();
  std::string path = {};    // decoded
  std::string caller = {};  // the id of its key, or "local"; empty: not known
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
  fleet::RequestRecord record = {};
  TraceParent trace = {};
  TimePoint first_byte{};  // of the answer
};

}  // namespace berth::gateway
