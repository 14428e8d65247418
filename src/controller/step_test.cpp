// What is placed, kept, moved and stopped; rollout_test.cpp has updates.
#include "controller/step.hpp"

#include <gtest/gtest.h>

#include "controller/test_world.hpp"

namespace berth::controller {
namespace {

using fleet::EventKind;

TEST(ControllerStep, WhatIsWantedIsPlacedOnceAndThenNothingIsDone) {
  World world({gpu_node("a", 2), gpu_node("b", 2)});
  world.want(gpu_spec("d", 3));
  const Step first = world.step();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/1#2 b/gpu0", "d/2#3 a/gpu1"}));
  EXPECT_EQ(first.next_generation, 4u);
  EXPECT_EQ(status_of(first, "d").state, DeploymentState::updating);
  EXPECT_FALSE(world.step().has_actions()) << "the node has not started them yet";
  world.obey();
  const Step after = world.step();
  EXPECT_FALSE(after.has_actions());
  EXPECT_EQ(status_of(after, "d"), (DeploymentStatus{DeploymentId("d"), DeploymentState::serving, 3, 3, 3, ""}));
  EXPECT_EQ(events_of(after, EventKind::ready).size(), 3u);
  const Step again = world.step();
  EXPECT_TRUE(again.events.empty());
  EXPECT_EQ(again.memory, after.memory);
}

TEST(ControllerStep, S1_F4_DeploymentsOfOneAndOfManyStepsNeverMeetOnAGpu) {
  World world({gpu_node("a", 2)});
  world.want(gpu_spec("d", 1));
  world.settle();
  world.want(gpu_spec("e", 1));
  world.settle();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "e/0#2 a/gpu1"}));
  world.want(gpu_spec("f", 1));
  world.memory = {};  // another server leads; it knows what was committed
  const Step step = world.step();
  EXPECT_TRUE(step.start.empty());
  ASSERT_EQ(step.pending.size(), 1u);
  EXPECT_EQ(step.pending[0].reason.kind, ReasonKind::not_enough_gpus);
}

TEST(ControllerStep, S1_F7_TheGpusOfAReplicaAreThoseThatNvlinkJoins) {
  NodeView node = gpu_node("a", 4);
  const auto link = [&](int x, int y) {
    node.links.push_back({node.devices[x].info.id, node.devices[y].info.id, LinkKind::nvlink, 4, true});
  };
  link(0, 3);
  link(1, 2);
  World world({node});
  world.want(gpu_spec("d", 2, 2));
  world.step();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0 a/gpu3", "d/1#2 a/gpu1 a/gpu2"}));
}

TEST(ControllerStep, WhatIsPendingIsExplainedWithTheFleetAsItIsNow) {
  World world({gpu_node("a", 1), gpu_node("b", 1)});
  world.intents[NodeId("b")] = Intent::cordoned;
  world.want(gpu_spec("d", 1));
  world.settle();
  world.want(gpu_spec("e", 1));
  const Step step = world.step();
  ASSERT_EQ(step.pending.size(), 1u);
  const deployment::Evidence evidence = why_pending(world.input(), step.pending[0]);
  ASSERT_EQ(evidence.funnel.size(), 3u);
  EXPECT_EQ(evidence.funnel[0].count, 2u);
  EXPECT_EQ(evidence.funnel[1], (deployment::Evidence::Left{"in service and healthy", 1}));
  EXPECT_EQ(evidence.funnel[2], (deployment::Evidence::Left{"not used by another replica", 0}));
  EXPECT_EQ(evidence.nodes.size(), 2u);
  ASSERT_FALSE(evidence.changes.empty());
  EXPECT_EQ(evidence.changes[0].command, "berth uncordon node/b");
  // A replica that must leave but cannot: the end of its own drain would not make it leave.
  world.intents[NodeId("a")] = Intent::draining;
  const Step draining = world.step();
  ASSERT_EQ(draining.pending.size(), 2u);
  EXPECT_EQ(draining.pending[0].reason.kind, ReasonKind::drain_blocked);
  EXPECT_EQ(why_pending(world.input(), draining.pending[0]).changes.at(0).command, "berth uncordon node/b");
  // There is room again.
  world.intents.clear();
  EXPECT_TRUE(why_pending(world.input(), step.pending[0]).changes.empty());
}

