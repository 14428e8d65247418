// A leader with one joined node, on a store in memory that can be made to fail.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "berth/fake_clock.hpp"
#include "server/leader.hpp"
#include "store/memory_engine.hpp"
#include "store/test_failing_engine.hpp"

namespace berth::server {

using namespace std::chrono_literals;

class LeaderTest : public testing::Test {
 protected:
  LeaderTest() { join(); }

  void join() {
    fleet::Credential credential;
    credential.id = "t1";
    credential.role = fleet::Role::node;
    credential.node = node_;
    EXPECT_TRUE(leader_.add_node(node_, credential, "", "test"));
  }

  // Joins like a machine that has the token with this id.
  Result<void> join_with(const std::string& token, const std::string& id) {
    fleet::Credential credential;
    credential.id = id;
    credential.role = fleet::Role::node;
    credential.node = node_;
    return leader_.add_node(node_, credential, token, "test");
  }
  // Lets time pass in which this server leads and the node is silent.
  void lose_node() {
    for (int i = 0; i < 100 && leader_.health(node_) != controller::NodeHealth::lost; ++i) {
      clock_.advance(5s);
      EXPECT_TRUE(leader_.renew());
    }
    EXPECT_EQ(leader_.health(node_), controller::NodeHealth::lost);
  }
  void add_join_token(const std::string& id, std::optional<NodeId> node) {
    fleet::Credential token;
    token.id = id;
    token.role = fleet::Role::join;
    token.node = std::move(node);
    EXPECT_TRUE(leader_.add_credential(token, "test"));
  }

  Result<void> report(const std::string& agent, std::uint64_t number, std::uint64_t memory_bytes,
                      std::uint64_t start_ms = 0, std::vector<fleet::ReplicaReport> replicas = {}) {
    LastReport last;
    last.report.node.id = node_;
    last.report.node.memory_bytes = memory_bytes;
    last.report.agent = agent;
    last.report.agent_start_monotonic_ms = start_ms;
    last.report.number = number;
    last.report.epoch = 1;
    last.report.replicas = std::move(replicas);
    return leader_.take_report(std::move(last));
  }
  // Deploys one replica without a GPU, which the node gets.
  void deploy(DeploymentSpec spec) {
    spec.name = DeploymentId("batch");
    spec.model = "llama-3.1-8b";
    spec.command = {"serve"};
    spec.cpu = true;
    Project project;
    project.cluster.name = "lab";
    project.deployments.push_back(std::move(spec));
    EXPECT_TRUE(report("a-1", 1, 100));
    EXPECT_TRUE(leader_.apply(project, std::nullopt, "user:ann"));
    EXPECT_TRUE(leader_.step());
    EXPECT_EQ(leader_.orders(node_).orders.size(), 1u);
  }
  std::optional<std::uint64_t> known_bytes() const { return leader_.last_report(node_)->report.node.memory_bytes; }

  const NodeId node_{"gpu-1"};
  FakeClock clock_;
  std::shared_ptr<store::FailingEngine> engine_ =
      std::make_shared<store::FailingEngine>(store::make_memory_engine(clock_));
  Leader leader_ = Leader::begin(store::Store::open(engine_).value(), "server-1", clock_, {}).value();
};

}  // namespace berth::server
