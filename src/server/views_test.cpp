#include "server/views.hpp"

#include <boost/json.hpp>

#include "server/test_leader.hpp"
#include "world/wall_time.hpp"

namespace berth::server {
namespace {

namespace json = boost::json;

class ViewsTest : public LeaderTest {
 protected:
  // The next report of the node.
  LastReport next() {
    LastReport last;
    last.report.node.id = node_;
    last.report.agent = "a-1";
    last.report.number = ++number_;
    last.report.epoch = 1;
    last.report.now_ms = world::wall_time_ms();
    return last;
  }
  json::object device() const {
    const json::object node = node_view(leader_, leader_.state().nodes.at(node_));
    return node.at("devices").as_array().at(0).as_object();
  }

 private:
  std::uint64_t number_ = 10;
};

TEST_F(ViewsTest, OfTheDevicesOfALostNodeNeitherHealthNorMeasurementsAreSaid) {
  LastReport last = next();
  fleet::ReportedDevice& gpu = last.report.devices.emplace_back();
  gpu.info.id = DeviceId("GPU-1");
  gpu.info.backend = "cuda";
  gpu.info.memory_bytes_total = 80;
  gpu.memory_bytes_free = 70;
  gpu.memory_bytes_promised = 5;
  gpu.sample_age_ms = 100;
  gpu.utilization = 0.5;
  gpu.temperature_celsius = 54;
  const std::vector<const char*> known{"health",        "memory_bytes_free", "memory_bytes_promised",
                                       "sample_age_ms", "utilization",       "temperature_celsius"};
  ASSERT_TRUE(leader_.take_report(std::move(last)));
  for (const char* const key : known) EXPECT_TRUE(device().contains(key)) << key;
  lose_node();
  for (const char* const key : known) EXPECT_FALSE(device().contains(key)) << key;
  EXPECT_EQ(device().at("memory_bytes_total"), 80) << "the total does not change";
}

TEST_F(ViewsTest, TokensAreListedInTheOrderOfTheirNumbers) {
  for (const char* const id : {"t10", "t9", "t2"}) {
    fleet::Credential credential;
    credential.id = id;
    ASSERT_TRUE(leader_.add_credential(credential, "user:ann"));
  }
  std::vector<std::string> ids;
  for (const json::value& row : credentials_view(leader_)) {
    const std::string id(row.as_object().at("id").as_string());
    if (id.starts_with('t')) ids.push_back(id);
  }
  EXPECT_EQ(ids, (std::vector<std::string>{"t1", "t2", "t9", "t10"}));
}

TEST_F(ViewsTest, AReplicaThatIsBackingOffSaysWhenItIsRestarted) {
  deploy({});
  LastReport last = next();
  fleet::ReplicaReport& replica = last.report.replicas.emplace_back();
  replica.key = leader_.orders(node_).orders.at(0).assigned.key();
  replica.state = fleet::ReplicaState::backing_off;
  replica.reason = "exit status 1";
  replica.failures = 5;
  replica.next_start_ms = last.report.now_ms + 100'000;
  const auto text = [&] {
    const json::object view = replica_view(leader_, DeploymentId("batch"), 0);
    return std::string(view.at("why").at("text").as_string());
  };
  ASSERT_TRUE(leader_.take_report(last));
  EXPECT_TRUE(text().starts_with("batch/0 is waiting to restart on gpu-1, in ")) << text();
  EXPECT_TRUE(text().ends_with(" s: exit status 1")) << text();
  ++last.report.number;
  last.report.replicas.at(0).next_start_ms.reset();
  ASSERT_TRUE(leader_.take_report(last));
  EXPECT_EQ(text(), "batch/0 is waiting to restart on gpu-1: exit status 1") << "the report of an older agent";
}

TEST_F(ViewsTest, ANodeThatHasNotReportedToThisServerIsUnknownAndASilentOneSaysWhatFollows) {
  const auto node = [&] { return node_view(leader_, leader_.state().nodes.at(node_)); };
  const auto nodes = [&] { return status_view(leader_, "1", 0).at("nodes").as_object(); };
  EXPECT_EQ(node().at("health"), "unknown");
  EXPECT_EQ(nodes().at("awaited"), 1);
  EXPECT_EQ(nodes().at("healthy"), 0);
  deploy({});
  EXPECT_EQ(node().at("health"), "healthy");
  EXPECT_FALSE(node().contains("health_reason"));
  EXPECT_EQ(nodes().at("healthy"), 1);
  clock_.advance(9s);
  EXPECT_EQ(node().at("health_reason"), "no report for 9 s; its replicas start elsewhere after 30 s");
  clock_.advance(40s);
  EXPECT_EQ(node().at("health_reason"),
            "no report for 49 s; check that the machine is running and that its agent can reach this server");
}

TEST_F(ViewsTest, AReplicaThatIsToStopIsStoppingBeforeItsNodeSaysSo) {
  deploy({});
  LastReport last = next();
  fleet::ReplicaReport& replica = last.report.replicas.emplace_back();
  replica.key = leader_.orders(node_).orders.at(0).assigned.key();
  replica.state = fleet::ReplicaState::ready;
  ASSERT_TRUE(leader_.take_report(last));
  const auto state = [&] { return replicas_view(leader_, std::nullopt).at(0).at("state"); };
  EXPECT_EQ(state(), "ready");
  ASSERT_TRUE(leader_.remove(DeploymentId("batch"), "user:ann"));
  ASSERT_TRUE(leader_.step());
  EXPECT_EQ(state(), "stopping");
  ++last.report.number;
  last.report.replicas.at(0).state = fleet::ReplicaState::gone;
  ASSERT_TRUE(leader_.take_report(last));
  EXPECT_EQ(state(), "gone");
}

TEST_F(ViewsTest, AReplicaThatIsNotReadySaysWhenItIsRestarted) {
  DeploymentSpec spec;
  spec.readiness.emplace().command = {"check"};
  spec.unready_within = 5min;
  deploy(spec);
  LastReport last = next();
  fleet::ReplicaReport& replica = last.report.replicas.emplace_back();
  replica.key = leader_.orders(node_).orders.at(0).assigned.key();
  replica.state = fleet::ReplicaState::unready;
  replica.reason = "GET / answers with status 500";
  ASSERT_TRUE(leader_.take_report(last));
  EXPECT_EQ(replicas_view(leader_, std::nullopt).at(0).at("reason"),
            "GET / answers with status 500; it is restarted if this lasts 5 min (unready_within)");
}

TEST_F(ViewsTest, OnlyRevisionsWithOtherSettingsAreUndoSteps) {
  deploy({});
  const DeploymentId name("batch");
  const auto steps = [&] { return deployment_view(leader_, name).value().at("rollout").at("undo_revisions"); };
  ASSERT_TRUE(leader_.rollout(name, {RolloutAction::restart}, "user:ann"));
  EXPECT_EQ(steps(), 0);
}

}  // namespace
}  // namespace berth::server