TEST(ControllerStep, ScalingDownStopsTheHighestAndForgetsThemWhenTheyAreGone) {
  World world({gpu_node("a", 3)});
  world.want(gpu_spec("d", 3));
  world.settle();
  world.want(gpu_spec("d", 1));
  const Step step = world.step();
  EXPECT_EQ(step.stop.size(), 2u);
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/1#2 a/gpu1 stopping", "d/2#3 a/gpu2 stopping"}));
  EXPECT_FALSE(world.step().has_actions());
  world.want(gpu_spec("e", 1));
  EXPECT_TRUE(world.step().start.empty()) << "a stopping replica holds its devices";
  world.settle();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "e/0#4 a/gpu1"}));
  world.want(gpu_spec("d", 2));
  world.settle();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/1#5 a/gpu2", "e/0#4 a/gpu1"}));
}

TEST(ControllerStep, ADeploymentThatIsDeletedIsStopped) {
  World world({gpu_node("a", 2)});
  world.want(gpu_spec("d", 2));
  world.settle();
  world.desired.deployments.clear();
  EXPECT_EQ(world.step().stop.size(), 2u);
  world.settle();
  EXPECT_TRUE(world.assigned.empty());
  EXPECT_TRUE(world.step().memory.replicas.empty());
}

TEST(ControllerStep, ASuspectNodeKeepsItsReplicasAndGetsNothingNew) {
  World world({gpu_node("a", 4)});
  world.want(gpu_spec("d", 1));
  world.settle();
  world.silence("a");
  world.advance(5s + 999ms);
  EXPECT_FALSE(world.step().has_actions());
  world.want(gpu_spec("e", 1));
  world.advance(1s);
  const Step step = world.step();
  EXPECT_FALSE(step.has_actions());
  EXPECT_EQ(step.pending.at(0).reason.kind, ReasonKind::not_in_service);
  EXPECT_EQ(events_of(step, EventKind::node), Words{"node/a: a is suspect: no report for 6 s"});
}

TEST(ControllerStep, AServerThatIsStartedAgainTellsNoEventASecondTime) {
  World world({gpu_node("a", 2), gpu_node("b", 1)});
  world.reports[NodeId("a")].node.devices[1].health = Health::lost;
  world.want(gpu_spec("d", 2));
  world.want(gpu_spec("e", 1, 4));
  world.settle();
  // The next server leads before the nodes report to it.
  world.memory = {};
  for (const std::set<NodeId>& unreported :
       std::vector<std::set<NodeId>>{{NodeId("a"), NodeId("b")}, {NodeId("b")}, {}}) {
    world.unreported = unreported;
    EXPECT_EQ(world.step().events.size(), 0u);
    EXPECT_EQ(world.memory.awaited, unreported);
  }
  // Later changes are reported as events, and so is the first report of a node that joins.
  world.set_report(world.find("d/0"), ReplicaState::unready, 0, "status 500");
  world.reports[NodeId("a")].node.devices[1].health = Health::healthy;
  const Step step = world.step();
  EXPECT_EQ(events_of(step, EventKind::failed).size(), 1u);
  EXPECT_EQ(events_of(step, EventKind::device).size(), 1u);
  NodeView joining = gpu_node("c", 1);
  joining.devices[0].health = Health::lost;
  world.reports[joining.id].node = joining;
  world.reported_at[joining.id] = world.now;
  EXPECT_EQ(events_of(world.step(), EventKind::device), Words{"node/c: device c/gpu0 is lost"});
}

