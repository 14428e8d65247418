// Plans over replicas that run already: what stays, moves and stops.
#include <gtest/gtest.h>

#include "deployment/test_nodes.hpp"

namespace berth::deployment {
namespace {

using Words = std::vector<std::string>;

TEST(Deployment, S1_F10_ANodeMoreOrLessMovesOnlyWhatItMust) {
  const DeploymentSpec spec = gpu_spec("d", 6);
  Fleet fleet{{gpu_node("a", 4), gpu_node("b", 4), gpu_node("c", 4)}};
  const Plan before = plan_one(spec, fleet);
  EXPECT_TRUE(plan_one(spec, fleet, before.assignments).actions.empty());

  Fleet larger = fleet;
  larger.nodes.insert(larger.nodes.begin(), gpu_node("0-new", 4));
  EXPECT_TRUE(plan_one(spec, larger, before.assignments).actions.empty());

  Fleet smaller = fleet;
  smaller.nodes.erase(smaller.nodes.begin() + 1);
  const Plan after = plan_one(spec, smaller, before.assignments);
  EXPECT_TRUE(after.pending.empty());
  ASSERT_EQ(after.actions.size(), 2u);
  for (const Action& action : after.actions) {
    EXPECT_EQ(action.sign(), '~');
    EXPECT_EQ(action.before->node, NodeId("b"));
  }
}

TEST(Deployment, ScalingDownStopsTheHighestReplicas) {
  const Fleet fleet{{gpu_node("n", 4)}};
  const Plan four = plan_one(gpu_spec("d", 4), fleet);
  const Plan two = plan_one(gpu_spec("d", 2), fleet, four.assignments);
  ASSERT_EQ(two.actions.size(), 2u);
  EXPECT_EQ(two.actions[0].sign(), '-');
  EXPECT_EQ(two.actions[0].subject().replica, 2u);
  EXPECT_EQ(two.actions[1].subject().replica, 3u);
  const Plan back = plan_one(gpu_spec("d", 4), fleet, two.assignments);
  ASSERT_EQ(back.actions.size(), 2u);
  EXPECT_EQ(back.actions[0].sign(), '+');
}

TEST(Deployment, ADeploymentThatIsGoneIsStoppedAndItsGpusGivenOut) {
  const Fleet fleet{{gpu_node("n", 1)}};
  const Plan old = plan_one(gpu_spec("old", 1), fleet);
  const Plan next = plan_one(gpu_spec("new", 1), fleet, old.assignments);
  ASSERT_EQ(next.actions.size(), 2u);
  EXPECT_EQ(next.actions[0].sign(), '-');
  EXPECT_EQ(next.actions[1].sign(), '+');
}

TEST(Deployment, ALargerNeedStaysInPlaceWhereItFits) {
  const Fleet fleet{{gpu_node("a", 1, 40), gpu_node("b", 1, 80)}};
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.memory_bytes = 20 * gib;
  Plan plan = plan_one(spec, fleet);
  EXPECT_EQ(places(plan), Words{"a/gpu0"});
  spec.memory_bytes = 30 * gib;
  plan = plan_one(spec, fleet, plan.assignments);
  ASSERT_EQ(plan.actions.size(), 1u);
  EXPECT_EQ(plan.actions[0].sign(), '~');
  EXPECT_EQ(places(plan), Words{"a/gpu0"});
  spec.memory_bytes = 50 * gib;
  plan = plan_one(spec, fleet, plan.assignments);
  EXPECT_EQ(places(plan), Words{"b/gpu0"});
}

TEST(Deployment, ACordonKeepsWhatRunsAndTakesNothingNew) {
  Fleet fleet{{gpu_node("a", 2)}};
  const Plan first = plan_one(gpu_spec("d", 1), fleet);
  fleet.nodes[0].intent = Intent::cordoned;
  const Plan more = plan_one(gpu_spec("d", 2), fleet, first.assignments);
  EXPECT_EQ(more.assignments, first.assignments);
  EXPECT_EQ(only_reason(more).kind, ReasonKind::not_in_service);
}

TEST(Deployment, ADrainMovesWhatItCanAndStopsNothing) {
  Fleet fleet{{gpu_node("a", 2), gpu_node("b", 1)}};
  DeploymentSpec spec = gpu_spec("d", 2);
  spec.spread = Spread::pack;
  spec.on_shortage = OnShortage::best_effort;
  const std::vector<Assignment> on_a{{spec.name, 0, NodeId("a"), {DeviceId("a/gpu0")}, 0, true},
                                     {spec.name, 1, NodeId("a"), {DeviceId("a/gpu1")}, 0, true}};
  fleet.nodes[0].intent = Intent::draining;
  const Plan plan = plan_one(spec, fleet, on_a);
  EXPECT_EQ(places(plan), (Words{"b/gpu0", "a/gpu1"}));
  ASSERT_EQ(plan.actions.size(), 1u);
  EXPECT_EQ(plan.actions[0].sign(), '~');
  EXPECT_EQ(only_reason(plan).kind, ReasonKind::drain_blocked);
  EXPECT_TRUE(plan_one(spec, fleet, plan.assignments).actions.empty());
}

TEST(Deployment, ADrainOfOneGpuMayStayOnItsNodeEvenAlone) {
  Fleet fleet{{gpu_node("a", 2)}};
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.spread = Spread::one_per_node;
  const Plan before = plan_one(spec, fleet);
  fleet.nodes[0].devices[0].intent = Intent::draining;
  EXPECT_EQ(places(plan_one(spec, fleet, before.assignments)), Words{"a/gpu1"});
}

TEST(Deployment, ALostGpuMovesItsReplicaAlone) {
  Fleet fleet{{gpu_node("a", 2), gpu_node("b", 2)}};
  const Plan before = plan_one(gpu_spec("d", 3), fleet);
  fleet.nodes[0].devices[0].health = Health::lost;
  const Plan after = plan_one(gpu_spec("d", 3), fleet, before.assignments);
  ASSERT_EQ(after.actions.size(), 1u);
  EXPECT_EQ(after.actions[0].before->devices[0], DeviceId("a/gpu0"));
  EXPECT_EQ(after.actions[0].after->devices[0], DeviceId("b/gpu1"));
}

TEST(Deployment, WhatRunsIsLeftAloneWhenTheSpecCannotBeUnderstood) {
  const Fleet fleet{{gpu_node("n", 2)}};
  const Plan before = plan_one(gpu_spec("d", 2), fleet);
  DeploymentSpec newer = gpu_spec("d", 2);
  newer.runtime = runtime_from("quantum_link");
  const Plan after = plan_one(newer, fleet, before.assignments);
  EXPECT_EQ(after.assignments, before.assignments);
  EXPECT_TRUE(after.actions.empty());
  EXPECT_EQ(only_reason(after).kind, ReasonKind::unknown_transport);
}

TEST(Deployment, AReplicaThatWasPlacedUnderAFormerIdStays) {
  Fleet fleet{{gpu_node("a", 2), gpu_node("b", 2)}};
  const std::vector<Assignment> before = plan_one(gpu_spec("d", 3), fleet).assignments;
  // The same machines after an update that gives devices other ids.
  for (NodeView& node : fleet.nodes) {
    for (NodeDevice& device : node.devices) {
      device.info.former_id = device.info.id;
      device.info.id = DeviceId("gpu-opencl-" + device.info.id.text().substr(5));
      device.info.memory_domain = device.info.id.text();
    }
  }
  const Plan after = plan_one(gpu_spec("d", 3), fleet, before);
  EXPECT_TRUE(after.actions.empty());
  ASSERT_EQ(after.assignments.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(after.assignments[i].node, before[i].node);
    EXPECT_EQ("opencl-" + before[i].devices[0].text().substr(5), after.assignments[i].devices[0].text().substr(4));
  }
}

}  // namespace
}  // namespace berth::deployment
