// The agent's side of the connection to its server: reports what the node has and does, and receives its orders, each
// on its own thread. A server with a lower epoch than the highest one seen is not followed.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/agent.hpp"
#include "agent/node_watch.hpp"
#include "agent/output_sender.hpp"
#include "agent/signal.hpp"
#include "fleet/fleet.hpp"

namespace berth::agent {

// A file that exists while the agent has no server that it may follow: with the time in UTC and the reason, one per
// line. For `berth doctor`.
std::string problem_file(const std::string& folder);
// Writes the file; removes it if `problem` is empty.
void note_problem(const std::string& folder, const std::string& problem);

class ServerLink {
 public:
  // Starts at once. `jobs`: the folder of the jobs. `on_orders` is called on a thread of the link when new orders
  // have arrived.
  ServerLink(const AgentOptions& options, NodeWatch& watch, const std::string& jobs, std::function<void()> on_orders);

  // As in Input of agent/step.hpp.
  struct Received {
    std::optional<fleet::NodeOrders> orders;
    std::optional<TimePoint> report_sent_at;
    std::pair<std::uint64_t, std::uint64_t> newest{};
    std::string address = {};  // this node's address as the server sees it; empty: unknown
  };
  Received received() const;

  // Sets the content of the reports from now on; changes are reported soon. `orders`: the orders that the content is
  // based on. `problem`: the node's.
  void share(std::vector<fleet::ReplicaReport> reports, ReplicaLeases leases,
             const std::optional<fleet::NodeOrders>& orders, std::string problem);

 private:
  void log(format::LogLevel level, std::string message, format::LogFields fields = {}) const;
  void report(const std::stop_token& stop);
  std::string report_once(http::Client& client, const std::stop_token& stop);
  void renew(http::Client& client);
  void reconnect(http::Client& client) const;
  void receive(const std::stop_token& stop);
  bool take_orders(const std::string& body);
  bool is_newest(std::uint64_t epoch);
  bool is_ordered(const fleet::ReplicaKey& key) const;

  const AgentOptions& options_;
  NodeWatch& watch_;
  const std::function<void()> on_orders_;
  const TimePoint started_;
  const std::string id_;  // identifies this start of the agent
  Signal report_due_;

  mutable std::mutex mutex_;  // guards the members up to the sender
  Received received_;
  std::uint64_t epoch_ = 0;  // the highest seen
  std::vector<fleet::ReplicaReport> reports_;
  ReplicaLeases leases_;
  std::string problem_;
  std::uint64_t reported_epoch_ = 0, reported_number_ = 0;  // of the orders that `reports_` are based on
  std::uint64_t reports_made_ = 0;                          // used by the reporting thread
  std::string renewal_problem_;                             // used by the reporting thread

  OutputSender sender_;
  std::jthread receiver_, reporter_;
};

}  // namespace berth::agent