TEST(ControllerStep, TheReplicasOfALostNodeArePlacedAnewAfterReplaceAfterAndNoOthers) {
  World world({gpu_node("a", 2), gpu_node("b", 2), gpu_node("c", 2)});
  world.want(gpu_spec("d", 3));
  world.settle();
  world.silence("b");
  const TimePoint last = world.reported_at.at(NodeId("b"));
  world.advance(last + 30s - world.now - 1ns);
  const Step before = world.step();
  EXPECT_FALSE(before.has_actions());
  EXPECT_EQ(before.look_again, last + 30s);
  world.advance(1ns);
  const Step step = world.step();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/1#2 b/gpu0 stopping", "d/1#4 a/gpu1", "d/2#3 c/gpu0"}));
  EXPECT_EQ(events_of(step, EventKind::moved), Words{"d/1: placed on a a/gpu1: node b is lost"});
  // The node comes back: the newer replica stays, the older one is stopped.
  world.silent.clear();
  world.advance(60s);
  world.set_report(world.find("d/1"), ReplicaState::ready);
  EXPECT_FALSE(world.step().has_actions());
  world.settle();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/1#4 a/gpu1", "d/2#3 c/gpu0"}));
}

TEST(ControllerStep, WhereThereIsNoOtherPlaceALostReplicaStaysAssigned) {
  // A server that is cut off from all nodes must not order them to stop everything when they are back.
  World world({gpu_node("a", 1), gpu_node("b", 1)});
  world.want(gpu_spec("d", 2));
  world.settle();
  world.silence("a");
  world.silence("b");
  world.advance(1h);
  EXPECT_FALSE(world.step().has_actions());
  EXPECT_EQ(status_of(world.step(), "d").state, DeploymentState::pending);
  world.silent.clear();
  world.advance(1s);
  const Step step = world.step();
  EXPECT_FALSE(step.has_actions());
  EXPECT_EQ(status_of(step, "d").state, DeploymentState::serving);
}

TEST(ControllerStep, ANodeThatWasRemovedHoldsNothing) {
  World world({gpu_node("a", 1), gpu_node("b", 1)});
  world.want(gpu_spec("d", 1));
  world.settle();
  world.reports.erase(NodeId("a"));
  world.reported_at.erase(NodeId("a"));
  const Step step = world.step();
  EXPECT_EQ(step.forget.size(), 1u);
  EXPECT_EQ(world.places(), Words{"d/0#2 b/gpu0"});
}

TEST(ControllerStep, ADrainMovesReplicasOneByOneAndStopsEachWhenItsSuccessorIsReady) {
  World world({gpu_node("a", 2), gpu_node("b", 2)});
  DeploymentSpec spec = gpu_spec("d", 2);
  spec.spread = Spread::pack;
  world.want(spec);
  world.settle();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/1#2 a/gpu1"}));
  world.intents[NodeId("a")] = Intent::draining;
  EXPECT_EQ(world.step().start.size(), 1u) << "surge = 1";
  EXPECT_FALSE(world.step().has_actions());
  world.set_report(world.find("d/0", 1), ReplicaState::ready);
  const Step step = world.step();
  ASSERT_EQ(step.stop.size(), 1u);
  EXPECT_EQ(to_string(step.stop[0]), "d/0#1");
  EXPECT_TRUE(step.start.empty()) << "the old one is still there";
  world.obey();
  EXPECT_EQ(events_of(world.step(), fleet::EventKind::stopped),
            Words{"d/0: its predecessor d/0#1 has ended on a a/gpu0"});
  world.settle();
  EXPECT_EQ(world.places(), (Words{"d/0#3 b/gpu0", "d/1#4 b/gpu1"}));
}

TEST(ControllerStep, ADrainWithoutRoomElsewhereStopsNothing) {
  World world({gpu_node("a", 2), gpu_node("b", 1)});
  DeploymentSpec spec = gpu_spec("d", 2);
  spec.spread = Spread::pack;
  world.want(spec);
  world.settle();
  world.intents[NodeId("a")] = Intent::draining;
  world.settle();
  const Step step = world.step();
  EXPECT_FALSE(step.has_actions());
  ASSERT_EQ(step.pending.size(), 1u);
  EXPECT_EQ(step.pending[0].reason.kind, ReasonKind::drain_blocked);
  EXPECT_EQ(step.pending[0].replicas.size(), 1u);
  EXPECT_EQ(status_of(step, "d").ready, 2u);
}

