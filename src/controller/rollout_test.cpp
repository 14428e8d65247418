// Updates: how many replicas at a time, what stops them, what an undo brings back.
#include <gtest/gtest.h>

#include "controller/test_world.hpp"

namespace berth::controller {
namespace {

using fleet::EventKind;

std::size_t live(const World& world) {
  return static_cast<std::size_t>(std::count_if(world.assigned.begin(), world.assigned.end(),
                                                [](const auto& replica) { return !replica.stopping; }));
}

TEST(Rollout, GoesOneByOneWithTheSurgeAndStopsEachWhenItsSuccessorIsReady) {
  World world({gpu_node("a", 2), gpu_node("b", 2)});
  world.want(version(1));
  world.settle();
  world.want(version(2));
  Step step = world.step();
  EXPECT_EQ(events_of(step, EventKind::rollout), Words{"d: revision 2 is rolling out"});
  EXPECT_EQ(step.start.size(), 1u);
  EXPECT_EQ(step.start[0].revision, 2u);
  EXPECT_TRUE(step.stop.empty());
  EXPECT_EQ(status_of(step, "d").state, DeploymentState::updating);
  EXPECT_FALSE(world.step().has_actions()) << "nothing happens until it is ready";
  std::size_t most = 0;
  for (int i = 0; i < 50; ++i) {
    world.obey();
    world.advance(1s);
    step = world.step();
    most = std::max(most, live(world));
    EXPECT_GE(status_of(step, "d").ready, 3u) << i;
  }
  EXPECT_EQ(most, 4u);
  for (const fleet::Assigned& replica : world.assigned) EXPECT_EQ(replica.revision, 2u);
  EXPECT_EQ(status_of(step, "d").state, DeploymentState::serving);
  EXPECT_TRUE(world.memory.rollouts.empty());
}

TEST(Rollout, ReplacesReplicasOfTheSameSettingsWhereARestartIsWanted) {
  World world({gpu_node("a", 2), gpu_node("b", 2)});
  world.want(version(1));
  world.settle();
  fleet::DesiredDeployment& wanted = world.desired.deployments.at(DeploymentId("d"));
  wanted.earlier.insert(wanted.earlier.begin(), wanted.spec);
  wanted.restart_revision = ++wanted.revision;
  const Preview preview = controller::preview(world.input(), world.desired);
  EXPECT_EQ(preview.restarts.size(), 3u);
  EXPECT_EQ(world.step().start.size(), 1u) << "one at a time, as in any rollout";
  world.settle();
  for (const fleet::Assigned& replica : world.assigned) EXPECT_EQ(replica.revision, 2u);
  EXPECT_FALSE(world.step().has_actions()) << "once";
}

TEST(Rollout, IsNotOverBeforeTheLastSuccessorIsReady) {
  World world({gpu_node("a", 2)});
  world.want(version(1, 1));
  world.settle();
  world.want(version(2, 1));
  static_cast<void>(world.step());
  const Step step = world.step();
  EXPECT_EQ(status_of(step, "d").ready, 1u) << "the earlier replica is ready";
  EXPECT_EQ(status_of(step, "d").updated, 1u) << "its successor has a place";
  EXPECT_EQ(status_of(step, "d").state, DeploymentState::updating);
  EXPECT_NE(status_of(step, "d").reason, "");
}

TEST(Rollout, SurgeIsTheLimit) {
  World world({gpu_node("a", 8)});
  DeploymentSpec first = version(1, 4), second = version(2, 4);
  first.rollout = second.rollout = {.surge = 2, .unavailable = 0};
  world.want(first);
  world.settle();
  world.want(second);
  EXPECT_EQ(world.step().start.size(), 2u);
  world.set_report(world.find("d/0", 1), ReplicaState::ready);
  const Step step = world.step();
  EXPECT_EQ(step.stop.size(), 1u);
  EXPECT_TRUE(step.start.empty()) << "the stopping replica still runs";
}

TEST(Rollout, WithoutRoomForASurgeTheOldOneIsStoppedFirst) {
  World world({gpu_node("a", 3)});
  world.want(version(1));
  world.settle();
  world.want(version(2));
  Step step = world.step();
  EXPECT_TRUE(step.start.empty());
  ASSERT_EQ(step.stop.size(), 1u) << "unavailable = 1";
  EXPECT_FALSE(world.step().has_actions());
  for (int i = 0; i < 50; ++i) {
    world.obey();
    world.advance(1s);
    step = world.step();
    EXPECT_GE(status_of(step, "d").ready, 2u) << i;
  }
  EXPECT_EQ(status_of(step, "d").updated, 3u);
  EXPECT_EQ(status_of(step, "d").state, DeploymentState::serving);
}

TEST(Rollout, WithoutRoomAndWithoutUnavailableNothingIsStopped) {
  World world({gpu_node("a", 3)});
  DeploymentSpec first = version(1), second = version(2);
  first.rollout = second.rollout = {.surge = 1, .unavailable = 0};
  world.want(first);
  world.settle();
  world.want(second);
  const Step step = world.step();
  EXPECT_FALSE(step.has_actions());
}

TEST(Rollout, WhatANewLeaderHasNotHeardOfYetCountsAsServing) {
  World world({gpu_node("a", 3)});
  world.want(version(1));
  world.settle();
  world.want(version(2));
  Input input = world.input();
  input.memory = {};
  input.nodes.at(NodeId("a")).report = nullptr;
  EXPECT_FALSE(step(input).has_actions());
}

TEST(Rollout, WhatWouldNotFitAnywayIsNotStopped) {
  World world({gpu_node("a", 3)});
  world.want(version(1));
  world.settle();
  DeploymentSpec larger = version(2);
  larger.gpus = 4;
  world.want(larger);
  const Step step = world.step();
  EXPECT_FALSE(step.has_actions());
  ASSERT_EQ(step.pending.size(), 1u);
  EXPECT_NE(step.pending[0].reason.text.find("is not updated, because no node has 4 GPUs"), std::string::npos)
      << step.pending[0].reason.text;
  EXPECT_EQ(status_of(step, "d").ready, 3u);
}

TEST(Rollout, TheRoomThatWasMadeIsNotGivenToOthers) {
  World world({gpu_node("a", 1)});
  world.want(version(1, 1));
  world.settle();
  DeploymentSpec greedy = gpu_spec("a-first", 1);
  greedy.priority = Priority::high;
  world.want(greedy);
  world.step();
  world.want(version(2, 1));
  world.settle();
  EXPECT_EQ(world.places(), Words{"d/0#2 a/gpu0"});
}

TEST(Rollout, AChangeThatNoReplicaSeesRestartsNothing) {
  World world({gpu_node("a", 3)});
  world.want(version(1));
  world.settle();
  DeploymentSpec spec = version(1);
  spec.rollout.surge = 3;
  spec.priority = Priority::high;
  world.want(spec);
  EXPECT_EQ(world.desired.deployments.at(spec.name).revision, 2u);
  EXPECT_FALSE(world.step().has_actions());
}

TEST(Rollout, PausesWhenTheNewRevisionKeepsFailing) {
  World world({gpu_node("a", 4)});
  world.want(version(1));
  world.settle();
  world.want(version(2));
  world.step();
  world.set_report(world.find("d/0", 1), ReplicaState::backing_off, 2, "exit status 1");
  EXPECT_FALSE(world.step().has_actions());
  world.set_report(world.find("d/0", 1), ReplicaState::backing_off, 3, "exit status 1");
  Step step = world.step();
  ASSERT_EQ(step.pause.size(), 1u);
  EXPECT_EQ(step.pause[0].reason, "d/0 failed 3 times in a row: exit status 1");
  EXPECT_EQ(status_of(step, "d").state, DeploymentState::paused);
  EXPECT_EQ(status_of(step, "d").ready, 3u) << "the old incarnation of replica 0 still serves";
  world.advance(1min);
  EXPECT_FALSE(world.step().has_actions());
}

TEST(Rollout, UndoStopsWhatIsNewAndRestartsNothingElse) {
  World world({gpu_node("a", 4)});
  world.want(version(1));
  world.settle();
  world.want(version(2));
  world.step();
  world.set_report(world.find("d/0", 1), ReplicaState::backing_off, 3, "exit status 1");
  world.step();
  world.undo("d");
  EXPECT_EQ(world.desired.deployments.at(DeploymentId("d")).revision, 3u);
  const Step step = world.step();
  EXPECT_TRUE(step.start.empty());
  ASSERT_EQ(step.stop.size(), 1u);
  EXPECT_EQ(to_string(step.stop[0]), "d/0#4");
  world.settle();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/1#2 a/gpu1", "d/2#3 a/gpu2"}));
  EXPECT_EQ(status_of(world.step(), "d").state, DeploymentState::serving);
}

TEST(Rollout, AThirdRevisionReplacesASecondThatNeverCameUp) {
  World world({gpu_node("a", 4)});
  world.want(version(1));
  world.settle();
  world.want(version(2));
  world.step();
  world.set_report(world.find("d/0", 1), ReplicaState::backing_off, 2, "exit status 1");
  world.want(version(3));
  const Step step = world.step();
  ASSERT_EQ(step.stop.size(), 1u);
  EXPECT_EQ(to_string(step.stop[0]), "d/0#4") << "not the serving replica";
  world.settle();
  for (const fleet::Assigned& replica : world.assigned) EXPECT_EQ(replica.revision, 3u);
  EXPECT_EQ(status_of(world.step(), "d").state, DeploymentState::serving);
}

TEST(Rollout, ANodeThatDoesNotAnswerDoesNotHoldUpTheNextRevision) {
  World world({gpu_node("a", 2), gpu_node("b", 2)});
  world.want(version(1, 1));
  world.settle();
  ASSERT_EQ(world.find("d/0").place.node, NodeId("a"));
  world.want(version(2, 1));
  world.step();
  ASSERT_EQ(world.find("d/0", 1).place.node, NodeId("b"));
  world.set_report(world.find("d/0", 1), ReplicaState::ready);
  world.silence("a");
  ASSERT_EQ(world.step().stop.size(), 1u);
  world.want(version(3, 1));
  Step step = world.step();
  EXPECT_TRUE(step.start.empty()) << "the stopping replica still runs";
  ASSERT_TRUE(step.look_again);
  EXPECT_LE(*step.look_again - world.now, 4s);
  world.advance(4s);
  step = world.step();
  ASSERT_EQ(step.start.size(), 1u);
  EXPECT_EQ(step.start[0].revision, 3u);
  EXPECT_NE(step.start[0].place.devices.at(0).text(), "a/gpu0") << "a/gpu0 may still be in use";
}

TEST(Rollout, WhatDoesNotEndInItsTimeDoesNotHoldUpTheNextRevision) {
  World world({gpu_node("a", 2), gpu_node("b", 2)});
  world.want(version(1, 1));
  world.settle();
  world.want(version(2, 1));
  world.step();
  world.set_report(world.find("d/0", 1), ReplicaState::ready);
  ASSERT_EQ(world.step().stop.size(), 1u) << "its node never reports that it has ended";
  world.want(version(3, 1));
  const Duration grace = version(1).stop_grace;
  world.advance(grace);
  Step step = world.step();
  EXPECT_TRUE(step.start.empty()) << "its time to stop is not over";
  ASSERT_TRUE(step.look_again);
  EXPECT_LE(*step.look_again - world.now, 2s);
  world.advance(2s);
  EXPECT_EQ(world.step().start.size(), 1u);
}

TEST(Rollout, ARoomThatIsNotMadeInTimeIsSoughtElsewhere) {
  World world({gpu_node("a", 1)});
  world.want(version(1, 1));
  world.settle();
  world.want(version(2, 1));
  ASSERT_EQ(world.step().stop.size(), 1u);
  world.reports[NodeId("b")].node = gpu_node("b", 1);
  world.reports[NodeId("b")].epoch = 1;
  world.reported_at[NodeId("b")] = world.now;
  EXPECT_TRUE(world.step().start.empty()) << "room for it is being made on a";
  world.advance(version(1).stop_grace + 2s);
  const Step step = world.step();
  ASSERT_EQ(step.start.size(), 1u);
  EXPECT_EQ(step.start[0].place.node, NodeId("b"));
}

TEST(Rollout, AThirdRevisionDoesNotWaitForTwoThatNeverGotReady) {
  World world({gpu_node("a", 4)});
  for (const int number : {1, 2}) {
    world.want(version(number, 1));
    world.step();
    for (const fleet::Assigned& replica : world.assigned) world.set_report(replica, ReplicaState::starting);
  }
  ASSERT_EQ(world.assigned.size(), 2u);
  EXPECT_FALSE(world.step().has_actions()) << "either of them may still get ready";
  world.want(version(3, 1));
  Step step = world.step();
  ASSERT_EQ(step.stop.size(), 1u) << "neither of the two is wanted or serves";
  world.set_report(world.find("d/0"), ReplicaState::gone);
  step = world.step();
  ASSERT_EQ(step.start.size(), 1u);
  EXPECT_EQ(step.start[0].revision, 3u);
}

TEST(Rollout, ResumeGoesOnUntilAnotherFailure) {
  World world({gpu_node("a", 5)});
  DeploymentSpec second = version(2);
  second.rollout.surge = 2;
  world.want(version(1));
  world.settle();
  world.want(second);
  EXPECT_EQ(world.step().start.size(), 2u);
  world.set_report(world.find("d/0", 1), ReplicaState::backing_off, 3, "exit status 1");
  EXPECT_EQ(world.step().pause.size(), 1u);
  world.desired.deployments.at(DeploymentId("d")).paused.reset();
  EXPECT_TRUE(world.step().pause.empty()) << "the same failure does not pause it twice";
  world.set_report(world.find("d/0", 1), ReplicaState::backing_off, 4, "exit status 1");
  EXPECT_EQ(world.step().pause.size(), 1u);
}

TEST(Rollout, WhilePausedALostReplicaIsPlacedWithWhatTheOthersRun) {
  World world({gpu_node("a", 4), gpu_node("b", 1)});
  DeploymentSpec spec = version(1);
  spec.spread = Spread::pack;
  world.want(spec);
  world.settle();
  spec = version(2);
  spec.spread = Spread::pack;
  world.want(spec);
  world.desired.deployments.at(spec.name).paused = "by an operator";
  EXPECT_FALSE(world.step().has_actions());
  world.want([&] {
    DeploymentSpec more = spec;
    more.replicas = 4;
    return more;
  }());
  const Step step = world.step();
  ASSERT_EQ(step.start.size(), 1u);
  EXPECT_EQ(step.start[0].revision, 1u);
}

TEST(Rollout, WhilePausedAReplicaThatLeavesItsNodeMovesOnce) {
  World world({gpu_node("a", 1), gpu_node("b", 1)});
  world.want(version(1, 1));
  world.settle();
  world.want(version(2, 1));
  world.desired.deployments.at(DeploymentId("d")).paused = "by an operator";
  world.intents[NodeId("a")] = Intent::draining;
  const Step step = world.step();
  ASSERT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/0#2 b/gpu0"}));
  EXPECT_EQ(step.start[0].revision, 1u);
  EXPECT_FALSE(world.step().has_actions()) << "the successor has time to come up";
  world.set_report(world.find("d/0", 1), ReplicaState::starting);
  EXPECT_FALSE(world.step().has_actions());
  world.settle();
  EXPECT_EQ(world.places(), Words{"d/0#2 b/gpu0"});
}

TEST(Rollout, AFirstStartThatFailsPausesNothing) {
  World world({gpu_node("a", 1)});
  world.want(version(1, 1));
  world.step();
  world.set_report(world.find("d/0"), ReplicaState::backing_off, 9, "exit status 127");
  const Step step = world.step();
  EXPECT_TRUE(step.pause.empty());
  EXPECT_EQ(status_of(step, "d").state, DeploymentState::failed);
}

TEST(Rollout, WhatWasReadyAndIsNotDegradesItsDeploymentUnlessItIsBeingReplaced) {
  World world({gpu_node("a", 2), gpu_node("b", 2)});
  world.want(version(1));
  world.settle();
  const auto state = [&] { return status_of(world.step(), "d").state; };
  ASSERT_EQ(state(), DeploymentState::serving);
  world.set_report(world.find("d/1"), ReplicaState::unready, 0, "status 500");
  EXPECT_EQ(state(), DeploymentState::degraded);
  EXPECT_EQ(status_of(world.step(), "d").reason,
            "d/1 on " + world.find("d/1").place.node.text() + ": not ready: status 500");
  for (const char* const name : {"d/0", "d/2"})
    world.set_report(world.find(name), ReplicaState::unready, 0, "status 500");
  EXPECT_EQ(state(), DeploymentState::degraded) << "none of the replicas serves";
  world.obey();
  EXPECT_EQ(state(), DeploymentState::serving);
  world.silence("b");
  world.advance(suspect_after);
  EXPECT_EQ(state(), DeploymentState::degraded) << "their node is silent";
  world.silent.clear();
  world.advance(1s);
  world.obey();
  world.set_report(world.find("d/1"), ReplicaState::unready, 0, "status 500");
  world.want(version(2));
  EXPECT_EQ(state(), DeploymentState::updating);
}

TEST(Rollout, TheSpecOfARevisionIsWantedOrOneOfTheEarlier) {
  World world({gpu_node("a", 1)});
  for (int i = 1; i <= 4; ++i) world.want(version(i));
  const fleet::DesiredDeployment& wanted = world.desired.deployments.at(DeploymentId("d"));
  EXPECT_EQ(spec_of(wanted, 4)->command[1], "v4");
  EXPECT_EQ(spec_of(wanted, 3)->command[1], "v3");
  EXPECT_EQ(spec_of(wanted, 1)->command[1], "v1");
  EXPECT_EQ(spec_of(wanted, 0), nullptr);
  EXPECT_EQ(spec_of(wanted, 5), nullptr);
}

}  // namespace
}  // namespace berth::controller
