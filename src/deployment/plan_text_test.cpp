#include <gtest/gtest.h>

#include "deployment/test_nodes.hpp"

namespace berth::deployment {
namespace {

TEST(PlanText, APlanReadsAsATable) {
  Fleet fleet{{gpu_node("gpu-1", 2), gpu_node("gpu-2", 1)}};
  const std::vector<Assignment> current{{DeploymentId("chat"), 0, NodeId("gone"), {DeviceId("gone/gpu0")}, 0, true},
                                        {DeploymentId("old"), 0, NodeId("gpu-1"), {DeviceId("gpu-1/gpu0")}, 0, true}};
  DeploymentSpec large = gpu_spec("large", 2, 4);
  const std::vector specs{gpu_spec("chat", 2), large, cpu_spec("tokens", 1, 2)};
  EXPECT_EQ(plan_to_text(plan(specs, fleet, current)),
            "-  old/0     gpu-1  gpu-1/gpu0  exclusive\n"
            "~  chat/0    gpu-1  gpu-1/gpu0  exclusive, moves from gone\n"
            "+  chat/1    gpu-2  gpu-2/gpu0  exclusive\n"
            "+  tokens/0  gpu-1  -           2.0 GiB\n"
            "! large/0-1  pending: no node has 4 GPUs; the nearest, gpu-1, has 2\n"
            "2 to start, 1 to change, 1 to stop, 0 unchanged, 2 pending.\n");
  const Plan again = plan_one(gpu_spec("chat", 1), fleet, plan_one(gpu_spec("chat", 1), fleet).assignments);
  EXPECT_EQ(plan_to_text(again), "Nothing to do: 1 replica is in place.\n");
}

TEST(PlanText, APlanNamesGpusByTheBeginningsOfTheirIds) {
  Plan plan;
  const Assignment chat{
      DeploymentId("chat"),
      0,
      NodeId("a"),
      {DeviceId("GPU-454afa53-0000-0000-0000-000000000000"), DeviceId("GPU-454afa53-1000-0000-0000-000000000000")},
      0,
      true};
  plan.assignments = {chat};
  plan.actions = {{std::nullopt, chat}};
  EXPECT_EQ(plan_to_text(plan),
            "+  chat/0  a  GPU-454afa53-0 GPU-454afa53-1  exclusive\n"
            "1 to start, 0 to change, 0 to stop, 0 unchanged, 0 pending.\n");
}

TEST(PlanText, EveryReplicaIsCountedOnce) {
  Plan plan;
  for (const std::uint32_t replica : {0u, 1u, 2u})
    plan.assignments.push_back(
        {DeploymentId("chat"), replica, NodeId("a"), {DeviceId("g" + std::to_string(replica))}, 0, true});
  EXPECT_EQ(plan_to_text(plan, {}, std::vector<std::string>{"chat/0", "chat/1"}),
            "0 to start, 0 to change, 0 to stop, 2 to restart, 1 unchanged, 0 pending.\n");
  Assignment before = plan.assignments[1];
  before.node = NodeId("b");
  plan.actions = {{before, plan.assignments[1]}};
  EXPECT_EQ(plan_to_text(plan, {}, std::vector<std::string>{"chat/0"}),
            "~  chat/1  a  g1  exclusive, moves from b\n"
            "0 to start, 1 to change, 0 to stop, 1 to restart, 1 unchanged, 0 pending.\n");
  Pending& pending = plan.pending.emplace_back();
  pending.deployment = DeploymentId("chat");
  pending.replicas = {2, 7};
  pending.reason.text = "no room";
  EXPECT_EQ(plan_to_text(plan),
            "~  chat/1  a  g1  exclusive, moves from b\n! chat/2, 7  pending: no room\n"
            "0 to start, 1 to change, 0 to stop, 1 unchanged, 2 pending.\n")
      << "a pending replica that stays in its place is not unchanged";
}

}  // namespace
}  // namespace berth::deployment