TEST(ControllerStep, ADrainedDeviceIsLeftForAnotherOfItsNode) {
  World world({gpu_node("a", 2)});
  world.want(gpu_spec("d", 1));
  world.settle();
  world.reports.at(NodeId("a")).node.devices[0].intent = Intent::draining;
  world.settle();
  EXPECT_EQ(world.places(), Words{"d/0#2 a/gpu1"});
}

TEST(ControllerStep, WhatTheOperatorSaysOfADeviceCountsLikeTheWordOfItsLedger) {
  World world({gpu_node("a", 2)});
  world.want(gpu_spec("d", 1));
  world.settle();
  const auto id = [&](std::size_t i) { return world.reports.at(NodeId("a")).node.devices[i].info.id; };
  world.device_intents[NodeId("a")][id(0)] = Intent::cordoned;
  EXPECT_FALSE(world.step().has_actions()) << "a cordon stops no replica";
  world.device_intents[NodeId("a")][id(0)] = Intent::draining;
  world.settle();
  EXPECT_EQ(world.places(), Words{"d/0#2 a/gpu1"});
  world.want(gpu_spec("d", 2));
  EXPECT_EQ(world.step().pending.size(), 1u) << "a cordoned device gets no new replica";
  // The stricter intent counts, no matter which side set it.
  world.reports.at(NodeId("a")).node.devices[1].intent = Intent::draining;
  world.device_intents[NodeId("a")] = {{id(1), Intent::cordoned}};
  world.settle();
  EXPECT_EQ(world.places(), Words{"d/0#3 a/gpu0"});
}

TEST(ControllerStep, ACordonKeepsWhatRuns) {
  World world({gpu_node("a", 2)});
  world.want(gpu_spec("d", 1));
  world.settle();
  world.intents[NodeId("a")] = Intent::cordoned;
  EXPECT_FALSE(world.step().has_actions());
}

TEST(ControllerStep, AReplicaOnADeviceThatIsOutOfOrderMovesAtOnceUnlessItStillServes) {
  for (const bool is_gone : {false, true}) {
    World world({gpu_node("a", 1), gpu_node("b", 1)});
    world.want(gpu_spec("d", 1));
    world.settle();
    auto& devices = world.reports.at(NodeId("a")).node.devices;
    if (is_gone) {
      devices.clear();
    } else {
      devices[0].health = Health::lost;
    }
    Step step = world.step();
    EXPECT_EQ(step.start.size(), 1u);
    EXPECT_TRUE(step.stop.empty()) << "it serves until its successor does";
    World failing({gpu_node("a", 1), gpu_node("b", 1)});
    failing.want(gpu_spec("d", 1));
    failing.settle();
    failing.reports.at(NodeId("a")).node.devices[0].health = Health::quarantined;
    failing.set_report(failing.find("d/0"), ReplicaState::backing_off, 1, "CUDA error");
    step = failing.step();
    EXPECT_EQ(failing.places(), (Words{"d/0#1 a/gpu0 stopping", "d/0#2 b/gpu0"}));
  }
}

TEST(ControllerStep, WhatKeepsFailingStaysUnlessItsDeviceIsUnderSuspicion) {
  World world({gpu_node("a", 1), gpu_node("b", 1)});
  world.want(gpu_spec("d", 1));
  world.settle();
  world.set_report(world.find("d/0"), ReplicaState::backing_off, 50, "exit status 1");
  Step step = world.step();
  EXPECT_FALSE(step.has_actions()) << "the command is blamed before the device";
  EXPECT_EQ(status_of(step, "d").state, DeploymentState::failed);
  EXPECT_EQ(status_of(step, "d").reason, "d/0 on a: failed 50 times in a row: exit status 1");
  // The state is the same between two starts.
  world.set_report(world.find("d/0"), ReplicaState::starting, 50);
  step = world.step();
  EXPECT_EQ(status_of(step, "d").state, DeploymentState::failed);
  EXPECT_EQ(status_of(step, "d").reason, "d/0 on a: starting, failed 50 times in a row");
  world.set_report(world.find("d/0"), ReplicaState::backing_off, 51, "exit status 1");
  world.reports.at(NodeId("a")).node.devices[0].health = Health::suspect;
  step = world.step();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0 stopping", "d/0#2 b/gpu0"}));
}

