// For tests: a server with one node that accepts reports and output, and sends the orders that the test sets.
#pragma once

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "fleet/fleet.hpp"
#include "fleet_format/fleet_json.hpp"
#include "http/server.hpp"

namespace berth::agent {

class OneNodeServer {
 public:
  explicit OneNodeServer(const std::string& folder)
      : server_({}, [this](const http::Request& request, const http::Responder& to) { answer(request, to); }),
        url(server_.listen("unix:" + folder + "/socket").value()),
        thread_([this] { server_.run(); }) {}
  ~OneNodeServer() {
    server_.shutdown(std::chrono::milliseconds(0));
    thread_.join();
  }

  void order(std::vector<fleet::ReplicaOrder> orders, boost::json::array logs = {},
             std::vector<fleet::GatewayOrder> gateways = {}) {
    const std::lock_guard lock(mutex_);
    orders_ = {1, orders_.number + 1, std::move(orders), std::move(gateways)};
    logs_ = std::move(logs);
    for (const http::Responder& responder : waiting_) send_orders(responder);
    waiting_.clear();
  }
  // Waits until the last report meets the condition.
  template <class Condition>
  testing::AssertionResult until(const Condition& condition) {
    std::unique_lock lock(mutex_);
    const Deadline deadline = Deadline::after(real_clock(), std::chrono::minutes(2));
    while (!condition(states_, output_)) {
      if (deadline.passed(real_clock().now())) {
        testing::AssertionResult late = testing::AssertionFailure() << "not within two minutes:";
        for (const auto& [name, state] : states_) late << " " << name << " is " << to_string(state);
        return late;
      }
      real_clock().wait_until(changed_, lock, deadline.at);
    }
    return testing::AssertionSuccess();
  }

  // The reason in the last report.
  std::string reason_of(const std::string& deployment) {
    const std::lock_guard lock(mutex_);
    return reasons_[deployment];
  }
  std::string problem() {
    const std::lock_guard lock(mutex_);
    return problem_;
  }

  // Waits until output, or a check for a reader, has been sent this many times.
  testing::AssertionResult until_posts(int count) {
    return until([&](const auto&, const auto&) { return posts_ >= count; });
  }

 private:
  void answer(const http::Request& request, const http::Responder& to) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    if (request.path == "/api/v1/agent/report") {
      states_.clear();
      const auto report = format::read_document(request.body, "the report", format::node_report_of);
      for (const fleet::ReplicaReport& replica : report.value().replicas) {
        states_[replica.key.deployment.text()] = replica.state;
        reasons_[replica.key.deployment.text()] = replica.reason;
      }
      problem_ = report.value().problem;
      return to.send({200, {}, format::document({{"epoch", orders_.epoch}, {"revision", orders_.number}})});
    }
    if (request.path == "/api/v1/agent/assignments") {
      if (request.query.at("revision") == std::to_string(orders_.number)) return waiting_.push_back(to);
      return send_orders(to);
    }
    output_ += request.body;
    ++posts_;
    to.send({200, {}, format::document({{"open", true}, {"room", true}})});
  }
  void send_orders(const http::Responder& to) {
    boost::json::object orders = format::to_json(orders_);
    orders["logs"] = std::exchange(logs_, {});
    to.send({200, {}, format::document(std::move(orders))});
  }

  std::mutex mutex_;  // guards the members up to the server
  std::condition_variable changed_;
  fleet::NodeOrders orders_{1, 1, {}};
  boost::json::array logs_;
  std::vector<http::Responder> waiting_;
  std::map<std::string, fleet::ReplicaState> states_;
  std::map<std::string, std::string> reasons_;
  std::string output_, problem_;
  int posts_ = 0;
  http::Server server_;

 public:
  const std::string url;

 private:
  std::thread thread_;
};

inline fleet::ReplicaOrder shell_order(const std::string& name, const std::string& script) {
  fleet::ReplicaOrder order;
  order.spec.name = DeploymentId(name);
  order.spec.cpu = true;
  order.spec.command = {"/bin/sh", "-c", script};
  order.spec.folder = "/";
  order.spec.stop_grace = std::chrono::seconds(5);
  order.assigned.place.deployment = order.spec.name;
  order.assigned.place.node = NodeId("n");
  order.assigned.generation = 1;
  return order;
}

}  // namespace berth::agent
