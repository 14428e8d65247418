#include "agent/relay_targets.hpp"

#include <gtest/gtest.h>

#include "agent/test_step.hpp"

namespace berth::agent {
namespace {

using namespace std::chrono_literals;

struct RelayTargetsTest : AgentStepTest {
  FoundJob callable(const ReplicaOrder& order, const std::string& id) {
    FoundJob job = job_of(order, id, FoundState::running);
    job.port = 40001;
    return job;
  }
  // The targets from the reports of a step at `now`, as the agent computes them.
  std::vector<relay::Target> targets_at(Duration now) {
    return relay_targets(jobs, step_at(now).reports, *orders, [](const std::string& job) { return "/jobs/" + job; });
  }
};

TEST_F(RelayTargetsTest, OnlyAReadyReplicaTakesRequests) {
  ReplicaOrder& chat = add(order("chat", 0, 17));
  chat.spec.serving.max_concurrent = 3;
  jobs = {callable(chat, "j1")};
  EXPECT_TRUE(targets_at(1s).empty()) << "the replica is starting";
  EXPECT_EQ(targets_at(3s),
            (std::vector<relay::Target>{{"chat/0#17", "http://127.0.0.1:40001", 3, false, "/jobs/j1"}}));
  Probe probe;
  probe.tcp = true;
  chat.spec.readiness = probe;
  probed["j1"].readiness = {true, 3, "it does not answer"};
  EXPECT_EQ(targets_at(4s), (std::vector<relay::Target>{{"chat/0#17", "http://127.0.0.1:40001", 3, true, "/jobs/j1"}}))
      << "the replica is no longer ready";
}

TEST_F(RelayTargetsTest, OneThatStopsIsDrainedUntilItHasEnded) {
  ReplicaOrder& chat = add(order("chat", 0, 17));
  jobs = {callable(chat, "j1")};
  chat.assigned.stopping = true;
  EXPECT_TRUE(targets_at(3s).at(0).is_draining);
  orders->orders.clear();
  EXPECT_TRUE(targets_at(4s).at(0).is_draining);
  jobs[0].state = FoundState::ended;
  EXPECT_TRUE(targets_at(5s).empty());
}

TEST_F(RelayTargetsTest, OneThatWasAskedToEndIsDrainedAtOnce) {
  jobs = {callable(add(order("chat", 0, 17)), "j1")};
  const Step step = step_at(3s);
  jobs[0].is_stopping = true;  // since that step
  EXPECT_TRUE(relay_targets(jobs, step.reports, *orders, [](const std::string&) { return ""; }).at(0).is_draining);
}

TEST_F(RelayTargetsTest, AReplicaWithoutAPortAndASocketIsNone) {
  jobs = {callable(add(order("chat", 0, 17)), "j1")};
  jobs[0].port.reset();
  EXPECT_TRUE(targets_at(3s).empty());
  jobs[0].socket = "/jobs/j1/run/socket";
  EXPECT_EQ(targets_at(3s).at(0).address, "unix:/jobs/j1/run/socket");
}

TEST_F(RelayTargetsTest, AReplicaThatGatewaysReachDirectlyIsNone) {
  jobs = {callable(add(order("chat", 0, 17)), "j1")};
  jobs[0].direct = "0.0.0.0";
  EXPECT_TRUE(targets_at(3s).empty());
}

TEST_F(RelayTargetsTest, OfTwoJobsOfAReplicaTheFirstIsTheTarget) {
  const ReplicaOrder& chat = add(order("chat", 0, 17));
  jobs = {callable(chat, "j1"), callable(chat, "j2")};
  jobs[1].since = at(1s);
  const std::vector<relay::Target> targets = targets_at(3s);
  ASSERT_EQ(targets.size(), 1u);
  EXPECT_EQ(targets[0].job, "/jobs/j1");
}

TEST(GatewayUrl, WithoutAHostItIsOnTheMachineOfTheServer) {
  EXPECT_EQ(gateway_url(":8081", "https://head:8443"), "http://head:8081");
  EXPECT_EQ(gateway_url(":8081", "https://[fe80::1]:8443"), "http://[fe80::1]:8081");
  EXPECT_EQ(gateway_url(":8081", "unix:/run/berth/socket"), "http://127.0.0.1:8081");
  EXPECT_EQ(gateway_url(":8081", "http://localhost:8080"), "http://127.0.0.1:8081");
  EXPECT_EQ(gateway_url("10.0.0.5:8081", "https://head:8443"), "http://10.0.0.5:8081");
  EXPECT_EQ(gateway_url("[::2]:8081", "https://head:8443"), "http://[::2]:8081");
}

TEST(GatewayUrl, ALoopbackAddressIsThatOfTheServersMachineAlone) {
  EXPECT_EQ(gateway_url("127.0.0.1:8081", "unix:/run/berth/socket"), "http://127.0.0.1:8081");
  EXPECT_EQ(gateway_url("localhost:8081", "http://127.0.0.1:8080"), "http://localhost:8081");
  EXPECT_EQ(gateway_url("127.0.0.1:8081", "https://head:8443"), std::nullopt);
  EXPECT_EQ(gateway_url("[::1]:8081", "https://head:8443"), std::nullopt);
  EXPECT_EQ(gateway_url("nonsense", "https://head:8443"), "http://nonsense");
  EXPECT_EQ(gateway_url("a@b:1", "https://head:8443"), std::nullopt);
}

}  // namespace
}  // namespace berth::agent