TEST(ControllerStep, ARefusedIncarnationIsForgottenAndItsNodeAvoidedWithABackOffThatDoubles) {
  World world({gpu_node("a", 1)});
  world.want(gpu_spec("d", 1));
  for (const Duration pause : {Duration(1s), Duration(2s), Duration(4s)}) {
    world.step();
    ASSERT_EQ(world.assigned.size(), 1u);
    world.set_report(world.assigned[0], ReplicaState::refused, 0, "GPU a/gpu0 has 2 GiB free");
    Step step = world.step();
    EXPECT_TRUE(world.assigned.empty());
    EXPECT_EQ(step.pending.at(0).reason.kind, ReasonKind::refused);
    EXPECT_TRUE(step.pending.at(0).reason.text.ends_with("; a: GPU a/gpu0 has 2 GiB free"))
        << step.pending[0].reason.text;
    EXPECT_EQ(events_of(step, EventKind::refused), Words{"d/0: refused by a: GPU a/gpu0 has 2 GiB free"});
    ASSERT_TRUE(step.look_again);
    world.advance(pause - 1ns);
    EXPECT_TRUE(world.step().start.empty());
    world.advance(1ns);
  }
  world.step();
  world.obey();
  world.step();
  EXPECT_TRUE(world.memory.avoided.empty()) << "the replica runs there now";
}

TEST(ControllerStep, ANodeThatRefusesIsLeftForAnother) {
  World world({gpu_node("a", 4), gpu_node("b", 1)});
  world.want(gpu_spec("d", 1));
  world.step();
  world.set_report(world.find("d/0"), ReplicaState::refused);
  world.step();
  EXPECT_EQ(world.places(), Words{"d/0#2 b/gpu0"});
}

TEST(ControllerStep, GenerationsAreHigherThanAnyThatANodeHasSeen) {
  World world({gpu_node("a", 1)});
  fleet::ReplicaReport old;
  old.key = {DeploymentId("x"), 0, 41};
  world.reports.at(NodeId("a")).replicas.push_back(old);
  world.want(gpu_spec("d", 1));
  world.step();
  EXPECT_EQ(world.places(), Words{"d/0#42 a/gpu0"});
}

TEST(ControllerStep, AGenerationThatWasNeverGivenOutUsesUpNoNumbers) {
  World world({gpu_node("a", 1)});
  world.want(gpu_spec("d", 1));
  for (const std::uint64_t far : {UINT64_MAX, UINT64_MAX - 2, UINT64_MAX / 2}) {
    fleet::ReplicaReport forged;
    forged.key = {DeploymentId("x"), 0, far};
    world.reports.at(NodeId("a")).replicas.push_back(forged);
    EXPECT_EQ(world.step().next_generation, 2u) << far;
  }
}

TEST(ControllerStep, MemoryOfOthersThatGrowsMovesNothing) {
  World world({gpu_node("a", 1), gpu_node("b", 1)});
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.exclusive = false;
  spec.memory_bytes = 40 * gib;
  world.want(spec);
  world.settle();
  world.reports.at(NodeId("a")).node.devices[0].memory_bytes_used = 70 * gib;
  EXPECT_FALSE(world.step().has_actions());
}

struct SingleTest : testing::Test {
  World world{{gpu_node("a", 1), gpu_node("b", 1)}};
  void SetUp() override {
    DeploymentSpec spec = gpu_spec("one", 1);
    spec.single = true;
    world.want(spec);
    world.settle();
    ASSERT_EQ(world.places(), Words{"one/0#1 a/gpu0"});
  }
};

TEST_F(SingleTest, IsStoppedAndGoneBeforeItMoves) {
  world.intents[NodeId("a")] = Intent::draining;
  Step step = world.step();
  EXPECT_EQ(world.places(), Words{"one/0#1 a/gpu0 stopping"});
  EXPECT_FALSE(world.step().has_actions());
  world.obey();
  step = world.step();
  EXPECT_EQ(world.places(), Words{"one/0#2 b/gpu0"});
}

