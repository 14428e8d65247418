// Why a replica is pending, and what a plan makes of GPUs that others use.
#include <gtest/gtest.h>

#include "deployment/test_nodes.hpp"

namespace berth::deployment {
namespace {

using Words = std::vector<std::string>;

std::string reason_of(const Plan& plan, const std::string& deployment) {
  for (const Pending& pending : plan.pending) {
    if (pending.deployment == DeploymentId(deployment)) return pending.reason.text;
  }
  return "not pending";
}
std::string reason_of(const DeploymentSpec& spec, const Fleet& fleet) {
  return reason_of(plan_one(spec, fleet), spec.name.text());
}
NodeDevice& device(Fleet& fleet, std::size_t i) { return fleet.nodes[0].devices[i]; }

TEST(Shortage, GpusThatOtherReplicasUseAreNotSaidToLackMemory) {
  // Four GPUs with room; small replicas share two of them, a large one needs two exclusively.
  DeploymentSpec embed = gpu_spec("embed", 2);
  embed.exclusive = false;
  embed.memory_bytes = 3 * gib;
  embed.priority = Priority::high;
  DeploymentSpec chat = gpu_spec("chat", 2, 2);
  chat.memory_bytes = 38 * gib;
  chat.capability_min = Capability{8, 0};
  chat.on_shortage = OnShortage::best_effort;
  const Plan made = plan(std::vector{embed, chat}, {{gpu_node("h100-a", 4)}});
  EXPECT_EQ(reason_of(made, "chat"),
            "no node has 2 GPUs of capability 8.0 with 38.0 GiB that no other replica uses; the nearest, h100-a, has 0 "
            "(h100-a/gpu0: used by another replica)");
  ASSERT_EQ(made.pending.size(), 1u);
  EXPECT_EQ(made.pending[0].reason.kind, ReasonKind::not_enough_gpus);
  EXPECT_EQ(made.pending[0].reason.best_node, NodeId("h100-a"));
  EXPECT_EQ(made.pending[0].reason.gpus_best, 0u);
}

TEST(Shortage, TheNearestNodeIsNamedThoughItHasNone) {
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.memory_bytes = 60 * gib;
  EXPECT_EQ(reason_of(spec, {{gpu_node("small", 2, 24), gpu_node("empty", 0)}}),
            "no node has 1 GPU with 60.0 GiB; the nearest, small, has 0 (small/gpu0: needs 60.0 GiB, has 24.0 GiB in "
            "total)");
  Fleet fleet{{gpu_node("n", 1)}};
  device(fleet, 0).intent = Intent::cordoned;
  EXPECT_EQ(reason_of(spec, fleet),
            "no node has 1 GPU in service and healthy; the nearest, n, has 0 (n/gpu0: cordoned)");
}

TEST(Shortage, ALabelThatNothingHasIsTheObstacle) {
  Fleet fleet{{gpu_node("a", 2), gpu_node("b", 1)}};
  fleet.nodes[0].labels = {{"zone", "b"}, {"rack", "1"}};
  fleet.nodes[0].taints = {"lab"};
  device(fleet, 0).memory_bytes_used = 70 * gib;
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.node_selector = {{"zone", "a"}};
  EXPECT_EQ(reason_of(spec, fleet), "no node has the label zone=a");
  spec.node_selector = {{"zone", "a"}, {"disk", "fast"}, {"rack", "1"}};
  EXPECT_EQ(reason_of(spec, fleet), "no node has the labels disk=fast, zone=a");
  // Each label exists, but not on a node with enough GPUs.
  fleet.nodes[1].labels = {{"disk", "fast"}};
  spec.node_selector = {{"rack", "1"}, {"disk", "fast"}};
  EXPECT_EQ(reason_of(spec, fleet), "no node with the labels disk=fast, rack=1 has 1 GPU; the nearest, a, has 0");
  spec.node_selector = {{"rack", "1"}};
  EXPECT_EQ(reason_of(spec, fleet),
            "no node has 1 GPU and only taints that are tolerated; not tolerated: lab; the nearest, a, has 0");
  spec.tolerates = {"lab"};
  spec.device_labels = {{"tier", "gold"}};
  EXPECT_EQ(reason_of(spec, fleet), "no GPU has the label tier=gold");
  device(fleet, 0).info.labels = {{"tier", "gold"}};
  spec.gpus = 2;
  EXPECT_EQ(reason_of(spec, fleet).find("no node has 2 GPUs labelled tier=gold; the nearest, a, has 1"), 0u)
      << reason_of(spec, fleet);
}

TEST(Shortage, TheReasonOfACordonIsPartOfTheSentence) {
  Fleet fleet{{gpu_node("n", 1)}};
  device(fleet, 0).intent = Intent::cordoned;
  device(fleet, 0).intent_reason = "its fan is loud";
  EXPECT_EQ(reason_of(gpu_spec("d", 1), fleet),
            "no node has 1 GPU in service and healthy; the nearest, n, has 0 (n/gpu0: cordoned: its fan is loud)");
  fleet.nodes[0].intent = Intent::draining;
  fleet.nodes[0].intent_reason = "new power supply";
  EXPECT_EQ(reason_of(gpu_spec("d", 1), fleet),
            "no node has 1 GPU in service and healthy; the nearest, n, has 0 (n/gpu0: draining: new power supply)");
}

TEST(Shortage, MemoryOfANodeIsSaidInOneSentence) {
  EXPECT_EQ(reason_of(cpu_spec("d", 1, 4096), {{gpu_node("a", 0)}}), "no node has 4.0 TiB of memory");
  const Plan made = plan(std::vector{cpu_spec("d", 1, 200), cpu_spec("e", 1, 100)}, {{gpu_node("a", 0)}});
  EXPECT_EQ(reason_of(made, "e"), "no node has 100.0 GiB of memory free");
}

TEST(OtherUse, AnExclusiveReplicaWithoutAnAmountTakesIdleGpus) {
  // The two GPUs with the fewest bytes free are in use: best_fit would like them most.
  Fleet fleet{{gpu_node("n", 4)}};
  device(fleet, 0).memory_bytes_used = 30 * gib;
  device(fleet, 1).other_processes = 1;
  EXPECT_EQ(places(plan_one(gpu_spec("llm", 1, 2), fleet)), Words{"n/gpu2 n/gpu3"});
  EXPECT_EQ(reason_of(gpu_spec("llm", 1, 3), fleet),
            "no node has 3 GPUs unused by others; the nearest, n, has 2 (n/gpu0: 30.0 GiB of its 80.0 GiB are in "
            "use)");
  device(fleet, 0).memory_bytes_used.reset();
  device(fleet, 0).answers = false;
  EXPECT_NE(reason_of(gpu_spec("llm", 1, 3), fleet).find("n/gpu0: does not answer"), std::string::npos);
  device(fleet, 0).answers = true;
  EXPECT_NE(reason_of(gpu_spec("llm", 1, 4), fleet).find("n/gpu1: in use by 1 other process"), std::string::npos);
}

TEST(OtherUse, GpusThatOthersUseComeLastAlsoWithAnAmount) {
  Fleet fleet{{gpu_node("n", 3)}};
  device(fleet, 0).memory_bytes_used = 40 * gib;
  device(fleet, 1).used_by_others = true;
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.memory_bytes = 30 * gib;
  EXPECT_EQ(places(plan_one(spec, fleet)), Words{"n/gpu2"});
  spec.replicas = 3;
  EXPECT_EQ(sorted(places(plan_one(spec, fleet))), (Words{"n/gpu0", "n/gpu1", "n/gpu2"}))
      << "they are used if necessary";
}

TEST(OtherUse, ANodeWithUnusedGpusComesFirst) {
  Fleet fleet{{gpu_node("a", 4), gpu_node("b", 1)}};
  for (NodeDevice& used : fleet.nodes[0].devices) used.used_by_others = true;
  EXPECT_EQ(nodes_of(plan_one(gpu_spec("d", 1), fleet)), Words{"b"});
}

TEST(OtherUse, WhatTheLedgerOfTheMachineSaysIsKept) {
  Fleet fleet{{gpu_node("n", 3)}};
  device(fleet, 0).held_exclusively = true;
  device(fleet, 0).holders = 1;
  device(fleet, 1).holders = 1;
  device(fleet, 1).memory_bytes_promised = 60 * gib;
  device(fleet, 2).intent = Intent::cordoned;
  EXPECT_NE(reason_of(gpu_spec("d", 1), fleet).find("(n/gpu0: held exclusively)"), std::string::npos);
  DeploymentSpec shared = gpu_spec("d", 1);
  shared.exclusive = false;
  shared.memory_bytes = 20 * gib;
  EXPECT_EQ(places(plan_one(shared, fleet)), Words{"n/gpu1"}) << "beside the lease, in the memory that it left";
  shared.memory_bytes = 21 * gib;
  EXPECT_EQ(reason_of(shared, fleet),
            "no node has 1 GPU with 21.0 GiB free; the nearest, n, has 0 (n/gpu0: held exclusively)");
}

TEST(OtherUse, AReplicaThatRunsIsNotMovedForItsOwnUse) {
  Fleet fleet{{gpu_node("n", 2)}};
  const DeploymentSpec spec = gpu_spec("d", 1);
  const Plan first = plan_one(spec, fleet);
  device(fleet, 0).memory_bytes_used = 70 * gib;
  device(fleet, 0).other_processes = 1;
  device(fleet, 0).used_by_others = true;
  EXPECT_TRUE(plan_one(spec, fleet, first.assignments).actions.empty());
}

}  // namespace
}  // namespace berth::deployment
