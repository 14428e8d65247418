// What is replaced, when, and in which order.
#include <gtest/gtest.h>

#include <functional>

#include "controller/test_world.hpp"

namespace berth::controller {
namespace {

TEST(Replace, AServerThatIsCutOffFromAllNodesAmidARolloutStopsNothing) {
  World world({gpu_node("a", 1), gpu_node("b", 1)});
  world.want(version(1, 1));
  world.settle();
  world.want(version(2, 1));
  world.step();
  ASSERT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/0#2 b/gpu0"}));
  world.set_report(world.find("d/0", 1), ReplicaState::starting);
  world.silence("a");
  world.silence("b");
  world.advance(10min);
  EXPECT_FALSE(world.step().has_actions()) << "the old replica may serve, the new one is not ready";
}

TEST(Replace, ANodeThatRefusesAgainAndAgainIsTriedMoreAndMoreRarely) {
  World world({gpu_node("a", 1)});
  world.want(gpu_spec("d", 1));
  for (const Duration pause : {1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s}) {
    world.step();
    ASSERT_EQ(world.assigned.size(), 1u);
    world.set_report(world.assigned[0], ReplicaState::refused);
    world.step();
    world.advance(pause - 1ms);
    EXPECT_TRUE(world.step().start.empty()) << "too soon after a pause of " << pause.count();
    // The server steps a little later than the exact moment.
    world.advance(500ms);
  }
}

TEST(Replace, ARefusalCountsAlsoWhereAnotherReplicaComesUpInTheSameStep) {
  for (const std::string refused : {"d/0", "d/1"}) {
    World world({gpu_node("a", 2)});
    world.want(gpu_spec("d", 2));
    world.step();
    world.obey();
    world.set_report(world.find(refused), ReplicaState::refused);
    EXPECT_TRUE(world.step().start.empty()) << refused;
    world.advance(1s);
    EXPECT_EQ(world.step().start.size(), 1u) << refused;
  }
}

TEST(Replace, ADeviceThatIsOutOfOrderDoesNotKeepItsNodeFromBeingUsed) {
  World world({gpu_node("a", 1)});
  world.want(gpu_spec("d", 1));
  world.settle();
  NodeDevice& device = world.reports.at(NodeId("a")).node.devices[0];
  device.health = Health::quarantined;
  world.set_report(world.find("d/0"), ReplicaState::backing_off, failures_max, "CUDA error");
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(world.step().has_actions()) << "there is no other place";
    world.advance(1s);
  }
  world.set_report(world.find("d/0"), ReplicaState::refused);
  world.step();
  EXPECT_TRUE(world.assigned.empty());
  device.health = Health::healthy;
  world.advance(1s);
  EXPECT_EQ(world.step().start.size(), 1u) << "it was refused only once";
}

TEST(Replace, ADeviceThatIsOutOfOrderSaysNothingAboutTheOthersOfItsNode) {
  World world({gpu_node("a", 2)});
  world.want(gpu_spec("d", 1));
  world.settle();
  std::vector<NodeDevice>& devices = world.reports.at(NodeId("a")).node.devices;
  for (NodeDevice& device : devices) device.health = Health::quarantined;
  world.set_report(world.find("d/0"), ReplicaState::backing_off, failures_max, "CUDA error");
  EXPECT_FALSE(world.step().has_actions()) << "there is no other place";
  for (NodeDevice& device : devices)
    if (device.info.id != world.find("d/0").place.devices[0]) device.health = Health::healthy;
  EXPECT_EQ(world.step().start.size(), 1u);
}

TEST(Replace, ADeviceUnderSuspicionIsAvoidedForAMinute) {
  World world({gpu_node("a", 1), gpu_node("b", 1)});
  world.want(gpu_spec("d", 2));
  world.settle();
  world.reports.at(NodeId("a")).node.devices[0].health = Health::suspect;
  world.set_report(world.find("d/0"), ReplicaState::backing_off, failures_max, "CUDA error");
  for (int i = 0; i < 70; ++i) {
    EXPECT_FALSE(world.step().has_actions()) << "b is taken";
    world.advance(1s);
  }
  world.set_report(world.find("d/0"), ReplicaState::refused);
  world.step();
  world.reports.at(NodeId("a")).node.devices[0].health = Health::healthy;
  world.advance(60s);
  EXPECT_EQ(world.step().start.size(), 1u) << "the pause did not grow with each step";
  world.set_report(world.find("d/0"), ReplicaState::refused);
  world.step();
  world.advance(2s);
  EXPECT_EQ(world.step().start.size(), 1u) << "it was refused twice";
}

TEST(Replace, AReplicaLeavesANodeThatItsSpecNoLongerAllows) {
  const auto moves = [](DeploymentSpec spec, const std::function<void(NodeView&)>& change) {
    World world({gpu_node("a", 1), gpu_node("b", 1)});
    for (auto& [id, report] : world.reports) {
      report.node.labels["zone"] = "x";
      report.node.egress = true;
    }
    spec.node_selector["zone"] = "x";
    world.want(spec);
    world.settle();
    const NodeId before = world.find("d/0").place.node;
    change(world.reports.at(before).node);
    world.settle();
    return world.assigned.size() == 1 && world.find("d/0").place.node != before;
  };
  EXPECT_FALSE(moves(gpu_spec("d", 1), [](NodeView&) {}));
  EXPECT_TRUE(moves(gpu_spec("d", 1), [](NodeView& node) { node.labels.erase("zone"); }));
  EXPECT_TRUE(moves(gpu_spec("d", 1), [](NodeView& node) { node.taints.insert("slow"); }));
  EXPECT_TRUE(moves(remote_spec("d", 1), [](NodeView& node) { node.egress = false; }));
}

TEST(Replace, WhatDoesNotServeIsReplacedFirst) {
  World world({gpu_node("a", 4)});
  world.want(version(1, 3));
  world.settle();
  world.set_report(world.find("d/2"), ReplicaState::backing_off, 1, "exit status 1");
  world.want(version(2, 3));
  const Step step = world.step();
  ASSERT_EQ(step.start.size(), 1u) << "the surge replica";
  EXPECT_EQ(step.start[0].place.replica, 2u);
}

TEST(Replace, WhereASuccessorBreaksTheOldOneStaysUntilAnotherIsReady) {
  World world({gpu_node("a", 1), gpu_node("b", 1), gpu_node("c", 1)});
  world.want(version(1, 1));
  world.settle();
  world.want(version(2, 1));
  world.step();
  ASSERT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/0#2 b/gpu0"}));
  world.silence("a");
  world.advance(10s);
  world.set_report(world.find("d/0", 1), ReplicaState::backing_off, 1, "CUDA error");
  world.reports.at(NodeId("b")).node.devices[0].health = Health::lost;
  world.step();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/0#2 b/gpu0 stopping", "d/0#3 c/gpu0"}))
      << "a is silent and may serve";
}

TEST(Replace, OnASilentNodeNothingIsStoppedForAnotherThatIsStoppedItself) {
  World world({gpu_node("a", 1), gpu_node("b", 1)});
  world.want(version(1, 1));
  world.settle();
  world.intents[NodeId("a")] = Intent::draining;
  world.step();
  ASSERT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/0#2 b/gpu0"}));
  world.silence("a");
  world.want(version(2, 1));
  world.set_report(world.find("d/0", 1), ReplicaState::backing_off, 1, "the machine was restarted");
  world.advance(31s);
  world.step();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0", "d/0#2 b/gpu0 stopping"})) << "a may serve, b does not";
  world.set_report(world.find("d/0", 1), ReplicaState::gone);
  world.step();
  EXPECT_EQ(world.find("d/0", 1).revision, 2u);
  world.step();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0 stopping", "d/0#3 b/gpu0"}));
}

TEST(Replace, NewReplicasOfAnAllOrNothingDeploymentStartTogetherWhileAnotherMoves) {
  World world({gpu_node("a", 1), gpu_node("b", 2)});
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.node_selector["zone"] = "x";
  spec.on_shortage = OnShortage::all;
  world.reports.at(NodeId("a")).node.labels["zone"] = "x";
  world.want(spec);
  world.settle();
  ASSERT_EQ(world.places(), Words{"d/0#1 a/gpu0"});
  world.reports.at(NodeId("b")).node.labels["zone"] = "x";
  spec.replicas = 4;
  world.want(spec);
  EXPECT_TRUE(world.step().start.empty()) << "only two of three would fit";
  world.silence("a");
  world.advance(31s);
  const Step step = world.step();
  EXPECT_EQ(world.places(), (Words{"d/0#1 a/gpu0 stopping", "d/0#2 b/gpu0"}))
      << "replica 0 is replaced, no other started";
  ASSERT_EQ(step.pending.size(), 1u);
  EXPECT_EQ(step.pending[0].replicas, (std::vector<std::uint32_t>{1, 2, 3}));
  world.want(gpu_spec("e", 1));
  EXPECT_EQ(world.step().start.size(), 1u) << "other deployments get the remaining GPU";
}

TEST(Replace, ABlockedDrainNamesEveryReplicaAndIsNotSolvedByStoppingOne) {
  const auto blocked = [](std::vector<NodeView> nodes, std::uint32_t replicas, const std::string& drained) {
    World world(std::move(nodes));
    DeploymentSpec spec = gpu_spec("d", replicas);
    spec.spread = Spread::pack;
    if (replicas > 1) world.intents[NodeId("a")] = Intent::cordoned;
    world.want(spec);
    world.settle();
    world.intents[NodeId(drained)] = Intent::draining;
    const Step step = world.step();
    EXPECT_FALSE(step.has_actions());
    Words out;
    for (const std::string& event : events_of(step, fleet::EventKind::pending)) out.push_back(event.substr(0, 30));
    for (const Pending& pending : step.pending) {
      EXPECT_EQ(pending.reason.kind, ReasonKind::drain_blocked);
      for (const std::uint32_t replica : pending.replicas) out.push_back("d/" + std::to_string(replica));
      for (const auto& change : why_pending(world.input(), pending).changes) out.push_back(change.text);
    }
    return out;
  };
  EXPECT_EQ(blocked({gpu_node("a", 2), gpu_node("b", 2)}, 2, "b"),
            (Words{"d: d/0-1: it stays where it is", "d/0", "d/1", "put a back in service"}));
  EXPECT_EQ(blocked({gpu_node("a", 0), gpu_node("b", 1), gpu_node("c", 1)}, 2, "b"),
            (Words{"d: d/0: it stays where it is, ", "d/0", "add a node like b, with 1 GPU"}))
      << "with one replica, d/1 would stop and d/0 stay";
}

}  // namespace
}  // namespace berth::controller
