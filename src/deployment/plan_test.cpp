#include <gtest/gtest.h>

#include "berth/placement.hpp"
#include "deployment/test_nodes.hpp"

namespace berth::deployment {
namespace {

using Words = std::vector<std::string>;

EgressPreference prefer(const char* key, std::vector<NodeId> nodes) {
  return {{EgressRoute{Provider::open_ai, *KeyRef::parse(key)}, std::move(nodes)}};
}

TEST(Deployment, S1_1_ConstraintsAreGpuNodesEgressNodesAndAnEgressPreference) {
  const Fleet fleet{{gpu_node("a", 0), egress_node("e"), egress_node("f"), gpu_node("g", 2)}};
  DeploymentSpec remote = remote_spec("far", 1);
  remote.key = *KeyRef::parse("env:KEY");
  const std::vector specs{gpu_spec("local", 1), remote};
  EXPECT_EQ(places(plan(specs, fleet)), (Words{"e", "g/gpu0"}));
  EXPECT_EQ(places(plan(specs, fleet, {}, prefer("env:KEY", {NodeId("f")}))), (Words{"f", "g/gpu0"}));
  EXPECT_EQ(places(plan(specs, fleet, {}, prefer("env:KEY", {NodeId("a")}))), (Words{"e", "g/gpu0"}))
      << "a preference does not make a node an egress node";
}

TEST(Deployment, S1_2_AnAssignmentNamesReplicaNodeAndDevices) {
  const Plan plan = plan_one(gpu_spec("d", 1, 2), {{gpu_node("n", 2)}});
  ASSERT_EQ(plan.assignments.size(), 1u);
  const Assignment& assignment = plan.assignments[0];
  EXPECT_EQ(assignment.replica, 0u);
  EXPECT_EQ(assignment.node, NodeId("n"));
  EXPECT_EQ(assignment.devices, (std::vector{DeviceId("n/gpu0"), DeviceId("n/gpu1")}));
}

TEST(Deployment, S1_3_AResultNamesTheDeploymentAndListsReplicasInOrder) {
  const Plan plan = plan_one(gpu_spec("d", 5), {{gpu_node("a", 3), gpu_node("b", 3)}});
  ASSERT_EQ(plan.assignments.size(), 5u);
  for (std::uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(plan.assignments[i].deployment, DeploymentId("d"));
    EXPECT_EQ(plan.assignments[i].replica, i);
  }
}

TEST(Deployment, S1_4_FourKindsOfFailureAreToldApart) {
  const Fleet bare{{gpu_node("n", 0)}};
  const Fleet small{{gpu_node("n", 1)}};
  EXPECT_EQ(only_reason(plan_one(gpu_spec("d", 1), bare)).kind, ReasonKind::no_gpu_nodes);
  const Reason egress = only_reason(plan_one(remote_spec("d", 1), bare));
  EXPECT_EQ(egress.kind, ReasonKind::no_egress_nodes);
  EXPECT_EQ(egress.provider, Provider::open_ai);
  const Reason gpus = only_reason(plan_one(gpu_spec("d", 1, 2), small));
  EXPECT_EQ(gpus.kind, ReasonKind::not_enough_gpus);
  EXPECT_EQ(gpus.gpus_requested, 2u);
  DeploymentSpec newer = gpu_spec("d", 1);
  newer.runtime = runtime_from("quantum_link");
  EXPECT_EQ(only_reason(plan_one(newer, small)).kind, ReasonKind::unknown_transport);
}

TEST(Deployment, S1_5_PlansMadeInBetweenDoNotChangeAPlan) {
  // round_robin takes turns: a cursor that survived a plan would change the result.
  DeploymentSpec spec = gpu_spec("d", 2);
  spec.policy = "round_robin";
  const Fleet fleet{{gpu_node("a", 3), gpu_node("b", 2)}};
  const Plan first = plan_one(spec, fleet);
  for (std::uint32_t replicas = 1; replicas <= 5; ++replicas) {
    static_cast<void>(plan_one(gpu_spec("other", replicas), fleet));
    EXPECT_EQ(plan_one(spec, fleet), first) << replicas;
  }
}

TEST(Deployment, S1_7_NoGpuNodesIsSaidFirstEvenForZeroReplicas) {
  const DeploymentSpec none = gpu_spec("d", 0);
  EXPECT_EQ(only_reason(plan_one(none, {})).kind, ReasonKind::no_gpu_nodes);
  EXPECT_EQ(only_reason(plan_one(none, {{egress_node("e")}})).kind, ReasonKind::no_gpu_nodes);
  EXPECT_EQ(only_reason(plan_one(gpu_spec("d", 1, 0), {})).kind, ReasonKind::no_gpu_nodes);
}

TEST(Deployment, S1_8_ReplicasTakeEqualNodesInTurnWithOneGpuEachUnlessTheSpecSaysMore) {
  const Fleet fleet{{gpu_node("a", 8), gpu_node("b", 8)}};
  DeploymentSpec spec = gpu_spec("d", 5);
  spec.gpus.reset();
  const Plan five = plan_one(spec, fleet);
  EXPECT_EQ(nodes_of(five), (Words{"a", "b", "a", "b", "a"}));
  for (const Assignment& assignment : five.assignments) EXPECT_EQ(assignment.devices.size(), 1u);
  spec.gpus = 2;
  const Plan pairs = plan_one(spec, fleet);
  EXPECT_EQ(nodes_of(pairs), (Words{"a", "b", "a", "b", "a"}));
  for (const Assignment& assignment : pairs.assignments) EXPECT_EQ(assignment.devices.size(), 2u);
}

TEST(Deployment, S1_9_RemoteReplicasTakeEgressNodesInTurnWithoutGpus) {
  DeploymentSpec spec = remote_spec("d", 3);
  spec.gpus = 4;
  const Plan plan = plan_one(spec, {{egress_node("a"), egress_node("b"), gpu_node("g", 8)}});
  EXPECT_EQ(nodes_of(plan), (Words{"a", "b", "a"}));
  for (const Assignment& assignment : plan.assignments) EXPECT_TRUE(assignment.devices.empty());
  const Plan without = plan_one(spec, {{gpu_node("a", 8)}});
  EXPECT_EQ(only_reason(without).kind, ReasonKind::no_egress_nodes);
  EXPECT_EQ(only_reason(without).provider, Provider::open_ai);
}

TEST(Deployment, S1_10_AnUnknownTransportIsNeverGuessed) {
  DeploymentSpec spec = gpu_spec("d", 2);
  spec.model = "gpt-4o";
  spec.runtime = runtime_from("quantum_link");
  const Plan plan = plan_one(spec, {{gpu_node("g", 8), egress_node("e")}});
  EXPECT_TRUE(plan.assignments.empty());
  EXPECT_EQ(only_reason(plan).kind, ReasonKind::unknown_transport);
  EXPECT_NE(only_reason(plan).text.find("quantum_link"), std::string::npos);
}

TEST(Deployment, S1_11_ZeroReplicasAreASuccessWithNothingToDo) {
  const Plan plan = plan_one(gpu_spec("d", 0), {{gpu_node("n", 1)}});
  EXPECT_EQ(plan, Plan{});
}

TEST(Deployment, S1_12_NamesAreCarriedUnchangedAndANodeNamedTwiceCountsOnce) {
  const Plan placed = plan_one(gpu_spec("My-App_1.0", 2), {{gpu_node("a", 2), gpu_node("a", 2)}});
  ASSERT_EQ(placed.assignments.size(), 2u);
  for (const Assignment& assignment : placed.assignments) EXPECT_EQ(assignment.deployment, DeploymentId("My-App_1.0"));
  const Plan refused = plan_one(gpu_spec("My-App_1.0", 3), {{gpu_node("a", 2), gpu_node("a", 2)}});
  EXPECT_EQ(only_reason(refused).kind, ReasonKind::not_enough_gpus);
  EXPECT_EQ(refused.pending[0].deployment, DeploymentId("My-App_1.0"));
}

TEST(Deployment, S1_13_WhichGpuOfTheNodeIsPlacementsChoice) {
  // Two GPUs in use by others: the policy of the spec decides which one is next.
  Fleet fleet{{gpu_node("n", 3)}};
  fleet.nodes[0].devices[0].memory_bytes_used = 10 * gib;
  fleet.nodes[0].devices[1].memory_bytes_used = 30 * gib;
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.memory_bytes = 20 * gib;
  for (const Policy& policy : policies()) {
    spec.policy = std::string(policy.name);
    std::vector<DeviceView> views(3);
    for (std::uint32_t i = 0; i < 3; ++i) {
      views[i].info = &fleet.nodes[0].devices[i].info;
      views[i].id_order = i;
      views[i].sample = SampleState::fresh;
      views[i].memory_bytes_free = 80 * gib - fleet.nodes[0].devices[i].memory_bytes_used.value_or(0);
      views[i].used_by_others = i < 2;
    }
    Requirements requirements;
    requirements.memory_bytes_min = 20 * gib;
    const Decision decision = choose(policy, requirements, views, 0);
    EXPECT_EQ(places(plan_one(spec, fleet)), Words{"n/gpu" + std::to_string(*decision.winner)}) << policy.name;
  }
}

TEST(Deployment, S1_15_NoInputMakesAPlanFailOtherThanByReasons) {
  DeploymentSpec odd;
  DeploymentSpec huge = gpu_spec("huge", replicas_max + 1, 4'000'000'000u);
  DeploymentSpec big = gpu_spec("big", replicas_max, 1);
  DeploymentSpec bad_policy = gpu_spec("bad", 1);
  bad_policy.policy = "no_such_policy";
  Fleet fleet{{gpu_node("", 2), gpu_node("n", 1), gpu_node("n", 1)}};
  fleet.nodes[1].devices.push_back(fleet.nodes[1].devices[0]);
  fleet.nodes[1].devices[0].info.memory_bytes_total.reset();
  const std::vector<Assignment> nonsense{
      {DeploymentId("gone"), 7, NodeId("nowhere"), {DeviceId("x"), DeviceId("x")}, 1, true},
      {DeploymentId("big"), 0, NodeId("n"), {DeviceId("n/gpu0"), DeviceId("n/gpu0")}, 1, true},
      {DeploymentId("big"), 4'000'000'000u, NodeId("n"), {}, ~0ull, false}};
  const std::vector specs{odd, huge, big, bad_policy, odd, big};
  const Plan plan = deployment::plan(specs, fleet, nonsense);
  std::map<std::string, ReasonKind> kinds;
  for (const Pending& pending : plan.pending) kinds[pending.deployment.text()] = pending.reason.kind;
  EXPECT_EQ(kinds.at("huge"), ReasonKind::invalid_spec);
  EXPECT_EQ(kinds.at("bad"), ReasonKind::invalid_spec);
  EXPECT_EQ(kinds.at(""), ReasonKind::invalid_spec);
  EXPECT_FALSE(plan_to_text(plan).empty());
}

TEST(Deployment, S1_F1_NotEnoughGpusNamesTheNearMiss) {
  const Plan plan = plan_one(gpu_spec("d", 1, 4), {{gpu_node("a", 2), gpu_node("b", 3), gpu_node("c", 1)}});
  const Reason& reason = only_reason(plan);
  EXPECT_EQ(reason.kind, ReasonKind::not_enough_gpus);
  EXPECT_EQ(reason.gpus_requested, 4u);
  EXPECT_EQ(reason.best_node, NodeId("b"));
  EXPECT_EQ(reason.gpus_best, 3u);
  EXPECT_EQ(reason.text, "no node has 4 GPUs; the nearest, b, has 3");
}

TEST(Deployment, S1_F2_TheEgressPreferenceIsHonouredAndTheSpreadKept) {
  const Fleet fleet{{egress_node("a"), egress_node("b"), egress_node("c")}};
  DeploymentSpec spec = remote_spec("d", 1);
  spec.key = *KeyRef::parse("env:KEY");
  const EgressPreference preference = prefer("env:KEY", {NodeId("c"), NodeId("gone")});
  EXPECT_EQ(nodes_of(plan(std::vector{spec}, fleet, {}, preference)), Words{"c"});
  spec.replicas = 4;
  EXPECT_EQ(nodes_of(plan(std::vector{spec}, fleet, {}, preference)), (Words{"c", "a", "b", "c"}));
  spec.key = *KeyRef::parse("env:OTHER");
  EXPECT_EQ(nodes_of(plan(std::vector{spec}, fleet, {}, preference)), (Words{"a", "b", "c", "a"}));
}

TEST(Deployment, S1_F3_ReplicasOfADeploymentNeverMeetOnAGpu) {
  const Plan plan = plan_one(gpu_spec("d", 5), {{gpu_node("a", 3), gpu_node("b", 3)}});
  EXPECT_TRUE(plan.pending.empty());
  EXPECT_EQ(places(plan), (Words{"a/gpu0", "b/gpu0", "a/gpu1", "b/gpu1", "a/gpu2"}));
}

TEST(Deployment, S1_F4_DeploymentsNeverMeetOnAGpuWithinAPlan) {
  const Fleet fleet{{gpu_node("a", 2), gpu_node("b", 2)}};
  const std::vector specs{gpu_spec("one", 2), gpu_spec("two", 2)};
  const Plan together = plan(specs, fleet);
  EXPECT_EQ(sorted(places(together)), (Words{"a/gpu0", "a/gpu1", "b/gpu0", "b/gpu1"}));
  // One after the other: the second plan starts from the assignments of the first.
  const Plan first = plan_one(specs[0], fleet);
  const Plan second = plan(specs, fleet, first.assignments);
  EXPECT_EQ(sorted(places(second)), (Words{"a/gpu0", "a/gpu1", "b/gpu0", "b/gpu1"}));
  for (const Action& action : second.actions) EXPECT_EQ(action.sign(), '+');
}

TEST(Deployment, S1_F5_SingleReplicasDoNotAllBeginOnTheFirstNode) {
  const Fleet fleet{{gpu_node("a", 4), gpu_node("b", 4), gpu_node("c", 4), egress_node("x"), egress_node("y")}};
  const std::vector local{gpu_spec("p", 1), gpu_spec("q", 1), gpu_spec("r", 1)};
  EXPECT_EQ(nodes_of(plan(local, fleet)), (Words{"a", "b", "c"}));
  const std::vector remote{remote_spec("p", 1), remote_spec("q", 1)};
  EXPECT_EQ(nodes_of(plan(remote, fleet)), (Words{"x", "y"}));
  const Fleet uneven{{gpu_node("a", 1), gpu_node("b", 8)}};
  EXPECT_EQ(nodes_of(plan_one(gpu_spec("d", 1), uneven)), Words{"b"}) << "most free capacity first";
  DeploymentSpec packed = gpu_spec("d", 3);
  packed.spread = Spread::pack;
  EXPECT_EQ(nodes_of(plan_one(packed, fleet)), (Words{"a", "a", "a"}));
  EXPECT_EQ(nodes_of(plan_one(packed, uneven)), (Words{"a", "b", "b"})) << "packing fills the fullest node first";
}

TEST(Deployment, S1_F6_EveryDeviceOfAnAssignmentIsOnItsNode) {
  const Fleet fleet{{gpu_node("a", 1), gpu_node("b", 4)}};
  const Plan plan = plan_one(gpu_spec("d", 1, 3), fleet);
  EXPECT_EQ(places(plan), Words{"b/gpu0 b/gpu1 b/gpu2"}) << "never more than a node has";
}

TEST(Deployment, S1_F7_ThePolicyOfTheSpecChoosesTheGpuOfTheNode) {
  // 24 GiB fit on either GPU; best_fit leaves the large one whole, spread takes it.
  Fleet fleet{{gpu_node("n", 1, 80)}};
  NodeView small = gpu_node("m", 1, 40);
  fleet.nodes[0].devices.push_back(small.devices[0]);
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.memory_bytes = 24 * gib;
  EXPECT_EQ(places(plan_one(spec, fleet)), Words{"m/gpu0"});
  spec.policy = "spread";
  EXPECT_EQ(places(plan_one(spec, fleet)), Words{"n/gpu0"});
}

TEST(Deployment, PoliciesOfLoadAndShareSpreadReplicasThatShareGpus) {
  const Fleet fleet{{gpu_node("n", 4)}};
  for (const char* policy : {"least_loaded", "weighted_capacity", "round_robin", "spread"}) {
    DeploymentSpec spec = gpu_spec("d", 4);
    spec.exclusive = false;
    spec.memory_bytes = 10 * gib;
    spec.policy = policy;
    EXPECT_EQ(sorted(places(plan_one(spec, fleet))), (Words{"n/gpu0", "n/gpu1", "n/gpu2", "n/gpu3"})) << policy;
  }
  Fleet held = fleet;
  for (std::size_t gpu = 0; gpu < 3; ++gpu) held.nodes[0].devices[gpu].holders = 1;
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.exclusive = false;
  spec.memory_bytes = 10 * gib;
  for (const char* policy : {"least_loaded", "weighted_capacity"}) {
    spec.policy = policy;
    EXPECT_EQ(places(plan_one(spec, held)), Words{"n/gpu3"}) << policy << ": leases of the machine count";
  }
}

// gpu0 and gpu2, and gpu1 and gpu3, are joined by NVLink; all others over the host.
NodeView node_of_two_pairs(const std::string& name) {
  NodeView node = gpu_node(name, 4);
  const auto link = [&](int a, int b, LinkKind kind) {
    node.links.push_back({node.devices[static_cast<std::size_t>(a)].info.id,
                          node.devices[static_cast<std::size_t>(b)].info.id, kind, kind == LinkKind::nvlink ? 4u : 0u,
                          true});
  };
  for (const auto& [a, b] : {std::pair(0, 1), std::pair(0, 3), std::pair(1, 2), std::pair(2, 3)})
    link(a, b, LinkKind::host_bridge);
  link(0, 2, LinkKind::nvlink);
  link(3, 1, LinkKind::nvlink);  // either end may come first
  return node;
}

TEST(Deployment, S1_F7_TheGpusOfAReplicaAreThoseThatNvlinkJoins) {
  const Fleet fleet{{node_of_two_pairs("n")}};
  EXPECT_EQ(places(plan_one(gpu_spec("d", 2, 2), fleet)), (Words{"n/gpu0 n/gpu2", "n/gpu1 n/gpu3"}));
  Fleet one_gone = fleet;
  one_gone.nodes[0].devices[0].intent = Intent::cordoned;
  EXPECT_EQ(places(plan_one(gpu_spec("d", 1, 2), one_gone)), Words{"n/gpu1 n/gpu3"});
  for (const char* policy : {"least_loaded", "spread", "round_robin"}) {
    DeploymentSpec spec = gpu_spec("d", 2, 2);
    spec.policy = policy;
    EXPECT_EQ(sorted(places(plan_one(spec, fleet))), (Words{"n/gpu0 n/gpu2", "n/gpu1 n/gpu3"})) << policy;
  }
}

TEST(Deployment, LinksToUnknownDevicesAreIgnored) {
  Fleet fleet{{gpu_node("n", 2)}};
  fleet.nodes[0].links = {{DeviceId("n/gpu0"), DeviceId("nowhere"), LinkKind::nvlink, 1, true},
                          {DeviceId("n/gpu0"), DeviceId("n/gpu0"), LinkKind::nvlink, 1, true}};
  EXPECT_EQ(places(plan_one(gpu_spec("d", 1, 2), fleet)), Words{"n/gpu0 n/gpu1"});
}

TEST(Deployment, S1_F8_AGpuDeploymentWithoutGpusNeedsExplicitCpuMode) {
  const Fleet fleet{{gpu_node("n", 2)}};
  const Plan refused = plan_one(gpu_spec("d", 1, 0), fleet);
  EXPECT_TRUE(refused.assignments.empty());
  EXPECT_EQ(only_reason(refused).kind, ReasonKind::zero_gpus);
  const Plan placed = plan_one(cpu_spec("d", 1), fleet);
  EXPECT_TRUE(placed.pending.empty());
  EXPECT_EQ(places(placed), Words{"n"});
}

TEST(Deployment, S1_F9_HealthTaintsLabelsMemoryAndCapabilityAreConstraints) {
  const auto kind = [](auto change_spec, auto change_node) {
    DeploymentSpec spec = gpu_spec("d", 2, 1);
    Fleet fleet{{gpu_node("n", 2)}};
    change_spec(spec);
    change_node(fleet.nodes[0]);
    const Plan plan = plan_one(spec, fleet);
    return plan.pending.empty() ? std::string("placed") : std::string(to_string(plan.pending[0].reason.kind));
  };
  const auto same = [](auto&) {};
  EXPECT_EQ(kind(same, same), "placed");
  EXPECT_EQ(kind(same, [](auto& n) { n.health = Health::lost; }), "not_in_service");
  EXPECT_EQ(kind(same, [](auto& n) { n.intent = Intent::cordoned; }), "not_in_service");
  EXPECT_EQ(kind(same, [](auto& n) { n.devices[1].health = Health::quarantined; }), "not_enough_gpus");
  EXPECT_EQ(kind(same, [](auto& n) { n.taints = {"spot"}; }), "taint");
  EXPECT_EQ(kind([](auto& s) { s.tolerates = {"spot"}; }, [](auto& n) { n.taints = {"spot"}; }), "placed");
  EXPECT_EQ(kind([](auto& s) { s.node_selector = {{"zone", "a"}}; }, same), "node_selector");
  EXPECT_EQ(kind([](auto& s) { s.node_selector = {{"zone", "a"}}; }, [](auto& n) { n.labels = {{"zone", "a"}}; }),
            "placed");
  EXPECT_EQ(kind([](auto& s) { s.device_labels = {{"nvlink", "yes"}}; }, same), "unfit_gpus");
  EXPECT_EQ(kind([](auto& s) { s.memory_bytes = 81 * gib; }, same), "unfit_gpus");
  EXPECT_EQ(kind([](auto& s) { s.memory_bytes = 1; },
                 [](auto& n) {
                   for (auto& device : n.devices) device.info.memory_bytes_total.reset();
                 }),
            "unfit_gpus")
      << "unknown memory is not enough memory";
  EXPECT_EQ(kind([](auto& s) { s.capability_min = Capability{9, 1}; }, same), "unfit_gpus");
  EXPECT_EQ(kind([](auto& s) { s.spread = Spread::one_per_node; }, same), "one_per_node");
}

TEST(Deployment, S1_F12_AllStartTogetherOrBestEffortWithAPendingList) {
  const Fleet fleet{{gpu_node("n", 3)}};
  DeploymentSpec spec = gpu_spec("d", 5);
  const Plan none = plan_one(spec, fleet);
  EXPECT_TRUE(none.assignments.empty());
  EXPECT_EQ(none.pending.at(0).replicas, (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_NE(only_reason(none).text.find("3 of 5 would fit"), std::string::npos);
  spec.on_shortage = OnShortage::best_effort;
  const Plan some = plan_one(spec, fleet);
  EXPECT_EQ(some.assignments.size(), 3u);
  EXPECT_EQ(some.pending.at(0).replicas, (std::vector<std::uint32_t>{3, 4}));
  EXPECT_EQ(only_reason(some).kind, ReasonKind::not_enough_gpus);
}

TEST(Deployment, S1_F14_EveryReasonCarriesASentence) {
  const NodeView node = gpu_node("n", 2);
  NodeView tainted = node, cordoned = node, draining = node;
  tainted.taints = {"spot"};
  cordoned.intent = Intent::cordoned;
  draining.intent = Intent::draining;
  DeploymentSpec newer = gpu_spec("d", 1), labelled = newer, single = gpu_spec("d", 2), odd = newer, large = newer;
  newer.runtime = runtime_from("quantum_link");
  labelled.node_selector = {{"zone", "a"}};
  single.spread = Spread::one_per_node;
  odd.cpu = true;
  large.memory_bytes = 81 * gib;
  const std::vector<Plan> plans{
      plan_one(gpu_spec("d", 1), {{gpu_node("n", 0)}}),
      plan_one(remote_spec("d", 1), {{node}}),
      plan_one(gpu_spec("d", 3), {{node}}),
      plan_one(cpu_spec("d", 1, 999), {{node}}),
      plan_one(newer, {{node}}),
      plan_one(gpu_spec("d", 1, 0), {{node}}),
      plan_one(odd, {{node}}),
      plan_one(cpu_spec("d", 1), {}),
      plan_one(labelled, {{node}}),
      plan_one(gpu_spec("d", 1), {{tainted}}),
      plan_one(gpu_spec("d", 1), {{cordoned}}),
      plan_one(large, {{node}}),
      plan_one(single, {{node}}),
      plan_one(gpu_spec("d", 1), {{draining}}, plan_one(gpu_spec("d", 1), {{node}}).assignments),
      plan(std::vector{gpu_spec("d", 1)}, {{node}}, {}, {}, {{}, {}, {{DeploymentId("d"), NodeId("n")}}})};
  std::set<ReasonKind> kinds;
  for (const Plan& plan : plans) {
    kinds.insert(only_reason(plan).kind);
    EXPECT_GT(only_reason(plan).text.size(), 10u) << to_string(only_reason(plan).kind);
  }
  EXPECT_EQ(kinds.size(), static_cast<std::size_t>(ReasonKind::refused) + 1) << "every kind there is";
}

TEST(Deployment, X_F2_PlacementSeesWhatThePlanHasGivenOut) {
  // The second replica is chosen by a policy that sees the first one's bytes.
  DeploymentSpec spec = gpu_spec("d", 4);
  spec.exclusive = false;
  spec.memory_bytes = 30 * gib;
  const Fleet fleet{{gpu_node("n", 2)}};
  EXPECT_EQ(places(plan_one(spec, fleet)), (Words{"n/gpu0", "n/gpu1", "n/gpu0", "n/gpu1"}));
  spec.spread = Spread::pack;
  EXPECT_EQ(places(plan_one(spec, fleet)), (Words{"n/gpu0", "n/gpu0", "n/gpu1", "n/gpu1"}));
  spec.replicas = 5;
  EXPECT_EQ(only_reason(plan_one(spec, fleet)).kind, ReasonKind::not_enough_gpus);
}

TEST(Deployment, SharedAndExclusiveReplicasNeverMeet) {
  DeploymentSpec shared = gpu_spec("shared", 2);
  shared.exclusive = false;
  shared.memory_bytes = 10 * gib;
  shared.spread = Spread::pack;
  const std::vector specs{shared, gpu_spec("whole", 1)};
  EXPECT_EQ(places(plan(specs, {{gpu_node("n", 2)}})), (Words{"n/gpu0", "n/gpu0", "n/gpu1"}));
  EXPECT_EQ(plan(specs, {{gpu_node("n", 1)}}).assignments.size(), 2u);
}

TEST(Deployment, ForeignMemoryIsNotPromised) {
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.memory_bytes = 60 * gib;
  Fleet fleet{{gpu_node("n", 1)}};
  EXPECT_TRUE(plan_one(spec, fleet).pending.empty());
  fleet.nodes[0].devices[0].memory_bytes_used = 21 * gib;
  EXPECT_EQ(only_reason(plan_one(spec, fleet)).kind, ReasonKind::not_enough_gpus);
  EXPECT_EQ(only_reason(plan_one(spec, fleet)).text,
            "no node has 1 GPU with 60.0 GiB unused by others; the nearest, n, has 0 (n/gpu0: needs 60.0 GiB, "
            "59.0 GiB available)");
}

TEST(Deployment, PartitionsOfOneGpuShareItsBytes) {
  Fleet fleet{{gpu_node("n", 2)}};
  for (NodeDevice& device : fleet.nodes[0].devices) device.info.memory_domain = "GPU-1";
  DeploymentSpec spec = gpu_spec("d", 1, 2);
  spec.memory_bytes = 40 * gib;
  EXPECT_EQ(plan_one(spec, fleet).assignments.size(), 1u);
  spec.memory_bytes = 41 * gib;
  EXPECT_TRUE(plan_one(spec, fleet).assignments.empty());
}

TEST(Deployment, TheProcessorIsNoGpu) {
  Fleet fleet{{gpu_node("n", 2)}};
  fleet.nodes[0].devices[0].info.backend = "host";
  fleet.nodes[0].devices[1].info.is_fallback = true;
  EXPECT_EQ(only_reason(plan_one(gpu_spec("d", 1), fleet)).kind, ReasonKind::no_gpu_nodes);
  EXPECT_TRUE(plan_one(cpu_spec("d", 1), fleet).pending.empty());
}

TEST(Deployment, CpuReplicasSpreadOverNodesWithinTheirMemory) {
  const Fleet fleet{{gpu_node("a", 0), gpu_node("b", 0)}};  // 256 GiB each
  EXPECT_EQ(nodes_of(plan_one(cpu_spec("d", 3, 100), fleet)), (Words{"a", "b", "a"}));
  EXPECT_EQ(only_reason(plan_one(cpu_spec("d", 5, 100), fleet)).kind, ReasonKind::not_enough_memory);
  EXPECT_EQ(only_reason(plan_one(cpu_spec("d", 1), {})).kind, ReasonKind::no_nodes);
}

TEST(Deployment, PriorityIsServedFirstAndDoesNotEvict) {
  const Fleet fleet{{gpu_node("n", 1)}};
  std::vector specs{gpu_spec("a-low", 1), gpu_spec("z-high", 1)};
  specs[0].priority = Priority::low;
  specs[1].priority = Priority::high;
  EXPECT_EQ(plan(specs, fleet).assignments.at(0).deployment, DeploymentId("z-high"));
  const Plan low = plan_one(specs[0], fleet);
  EXPECT_EQ(plan(specs, fleet, low.assignments).assignments.at(0).deployment, DeploymentId("a-low"));
}

TEST(Deployment, LargeNeedsAreServedBeforeSmallOnes) {
  const std::vector specs{gpu_spec("a", 3), gpu_spec("b", 1, 4)};
  const Plan plan = deployment::plan(specs, {{gpu_node("x", 4), gpu_node("y", 3)}});
  EXPECT_TRUE(plan.pending.empty()) << plan_to_text(plan);
}

// Two machines of one kind give their devices the same ids.
TEST(Deployment, ADeviceIsIdentifiedByItsNodeAndItsId) {
  NodeView a = gpu_node("a", 2), b = gpu_node("b", 2);
  for (NodeView* const node : {&a, &b}) {
    for (std::size_t i = 0; i < 2; ++i) {
      node->devices[i].info.id = DeviceId("gpu-opencl-" + std::to_string(i));
      node->devices[i].info.memory_domain = node->devices[i].info.id.text();
    }
  }
  const Plan all = plan_one(gpu_spec("d", 4), {{a, b}});
  EXPECT_TRUE(all.pending.empty());
  EXPECT_EQ(sorted(nodes_of(all)), (Words{"a", "a", "b", "b"}));
  EXPECT_TRUE(plan_one(gpu_spec("d", 4), {{a, b}}, all.assignments).actions.empty());

  // A node that reports the devices of another one as lost takes nothing away from it.
  NodeView liar = b;
  liar.id = NodeId("0-liar");
  for (NodeDevice& device : liar.devices) device.health = Health::lost;
  const Plan beside = plan_one(gpu_spec("d", 4), {{liar, a, b}});
  EXPECT_TRUE(beside.pending.empty());
  EXPECT_EQ(sorted(nodes_of(beside)), (Words{"a", "a", "b", "b"}));
}

TEST(Deployment, OfTwoDevicesOfANodeWithOneIdTheFirstCounts) {
  NodeView node = gpu_node("n", 2);
  node.devices[1].info.id = node.devices[0].info.id;
  DeploymentSpec spec = gpu_spec("d", 2);
  spec.on_shortage = OnShortage::best_effort;
  const Plan plan = plan_one(spec, {{node}});
  EXPECT_EQ(places(plan), Words{"n/gpu0"});
  EXPECT_EQ(plan.pending.size(), 1u);
}

}  // namespace
}  // namespace berth::deployment
