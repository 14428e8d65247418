// Plans within what a controller has decided before: what stays, what is in use, what is avoided.
#include <gtest/gtest.h>

#include "deployment/test_nodes.hpp"

namespace berth::deployment {
namespace {

using Words = std::vector<std::string>;

Assignment on(const std::string& deployment, std::uint32_t replica, const std::string& node, const std::string& device,
              bool exclusive = true, std::uint64_t memory_bytes = 0) {
  return {DeploymentId(deployment), replica, NodeId(node), {DeviceId(device)}, memory_bytes, exclusive};
}

TEST(PlanLimits, WhatStaysIsPartOfThePlanWhateverTheSpecSays) {
  DeploymentSpec spec = gpu_spec("d", 2);
  spec.node_selector = {{"zone", "b"}};
  Fleet fleet{{gpu_node("a", 2), gpu_node("b", 2)}};
  fleet.nodes[1].labels = {{"zone", "b"}};
  const std::vector staying{on("d", 0, "a", "a/gpu1")};
  const Plan plan = deployment::plan(std::vector{spec}, fleet, {}, {}, {staying, {}, {}});
  EXPECT_EQ(places(plan), (Words{"a/gpu1", "b/gpu0"}));
  ASSERT_EQ(plan.actions.size(), 1u);
  EXPECT_EQ(plan.actions[0].sign(), '+');
}

TEST(PlanLimits, AReplicaThatStaysWithoutANodeIsNotPlaced) {
  const std::vector staying{Assignment{DeploymentId("d"), 0, {}, {}, 0, false}};
  const Plan plan = deployment::plan(std::vector{gpu_spec("d", 2)}, {{gpu_node("a", 2)}}, {}, {}, {staying, {}, {}});
  EXPECT_EQ(places(plan), (Words{"", "a/gpu0"}));
}

TEST(PlanLimits, WhatIsOccupiedIsGivenToNoOtherAndIsInNoPlan) {
  const Fleet fleet{{gpu_node("a", 2)}};
  const std::vector occupied{on("old", 0, "a", "a/gpu0")};
  const Plan single = plan(std::vector{gpu_spec("d", 1)}, fleet, {}, {}, {{}, occupied, {}});
  EXPECT_EQ(places(single), Words{"a/gpu1"});
  const Plan two = plan(std::vector{gpu_spec("d", 2)}, fleet, {}, {}, {{}, occupied, {}});
  EXPECT_TRUE(two.assignments.empty());
  EXPECT_EQ(only_reason(two).kind, ReasonKind::not_enough_gpus);
}

TEST(PlanLimits, OccupiedBytesAreNotPromisedAgain) {
  const Fleet fleet{{gpu_node("a", 1, 80)}};
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.exclusive = false;
  spec.memory_bytes = 50 * gib;
  const std::vector small{on("old", 0, "a", "a/gpu0", false, 30 * gib)};
  EXPECT_EQ(places(plan(std::vector{spec}, fleet, {}, {}, {{}, small, {}})), Words{"a/gpu0"});
  const std::vector large{on("old", 0, "a", "a/gpu0", false, 31 * gib)};
  EXPECT_EQ(only_reason(plan(std::vector{spec}, fleet, {}, {}, {{}, large, {}})).kind, ReasonKind::not_enough_gpus);
}

TEST(PlanLimits, TheDevicesThatAreLeftOfWhatIsOccupiedCount) {
  const Fleet fleet{{gpu_node("a", 2)}};
  Assignment pair = on("old", 0, "a", "a/gpu1");
  pair.devices.push_back(DeviceId("a/gpu7"));  // gone
  const std::vector occupied{pair};
  EXPECT_EQ(places(plan(std::vector{gpu_spec("d", 1)}, fleet, {}, {}, {{}, occupied, {}})), Words{"a/gpu0"});
}

TEST(PlanLimits, OnePerNodeCountsWhatEnds) {
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.spread = Spread::one_per_node;
  const std::vector occupied{on("d", 1, "a", "a/gpu0")};
  const Plan plan =
      deployment::plan(std::vector{spec}, {{gpu_node("a", 4), gpu_node("b", 1)}}, {}, {}, {{}, occupied, {}});
  EXPECT_EQ(places(plan), Words{"b/gpu0"});
}

TEST(PlanLimits, AnAvoidedNodeTakesNothingNewOfThatDeployment) {
  const Fleet fleet{{gpu_node("a", 8), gpu_node("b", 1)}};
  const PlanLimits limits{{}, {}, {{DeploymentId("d"), NodeId("a")}}};
  EXPECT_EQ(places(plan(std::vector{gpu_spec("d", 1)}, fleet, {}, {}, limits)), Words{"b/gpu0"});
  EXPECT_EQ(places(plan(std::vector{gpu_spec("e", 1)}, fleet, {}, {}, limits)), Words{"a/gpu0"});
}

}  // namespace
}  // namespace berth::deployment
