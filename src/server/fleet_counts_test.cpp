#include "server/fleet_counts.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "server/fleet_metrics.hpp"
#include "server/test_leader.hpp"

namespace berth::server {
namespace {

const TimePoint start{1h};

fleet::Assigned assigned(std::uint32_t replica, std::uint64_t generation) {
  fleet::Assigned incarnation;
  incarnation.place.deployment = DeploymentId("chat");
  incarnation.place.replica = replica;
  incarnation.generation = generation;
  return incarnation;
}

fleet::NodeReport report_of(const std::vector<std::pair<fleet::Assigned, std::uint32_t>>& failures) {
  fleet::NodeReport report;
  report.node.id = NodeId("gpu-1");
  for (const auto& [replica, count] : failures) {
    fleet::ReplicaReport& reported = report.replicas.emplace_back();
    reported.key = replica.key();
    reported.failures = count;
  }
  return report;
}

TEST(FleetCounts, RestartsAreFailuresSinceTheServerHeardOfTheNode) {
  FleetCounts counts;
  const std::vector<fleet::Assigned> here{assigned(0, 7), assigned(1, 8)};
  const auto take = [&](std::uint32_t first, std::uint32_t second) {
    counts.take(report_of({{here[0], first}, {here[1], second}}), here, start);
  };
  const auto restarts = [&](std::uint32_t replica) { return counts.restarts(DeploymentId("chat"), replica); };
  take(5, 0);
  EXPECT_EQ(restarts(0), 0U) << "an earlier server counted these restarts";
  take(6, 2);
  EXPECT_EQ(restarts(0), 1U);
  EXPECT_EQ(restarts(1), 2U);
  take(0, 2);
  EXPECT_EQ(restarts(0), 1U) << "a reset of the failures is not a restart";
  take(1, 2);
  EXPECT_EQ(restarts(0), 2U);
  const std::vector<fleet::Assigned> next{assigned(0, 9)};
  counts.take(report_of({{next[0], 1}}), next, start);
  EXPECT_EQ(restarts(0), 3U) << "another incarnation of the same replica";
  counts.take(report_of({{assigned(2, 10), 4}}), next, start);
  EXPECT_EQ(restarts(2), 0U) << "a replica that the node does not have";
}

TEST(FleetCounts, ReplicasAndNodesThatAreGoneAreForgotten) {
  FleetCounts counts;
  const std::vector<fleet::Assigned> here{assigned(0, 7), assigned(1, 8)};
  fleet::NodeReport report = report_of({{here[0], 1}, {here[1], 1}});
  counts.take(report_of({}), here, start);
  counts.take(report, here, start);
  store::State state;
  state.nodes[NodeId("gpu-1")];
  state.desired.deployments[DeploymentId("chat")].spec.replicas = 1;
  counts.keep_only(state);
  EXPECT_EQ(counts.restarts(DeploymentId("chat"), 0), 1U);
  EXPECT_EQ(counts.restarts(DeploymentId("chat"), 1), 0U) << "the deployment has one replica now";
  counts.keep_only({});
  EXPECT_EQ(counts.restarts(DeploymentId("chat"), 0), 0U);
  counts.take(report, here, start);
  EXPECT_EQ(counts.restarts(DeploymentId("chat"), 0), 0U) << "the node is new";
}

TEST(FleetCounts, TheFrontOfAQueueIsTheRequestWithTheLowestPlace) {
  FleetCounts counts;
  const auto take = [&](const std::vector<std::pair<std::string, std::uint64_t>>& waiting, TimePoint now) {
    fleet::NodeReport report = report_of({});
    for (const auto& [name, place] : waiting) {
      fleet::ReportedLease& lease = report.leases.emplace_back();
      lease.state = fleet::LeaseState::waiting;
      lease.name = name;
      lease.place = place;
    }
    report.leases.emplace_back();  // a running lease
    counts.take(report, {}, now);
  };
  const auto front = [&](TimePoint now) { return counts.front_time(NodeId("gpu-1"), now); };
  take({}, start);
  EXPECT_FALSE(front(start));
  take({{"second", 2}, {"first", 1}}, start + 1s);
  take({{"first", 1}, {"second", 2}}, start + 5s);
  EXPECT_EQ(front(start + 6s), 5s);
  take({{"second", 1}, {"third", 2}}, start + 7s);
  EXPECT_EQ(front(start + 8s), 1s) << "the queue has moved";
  take({}, start + 9s);
  EXPECT_FALSE(front(start + 9s));
}

class FleetMetricsTest : public LeaderTest {
 protected:
  bool has(const std::string& line) const {
    const std::string text = "\n" + fleet_metrics_text(leader_, {}, {}, {});
    return text.find("\n" + line) != std::string::npos;
  }
};

TEST_F(FleetMetricsTest, OfASilentNodeNothingIsKnownButThatItIsLost) {
  EXPECT_TRUE(has("berth_node_up{node=\"gpu-1\"} 1\n"));
  EXPECT_FALSE(has("berth_node_report_age_seconds{")) << "it has not reported to this server";
  LastReport last;
  last.report.node.id = node_;
  last.report.agent = "a-1";
  last.report.number = 1;
  fleet::ReportedDevice& gpu = last.report.devices.emplace_back();
  gpu.info.id = DeviceId("GPU-1");
  gpu.info.backend = "cuda";
  gpu.temperature_celsius = 40;
  gpu.sample_age_ms = 0;
  fleet::ReportedDevice host = gpu;
  host.info.id = DeviceId("host");
  host.info.backend = "host";
  last.report.devices.push_back(host);
  ASSERT_TRUE(leader_.take_report(last));
  EXPECT_TRUE(has("berth_gpu_temperature_celsius{node=\"gpu-1\",device=\"GPU-1\"} 40\n"));
  EXPECT_TRUE(has("berth_gpus{node=\"gpu-1\",use=\"free\"} 1\n")) << "a processor is not a GPU";
  EXPECT_TRUE(has("berth_jobs{node=\"gpu-1\",state=\"waiting\"} 0\n"));
  EXPECT_FALSE(has("berth_gpu_power_watts{"));
  lose_node();
  EXPECT_TRUE(has("berth_node_up{node=\"gpu-1\"} 0\n"));
  EXPECT_TRUE(has("berth_nodes{health=\"lost\"} 1\n"));
  for (const char* const line : {"berth_gpus{", "berth_gpu_health{", "berth_gpu_temperature_celsius{", "berth_jobs{"})
    EXPECT_FALSE(has(line)) << line;
}

TEST_F(FleetMetricsTest, AStoreThatFailsIsCounted) {
  EXPECT_TRUE(has("berth_store_errors_total 0\n"));
  EXPECT_FALSE(has("berth_store_size_bytes ")) << "the store is in memory";
  engine_->fail_after(0, store::FailingEngine::Failure::lost);
  EXPECT_FALSE(leader_.set_intent(node_, Intent::cordoned, "test"));
  EXPECT_FALSE(has("berth_store_errors_total 0\n"));
  EXPECT_FALSE(store_space("memory"));
  EXPECT_FALSE(store_space("sqlite:/nonexistent/store.db"));
}

}  // namespace
}  // namespace berth::server
