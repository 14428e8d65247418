// One request on its way through a gateway, and what the requests of one deployment share. Only for the parts of
// Gateway: gateway.cpp accepts requests, entry.cpp finds the caller and the deployment, passing.cpp forwards
// requests, and observe.cpp counts them.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "berth/shard_table.hpp"
#include "deployment/key_source.hpp"
#include "gateway/gateway.hpp"
#include "gateway/request_id.hpp"

namespace berth::gateway {

struct Gateway::Line {
  FairQueue<Waiter> queue;
  std::uint32_t woken = 0;  // requests that have left the queue and have not tried yet
  std::size_t size() const { return queue.size() + woken; }
};

// A deployment, with the requests that wait for it.
struct Gateway::Served {
  explicit Served(const Policy& policy) : balance(policy) {}
  Balance balance;
  std::optional<deployment::KeySource> source = {};
  std::optional<std::string> shards = {};  // the text of the shard table
  std::optional<ShardTable> table = {};
  // Requests that any replica can serve wait in the line "", those that need one replica in the line with its name,
  // so that no request waits behind one that cannot be served yet.
  std::map<std::string, Line> lines = {};

  std::size_t waiting() const {
    std::size_t all = 0;
    for (const auto& [name, line] : lines) all += line.queue.size();
    return all;
  }
  std::size_t waiting_of(const std::string& caller) const {
    std::size_t all = 0;
    for (const auto& [name, line] : lines) all += line.queue.size_of(caller);
    return all;
  }
  void set_keys(const Deployment& deployment);
  void wake_for(const Endpoint& endpoint);
  std::string line_of(const Call& call, const Deployment& deployment) const;
  std::vector<DeviceId> replicas_for(const Call& call, const Deployment& deployment) const;
};

struct Gateway::Waiter {
  http::Signal signal;
  bool is_next = false;
  bool may_be_more = false;  // more room than for this request
  bool is_gone = false;      // its client
  http::Signal is_over;      // the wait
};

// One request.
struct Gateway::Call {
  http::Link& client;
  http::Head& head;
  const http::Peer& peer;
  TimePoint began = real_clock().now();
  TimePoint waits_since = began;  // or the time when a replica failed
  std::string path = {};          // decoded
  std::string caller = {};        // the id of its key, or "local"; empty: not known
  std::string credential = {};    // the hash of its key; empty: it has none
  std::uint32_t weight = 1;
  std::optional<DeploymentId> may_call = {};  // only this one
  bool may_know = false;                      // may see the names of replicas, nodes and devices
  DeploymentId deployment = {};
  std::optional<std::string> key = {};  // the key that keeps it on one replica
  std::string body_begin = {};          // the part that was read to find the model, or to send it again
  std::set<std::string> tried = {};
  std::map<std::string, std::string> unreachable = {};  // the tried replicas that it did not reach, and why
  std::set<std::string> failed = {};                    // those of `tried` that died with it, or had no connection
  Duration waited{};
  bool wakes_next = false;  // where it finds room
  bool is_over = false;     // the request was answered, or its client is gone
  bool is_kept = false;     // the client's connection
  std::size_t peeked = 0;   // bytes of the budget
  fleet::RequestRecord record = {};
  TraceParent trace = {};
  TimePoint first_byte{};  // of the answer

  // Requests with the same path take about equally long. Long paths are not kept.
  std::string_view work_class() const { return path.size() <= 256 ? std::string_view(path) : std::string_view(); }
};

// "a=1; b=2" as "a=1" and "b=2".
inline std::vector<std::string_view> cookies_of(std::string_view header) {
  std::vector<std::string_view> pairs;
  while (!header.empty()) {
    const std::size_t end = header.find(';');
    std::string_view pair = header.substr(0, end);
    pair.remove_prefix(std::min(pair.find_first_not_of(" \t"), pair.size()));
    if (!pair.empty()) pairs.push_back(pair);
    header = end == header.npos ? std::string_view() : header.substr(end + 1);
  }
  return pairs;
}

}  // namespace berth::gateway