TEST_F(SingleTest, OnALostNodeIsReplacedWhenItMustHaveEndedByItself) {
  world.silence("a");
  world.advance(world.reported_at.at(NodeId("a")) + 35s - world.now - 1ns);
  EXPECT_FALSE(world.step().has_actions()) << "20 s until it is ordered to stop, 10 s of grace, 5 s to be safe";
  world.advance(1ns);
  world.step();
  EXPECT_EQ(world.places(), (Words{"one/0#1 a/gpu0 stopping", "one/0#2 b/gpu0"}));
}

TEST_F(SingleTest, ThatIsStoppingOnASilentNodeIsAwaited) {
  world.intents[NodeId("a")] = Intent::draining;
  world.step();
  world.silence("a");
  world.advance(20s);
  EXPECT_FALSE(world.step().has_actions());
  world.advance(20s);
  world.step();
  EXPECT_EQ(world.places(), (Words{"one/0#1 a/gpu0 stopping", "one/0#2 b/gpu0"}));
}

TEST_F(SingleTest, WithoutAnotherPlaceIsNotStopped) {
  world.want(gpu_spec("x", 1));
  world.settle();
  world.intents[NodeId("a")] = Intent::draining;
  EXPECT_FALSE(world.step().has_actions());
}

TEST(ControllerPreview, SaysWhatWouldChangeInTheEndAndChangesNothing) {
  World world({gpu_node("a", 2), gpu_node("b", 2)});
  world.want(gpu_spec("d", 2));
  world.want(gpu_spec("old", 1));
  world.settle();
  World other = world;
  other.want(gpu_spec("d", 3));
  other.desired.deployments.erase(DeploymentId("old"));
  Preview seen = preview(world.input(), other.desired);
  Words actions;
  for (const Action& action : seen.plan.actions)
    actions.push_back(action.sign() + (" " + action.subject().deployment.text()) + "/" +
                      std::to_string(action.subject().replica));
  EXPECT_EQ(actions, (Words{"- old/0", "+ d/2"}));
  EXPECT_TRUE(seen.restarts.empty());
  DeploymentSpec changed = gpu_spec("d", 3);
  changed.environment["A"] = "1";
  other.want(changed);
  seen = preview(world.input(), other.desired);
  EXPECT_EQ(seen.restarts.size(), 2u);
}

TEST(ControllerPreview, ShowsThePlacesThatReplicasGet) {
  const auto check = [](std::vector<DeploymentSpec> first, std::vector<DeploymentSpec> second) {
    World world({gpu_node("a", 2), gpu_node("b", 2), gpu_node("c", 1)});
    for (DeploymentSpec& spec : first) world.want(spec);
    world.settle();
    for (const DeploymentSpec& spec : first) {
      const bool stays = std::any_of(second.begin(), second.end(),
                                     [&](const auto& deployment) { return deployment.name == spec.name; });
      if (!stays) world.desired.deployments.erase(spec.name);
    }
    World other = world;
    for (DeploymentSpec& spec : second) other.want(spec);
    const Preview seen = preview(world.input(), other.desired);
    other.settle();
    std::vector<Assignment> places;
    for (const fleet::Assigned& replica : other.assigned) places.push_back(replica.place);
    EXPECT_TRUE(
        std::is_permutation(places.begin(), places.end(), seen.plan.assignments.begin(), seen.plan.assignments.end()))
        << testing::PrintToString(other.places()) << "\n"
        << plan_to_text(seen.plan);
  };
  const auto changed = [](DeploymentSpec spec) {
    spec.environment["A"] = "1";
    return spec;
  };
  check({cpu_spec("old", 1)}, {cpu_spec("new", 2)});       // a stopping replica holds its place
  check({gpu_spec("old", 3)}, {gpu_spec("new", 4)});       // there is room for the rest only later
  check({gpu_spec("d", 2)}, {changed(gpu_spec("d", 2))});  // successors are placed beside the old ones
  check({gpu_spec("d", 5)}, {changed(gpu_spec("d", 5))});  // there is no room beside them
  check({gpu_spec("d", 2), gpu_spec("e", 2)}, {changed(gpu_spec("e", 3)), gpu_spec("d", 1)});
}

}  // namespace
}  // namespace berth::controller
