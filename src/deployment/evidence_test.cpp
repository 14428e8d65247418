#include "deployment/evidence.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "deployment/test_nodes.hpp"

namespace berth::deployment {
namespace {

using Lines = std::vector<std::string>;

Lines funnel_of(const Evidence& evidence) {
  Lines out;
  for (const auto& [name, count] : evidence.funnel) out.push_back(std::to_string(count) + " " + name);
  return out;
}

Lines changes_of(const Evidence& evidence) {
  Lines out;
  for (const auto& [text, command] : evidence.changes) out.push_back(text + (command.empty() ? "" : ": " + command));
  return out;
}

std::map<std::string, std::string> reasons_of_nodes(const Evidence& evidence) {
  std::map<std::string, std::string> out;
  for (const auto& [node, fits, text] : evidence.nodes) out[node.text()] = (fits ? "yes: " : "no: ") + text;
  return out;
}

TEST(Evidence, FunnelNodesAndChangesOfAPairThatFitsNowhere) {
  NodeView a = gpu_node("a", 4), b = gpu_node("b", 2), c = gpu_node("c", 0);
  a.devices[0].memory_bytes_used = 30 * gib;
  a.devices[1].health = Health::quarantined;
  a.devices[2].memory_bytes_used = 60 * gib;
  b.intent = Intent::draining;
  DeploymentSpec spec = gpu_spec("chat", 1, 2);
  spec.exclusive = false;
  spec.memory_bytes = 70 * gib;
  const Evidence evidence = why_pending(spec, {{a, b, c}}, {}, {});
  EXPECT_EQ(funnel_of(evidence), (Lines{"6 GPUs", "3 in service and healthy", "1 with 70.0 GiB unused by others",
                                        "0 sets of 2 on one node"}));
  EXPECT_EQ(reasons_of_nodes(evidence)["a"].find("no: 1 of 4 GPUs with 70.0 GiB unused by others (a/gpu0: "), 0u)
      << reasons_of_nodes(evidence)["a"];
  EXPECT_EQ(reasons_of_nodes(evidence)["b"].find("no: 0 of 2 GPUs in service and healthy"), 0u)
      << reasons_of_nodes(evidence)["b"];
  EXPECT_EQ(reasons_of_nodes(evidence)["c"], "no: has no GPU");
  EXPECT_EQ(changes_of(evidence),
            (Lines{"put b back in service: berth uncordon node/b", "ask for 50.0 GiB instead of 70.0 GiB",
                   "ask for 1 GPU instead of 2", "end the other work on a/gpu0 of a"}));
}

TEST(Evidence, ALabelThatNoNodeHasIsNamed) {
  NodeView a = gpu_node("a", 1), b = gpu_node("b", 1);
  a.labels = {{"zone", "a"}};
  b.labels = {{"disk", "fast"}};
  const auto reason = [&](std::map<std::string, std::string> labels) {
    DeploymentSpec spec = gpu_spec("d", 1);
    spec.memory_bytes = 999 * gib;  // no node has this much either, but labels come first
    spec.node_selector = std::move(labels);
    return only_reason(plan_one(spec, {{a, b}})).text;
  };
  EXPECT_EQ(reason({{"zone", "b"}}), "no node has the label zone=b");
  EXPECT_EQ(reason({{"zone", "b"}, {"disk", "slow"}}), "no node has the labels disk=slow, zone=b");
  EXPECT_EQ(reason({{"zone", "a"}, {"disk", "slow"}}), "no node has the label disk=slow");
  EXPECT_TRUE(
      reason({{"zone", "a"}, {"disk", "fast"}}).starts_with("no node with the labels disk=fast, zone=a has 1 GPU"))
      << reason({{"zone", "a"}, {"disk", "fast"}});
  EXPECT_EQ(reason({{"zone", "a"}, {"disk", "fast"}}).find("GiB"), std::string::npos);
}

TEST(Evidence, EveryChangeLetsItFit) {
  NodeView tainted = gpu_node("a", 2), labelled = gpu_node("b", 1);
  tainted.taints = {"lab"};
  labelled.labels = {{"zone", "b"}};
  DeploymentSpec spec = gpu_spec("chat", 1, 1);
  spec.node_selector = {{"zone", "a"}};
  EXPECT_EQ(changes_of(why_pending(spec, {{tainted, labelled}}, {}, {})),
            Lines{"remove zone=a from node_selector, or give a node this label (labels in the file of its agent; then "
                  "restart the agent)"});
  spec.node_selector.clear();
  spec.gpus = 2;
  EXPECT_EQ(changes_of(why_pending(spec, {{tainted, labelled}}, {}, {})),
            (Lines{"tolerate lab", "ask for 1 GPU instead of 2"}));
  spec.gpus = 1;
  spec.capability_min = Capability{10, 0};
  EXPECT_EQ(changes_of(why_pending(spec, {{tainted, labelled}}, {}, {})), Lines{"remove or lower capability (10.0)"});
}

TEST(Evidence, ReplicasThatFillTheFleetAskForANodeOrForFewerOfThem) {
  const Evidence evidence = why_pending(gpu_spec("chat", 3), {{gpu_node("a", 2)}}, {}, {});
  EXPECT_EQ(funnel_of(evidence), (Lines{"2 GPUs", "0 not used by another replica"}));
  EXPECT_EQ(changes_of(evidence), (Lines{"add a node like a, with 2 GPUs", "ask for 2 replicas instead of 3"}));
  const Assignment last{DeploymentId("chat"), 2, NodeId("a"), {DeviceId("a/gpu0")}, 0, true};
  EXPECT_EQ(changes_of(why_pending(gpu_spec("chat", 3), {{gpu_node("a", 2)}}, {}, {std::span(&last, 1), {}, {}})),
            Lines{"add a node like a, with 2 GPUs"})
      << "with fewer replicas, the last one stops, and it is running";
  DeploymentSpec spec = gpu_spec("chat", 2);
  spec.spread = Spread::one_per_node;
  EXPECT_EQ(changes_of(why_pending(spec, {{gpu_node("a", 2)}}, {}, {})).at(0),
            "let replicas share a node: spread = \"spread\"");
}

TEST(Evidence, ReplicasWithoutAGpu) {
  NodeView a = gpu_node("a", 0), b = egress_node("b");
  b.intent = Intent::cordoned;
  const Evidence remote = why_pending(remote_spec("ask", 1), {{a, b}}, {}, {});
  EXPECT_EQ(funnel_of(remote), (Lines{"1 nodes with egress", "0 in service and healthy"}));
  EXPECT_EQ(reasons_of_nodes(remote)["a"], "no: has no egress");
  EXPECT_EQ(changes_of(remote), (Lines{"put b back in service: berth uncordon node/b",
                                       "allow a to call providers: set egress = true in its agent's file"}));
  EXPECT_EQ(changes_of(why_pending(remote_spec("ask", 1), {{a}}, {}, {})),
            Lines{"allow a to call providers: set egress = true in its agent's file"});
  const Evidence large = why_pending(cpu_spec("text", 1, 300), {{a}}, {}, {});
  EXPECT_EQ(reasons_of_nodes(large)["a"], "no: has less than 300.0 GiB");
  EXPECT_EQ(changes_of(large), Lines{"ask for 256.0 GiB instead of 300.0 GiB"});
}

TEST(Evidence, APlanIsExplainedBesideWhatItPlaces) {
  const std::vector<DeploymentSpec> specs{gpu_spec("chat", 2), gpu_spec("draw", 1), gpu_spec("huge", 1)};
  const Fleet fleet{{gpu_node("a", 2)}};
  const Plan plan = deployment::plan(specs, fleet);
  ASSERT_EQ(plan.pending.size(), 2u);
  const SmallestChanges changes = smallest_changes(plan, specs, fleet, {});
  ASSERT_EQ(changes.size(), 2u);
  ASSERT_TRUE(changes[0]) << "alone it would fit";
  EXPECT_EQ(changes[0]->text, "add a node like a, with 2 GPUs");
  EXPECT_TRUE(smallest_changes(plan, {}, fleet, {}).at(0) == std::nullopt);
}

TEST(Evidence, IsEmptyWhereNothingIsPending) {
  const Evidence evidence = why_pending(gpu_spec("chat", 1), {{gpu_node("a", 1)}}, {}, {});
  EXPECT_TRUE(evidence.funnel.empty() && evidence.nodes.empty() && evidence.changes.empty());
}

}  // namespace
}  // namespace berth::deployment
