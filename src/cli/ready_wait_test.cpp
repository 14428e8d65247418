#include "cli/ready_wait.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace berth::cli {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;
using State = ReadyProgress::State;
using Words = std::vector<std::string>;

class ReadyWaiting : public testing::Test {
 protected:
  ReadyWaiting() {
    DeploymentSpec spec;
    spec.name = DeploymentId("chat");
    spec.replicas = 2;
    spec.readiness = Probe{};
    spec.ready_within = 100s;
    project.deployments.push_back(spec);
  }
  static json::object replicas(const std::string& list, const std::string& pending = "") {
    return json::parse(R"({"replicas":[)" + list + R"(],"pending":[)" + pending + "]}").get_object();
  }
  static std::string replica(int number, const std::string& state, const std::string& more = "") {
    return R"({"name":"chat/)" + std::to_string(number) +
           R"(","deployment":"chat","current":true,"node":"a","state":")" + state + "\"" + more + "}";
  }
  // /status with one of two replicas ready.
  static json::object status(const std::string& state) {
    return json::parse(R"({"deployments":[{"name":"chat","state":")" + state +
                       R"(","replicas":2,"ready":1,"updated":2,"reason":"chat/1 failed"}],"pending":[]})")
        .get_object();
  }
  // Polls the same answers twice a second until waiting is over, for an hour at most.
  std::pair<Duration, ReadyProgress> wait(const std::string& state, const std::string& list) {
    ReadyWait waiting(project, true);
    for (Duration waited{};; waited += 500ms) {
      const ReadyWait::Look look = waiting.look(status(state), replicas(list), TimePoint{} + 1s + waited);
      if (look.is_final || waited > 1h) return {waited, look.progress};
    }
  }

  Project project;
  const std::string ready = replica(0, "ready");
};

TEST_F(ReadyWaiting, EndsSoonWhenWhatIsNotReadyKeepsFailing) {
  const auto [waited, end] = wait("degraded", ready + "," + replica(1, "backing_off", R"(,"failures":3)"));
  EXPECT_EQ(end.state, State::stuck);
  EXPECT_EQ(end.text, "1 of 2 ready, and no other replica can become ready");
  EXPECT_EQ(waited, 2s);
}

TEST_F(ReadyWaiting, EndsAfterAWhileWhenNothingWouldEndAnUnreadyReplica) {
  const std::string list = ready + "," + replica(1, "unready", R"(,"reason":"status 500")");
  EXPECT_EQ(wait("degraded", list).second.state, State::stuck);
  EXPECT_LT(wait("degraded", list).first, 1min);
  const std::string lost = ready + "," + replica(1, "ready", R"(,"report_age_s":31)");
  EXPECT_LT(wait("degraded", lost).first, 1min) << "an old report of a node does not count";
}

TEST_F(ReadyWaiting, GoesOnWhileAReplicaCanBecomeReady) {
  const std::string unready = ready + "," + replica(1, "unready");
  project.deployments[0].unready_within = 5min;
  EXPECT_GT(wait("degraded", unready).first, 2min);
  project.deployments[0].unready_within = 10min;
  EXPECT_GT(wait("degraded", unready).first, 10min) << "unready_within counts although ready_within is shorter";
  const std::string mixed = replica(0, "starting") + "," + replica(1, "backing_off", R"(,"failures":9)");
  EXPECT_GT(wait("updating", mixed).first, 100s) << "one replica is still loading its model";
  EXPECT_GT(wait("updating", ready + "," + replica(1, "backing_off", R"(,"failures":1)")).first, 100s);
}

TEST_F(ReadyWaiting, NeverGoesOnForEver) {
  const auto [waited, end] = wait("updating", ready + "," + replica(1, "waiting"));
  EXPECT_EQ(end.state, State::stuck);
  EXPECT_GT(waited, 100s) << "not before ready_within";
  EXPECT_LT(waited, 10min);
}

TEST_F(ReadyWaiting, AChangeBeginsTheTimeAnew) {
  ReadyWait waiting(project, true);
  for (int i = 0; i < 3600; ++i) {
    const std::string reason = R"(,"reason":"loaded )" + std::to_string(i / 100) + "\"";
    ASSERT_FALSE(
        waiting.look(status("updating"), replicas(ready + "," + replica(1, "starting", reason)), TimePoint{} + i * 1s)
            .is_final);
  }
}

TEST_F(ReadyWaiting, WhatIsNotReadyIsListedWithItsReason) {
  const std::string ends = R"({"name":"chat/1","deployment":"chat","current":false,"state":"stopping","node":"a"})";
  const std::string other = R"({"name":"x/0","deployment":"x","current":true,"state":"failed","node":"a"})";
  EXPECT_EQ(unready_lines(project, replicas(ready + "," + ends + "," + other)), Words{});
  EXPECT_EQ(
      unready_lines(project,
                    replicas(replica(0, "waiting") + "," + replica(1, "backing_off", R"(,"reason":"GET /: refused")"),
                             R"({"deployment":"chat","replicas":[2,3,5],"reason":{"text":"no GPU"}},)"
                             R"({"deployment":"x","replicas":[0],"reason":{"text":"no GPU"}})")),
      (Words{"chat/0 on a waiting", "chat/1 on a waiting to restart: GET /: refused", "chat/2-3, 5 pending: no GPU"}));
}

}  // namespace
}  // namespace berth::cli
