#include <gtest/gtest.h>

#include "server/test_leader.hpp"

namespace berth::server {
namespace {

TEST_F(LeaderTest, TheInventoryOfANodeThatJoinsAgainIsKeptAgain) {
  const auto kept = [&] { return leader_.state().nodes.at(node_).inventory; };
  ASSERT_TRUE(report("a-1", 1, 100));
  const std::string before = kept();
  EXPECT_FALSE(before.empty());
  ASSERT_TRUE(leader_.set_intent(node_, Intent::draining, "user:ann"));
  ASSERT_TRUE(leader_.forget_node(node_, "user:ann"));
  join();
  EXPECT_EQ(kept(), "");
  ASSERT_TRUE(report("a-2", 1, 100));
  EXPECT_EQ(kept(), before);
}

TEST_F(LeaderTest, ANodeThatJoinsAgainIsNotHeldToItsEarlierRefusals) {
  deploy({});
  fleet::ReplicaReport refused;
  refused.key = leader_.orders(node_).orders.at(0).assigned.key();
  refused.state = fleet::ReplicaState::refused;
  ASSERT_TRUE(report("a-1", 2, 100, 0, {refused}));
  ASSERT_TRUE(leader_.step());
  ASSERT_TRUE(leader_.orders(node_).orders.empty()) << "the node is avoided for a while";
  ASSERT_TRUE(leader_.set_intent(node_, Intent::draining, "user:ann"));
  ASSERT_TRUE(leader_.forget_node(node_, "user:ann"));
  join();
  ASSERT_TRUE(report("a-2", 1, 100));
  ASSERT_TRUE(leader_.step());
  EXPECT_EQ(leader_.orders(node_).orders.size(), 1u) << "the node may be another machine now";
}

TEST_F(LeaderTest, ANodeThatCouldNotBeRemovedIsStillHeard) {
  ASSERT_TRUE(report("a-1", 1, 100));
  ASSERT_TRUE(leader_.set_intent(node_, Intent::draining, "user:ann"));
  engine_->fail_after(0, store::FailingEngine::Failure::lost);
  EXPECT_NE(leader_.forget_node(node_, "user:ann").error().code, ErrorCode::already_exists);
  engine_->recover();
  EXPECT_EQ(leader_.health(node_), controller::NodeHealth::healthy);
  ASSERT_NE(leader_.last_report(node_), nullptr);
}

TEST_F(LeaderTest, AConnectedNodeIsRemovedOnlyWhenItIsDrainedAndEmpty) {
  deploy({});
  const auto refusal = [&] {
    const Result<void> removed = leader_.forget_node(node_, "user:ann");
    return removed ? "" : removed.error().to_text();
  };
  EXPECT_EQ(refusal(), "gpu-1 is connected and runs replicas; drain it first: berth drain node/gpu-1");
  ASSERT_TRUE(leader_.set_intent(node_, Intent::draining, "user:ann"));
  EXPECT_NE(refusal(), "") << "its replica has not ended yet";
  ASSERT_TRUE(leader_.remove(DeploymentId("batch"), "user:ann"));
  ASSERT_TRUE(leader_.step());
  fleet::ReplicaReport gone;
  gone.key = leader_.orders(node_).orders.at(0).assigned.key();
  gone.state = fleet::ReplicaState::gone;
  ASSERT_TRUE(report("a-1", 2, 100, 0, {gone}));
  ASSERT_TRUE(leader_.step());
  ASSERT_TRUE(leader_.orders(node_).orders.empty());
  for (const Intent intent : {Intent::in_service, Intent::cordoned}) {
    ASSERT_TRUE(leader_.set_intent(node_, intent, "user:ann"));
    EXPECT_EQ(refusal(),
              "gpu-1 is connected and not drained; drain it first: berth drain node/gpu-1, or stop its agent and wait "
              "until it is lost");
  }
  ASSERT_TRUE(leader_.set_intent(node_, Intent::draining, "user:ann"));
  EXPECT_EQ(refusal(), "");
  EXPECT_FALSE(leader_.state().nodes.contains(node_));
}

TEST_F(LeaderTest, ALostNodeIsRemovedWithoutADrain) {
  ASSERT_TRUE(report("a-1", 1, 100));
  EXPECT_FALSE(leader_.forget_node(node_, "user:ann"));
  lose_node();
  EXPECT_TRUE(leader_.forget_node(node_, "user:ann"));
}

TEST_F(LeaderTest, TheCredentialOfTheMachineBeforeDoesNotSpeakForAJoinedNode) {
  ASSERT_TRUE(report("first", 1, 1));
  lose_node();
  add_join_token("t7", node_);
  ASSERT_TRUE(join_with("t7", "t8"));
  EXPECT_FALSE(leader_.state().credentials.contains("t1")) << "the credential of the earlier machine";
  EXPECT_FALSE(leader_.state().credentials.contains("t7")) << "a join token can be used once";
  EXPECT_TRUE(leader_.state().credentials.contains("t8"));
}

TEST_F(LeaderTest, AGatewayChangesItsAddressRarely) {
  fleet::Credential gateway;
  gateway.id = "g1";
  gateway.role = fleet::Role::gateway;
  gateway.name = "edge";
  ASSERT_TRUE(leader_.add_gateway(gateway, "", "test"));
  ASSERT_TRUE(leader_.set_gateway_address("g1", ":8081"));
  const std::uint64_t changes = leader_.change_count();
  for (int port = 9000; port < 9100; ++port)
    EXPECT_FALSE(leader_.set_gateway_address("g1", ":" + std::to_string(port)));
  EXPECT_TRUE(leader_.set_gateway_address("g1", ":8081")) << "the same address again";
  EXPECT_EQ(leader_.change_count(), changes);
  clock_.advance(10s);
  EXPECT_TRUE(leader_.set_gateway_address("g1", ":9000"));
  EXPECT_EQ(leader_.state().credentials.at("g1").address, ":9000");
}

TEST_F(LeaderTest, ANewTokenRemovesTheExpiredOnes) {
  const auto add = [&](const char* id, std::uint64_t made_ms, std::optional<std::uint64_t> expires_ms) {
    fleet::Credential token;
    token.id = id;
    token.made_ms = made_ms;
    token.expires_ms = expires_ms;
    EXPECT_TRUE(leader_.add_credential(token, "user:ann"));
  };
  add("t7", 1'000, 2'000);
  add("t8", 1'000, 3'000);
  add("t9", 1'000, std::nullopt);
  ASSERT_TRUE(leader_.state().credentials.contains("t7"));
  add("t10", 2'500, std::nullopt);
  EXPECT_FALSE(leader_.state().credentials.contains("t7"));
  for (const char* id : {"t8", "t9", "t10"}) EXPECT_TRUE(leader_.state().credentials.contains(id)) << id;
}

TEST_F(LeaderTest, ALostNodeIsReplacedOnlyWithATokenThatWasMadeForIt) {
  ASSERT_TRUE(report("first", 1, 1));
  add_join_token("t7", node_);
  EXPECT_EQ(join_with("t7", "t8").error().code, ErrorCode::already_exists) << "the node is alive";
  lose_node();
  add_join_token("t9", std::nullopt);
  add_join_token("t10", NodeId("other"));
  for (const char* token : {"t9", "t10", "none"}) {
    EXPECT_EQ(join_with(token, "t11").error().code, ErrorCode::already_exists) << token;
    EXPECT_TRUE(leader_.state().credentials.contains("t1"));
  }
  EXPECT_TRUE(join_with("t7", "t8"));
}

TEST_F(LeaderTest, ANodeThatHasObeyedALaterServerIsTold) {
  const auto report_epoch = [&](std::uint64_t number, std::uint64_t seen) {
    LastReport last;
    last.report.node.id = node_;
    last.report.agent = "a";
    last.report.number = number;
    last.report.epoch_seen = seen;
    EXPECT_TRUE(leader_.take_report(std::move(last)));
  };
  const auto event_count = [&] {
    return std::count_if(leader_.recent_events().begin(), leader_.recent_events().end(), [](const fleet::Event& event) {
      return event.text.find("ignores this server of epoch") != std::string::npos;
    });
  };
  report_epoch(1, leader_.epoch());
  EXPECT_FALSE(leader_.later_epoch(node_));
  EXPECT_EQ(event_count(), 0);
  for (std::uint64_t number = 2; number < 10; ++number) report_epoch(number, leader_.epoch() + 5 * number);
  EXPECT_EQ(leader_.later_epoch(node_), leader_.epoch() + 45);
  EXPECT_EQ(event_count(), 1) << "one event, whatever the node reports";
  EXPECT_NE(leader_.node_problem(node_).find("it ignores this server"), std::string::npos);
  ASSERT_EQ(leader_.warnings().size(), 1u);
  EXPECT_NE(leader_.warnings().at("store").find("1 node ignores this server"), std::string::npos);
}

TEST_F(LeaderTest, AProblemOfANodeIsAnEventWhenItChanges) {
  Leader* leader = &leader_;
  auto report_problem = [&, number = std::uint64_t{0}](const std::string& problem) mutable {
    LastReport last;
    last.report.node.id = node_;
    last.report.agent = "a";
    last.report.number = ++number;
    last.report.epoch = 1;
    last.report.problem = problem;
    EXPECT_TRUE(leader->take_report(std::move(last)));
  };
  // The events since the last call.
  auto events = [&, seen = leader_.state().last_event]() mutable {
    std::string text;
    for (const fleet::Event& event : leader->recent_events()) {
      if (event.id <= seen || event.actor != "node:gpu-1") continue;
      seen = event.id;
      text += std::string(to_string(event.kind)) + " " + event.actor + " " + event.subject + ": " + event.text + "\n";
    }
    return text;
  };
  const std::string old = "the gateway at 10.0.0.5:8081 uses another protocol";
  report_problem("");
  EXPECT_EQ(events(), "");
  for (int i = 0; i < 3; ++i) report_problem(old);
  EXPECT_EQ(events(), "node node:gpu-1 node/gpu-1: gpu-1: " + old + "\n") << "once";
  for (int i = 0; i < 3; ++i) report_problem("");
  EXPECT_EQ(events(), "node node:gpu-1 node/gpu-1: gpu-1 no longer reports a problem\n");
  report_problem(old);
  EXPECT_NE(events(), "");
  leader_.end();
  Leader next = Leader::begin(store::Store::open(engine_).value(), "server-2", clock_, {}).value();
  leader = &next;
  report_problem(old);
  EXPECT_EQ(events(), "") << "the previous server has recorded the event";
  for (int i = 0; i < 3; ++i) leader->refuse_report(node_, "it is not valid");
  EXPECT_EQ(events(), "node node:gpu-1 node/gpu-1: gpu-1: its last report was refused: it is not valid\n");
  const std::uint64_t before = leader->state().last_event;
  for (std::uint32_t i = 0; i < 2 * EventLimit::at_once; ++i) report_problem("problem " + std::to_string(i));
  EXPECT_LE(leader->state().last_event - before, EventLimit::at_once + 1) << "a node cannot fill the history";
}

TEST_F(LeaderTest, ANodeIsRemovedOnlyWhenItsSingleReplicasMustHaveEnded) {
  DeploymentSpec spec;
  spec.single = true;
  spec.stop_after = 300s;
  spec.replace_after = 320s;
  deploy(spec);
  clock_.advance(319s);
  ASSERT_EQ(leader_.health(node_), controller::NodeHealth::lost);
  const Result<void> early = leader_.forget_node(node_, "user:ann");
  ASSERT_FALSE(early) << "another replica would start while this one may run";
  EXPECT_EQ(early.error().code, ErrorCode::already_exists);
  clock_.advance(1s);
  EXPECT_TRUE(leader_.forget_node(node_, "user:ann"));
}

// An updated node gives a device another id and reports the former one.
TEST_F(LeaderTest, WhatWasDecidedUnderAFormerIdStaysWithTheDevice) {
  const DeviceId former("opencl/pocl/basic-a-very-long-processor-name.0"), now("cpu-opencl-0");
  const auto with_device = [&](const DeviceId& id, std::vector<fleet::ReplicaReport> replicas) {
    LastReport last;
    last.report.node.id = node_;
    NodeDevice& device = last.report.node.devices.emplace_back();
    device.info.id = id;
    device.info.backend = "opencl";
    device.info.memory_bytes_total = 1000;
    if (id == now) device.info.former_id = former;
    last.report.agent = "a-" + id.text();
    last.report.epoch = 1;
    last.report.replicas = std::move(replicas);
    return leader_.take_report(std::move(last));
  };
  ASSERT_TRUE(with_device(former, {}));
  DeploymentSpec spec;
  spec.name = DeploymentId("chat");
  spec.model = "llama-3.1-8b";
  spec.command = {"serve"};
  spec.gpus = 1;
  Project project;
  project.cluster.name = "lab";
  project.deployments.push_back(spec);
  ASSERT_TRUE(leader_.apply(project, std::nullopt, "user:ann"));
  ASSERT_TRUE(leader_.step());
  ASSERT_EQ(leader_.orders(node_).orders.size(), 1u);
  const fleet::Assigned before = leader_.orders(node_).orders[0].assigned;
  EXPECT_EQ(before.place.devices, std::vector{former});
  ASSERT_TRUE(leader_.set_device_intent(node_, former, {Intent::cordoned, "user:ann", "noise"}));
  const std::size_t events = leader_.recent_events().size();

  fleet::ReplicaReport ready;
  ready.key = before.key();
  ready.state = fleet::ReplicaState::ready;
  ASSERT_TRUE(with_device(now, {ready}));
  ASSERT_TRUE(leader_.step());
  ASSERT_EQ(leader_.orders(node_).orders.size(), 1u);
  const fleet::Assigned after = leader_.orders(node_).orders[0].assigned;
  EXPECT_EQ(after.place.devices, std::vector{now});
  EXPECT_EQ(after.key(), before.key()) << "the same incarnation";
  EXPECT_FALSE(after.stopping);
  ASSERT_TRUE(leader_.state().nodes.at(node_).devices.contains(now)) << "the cordon still applies";
  EXPECT_EQ(leader_.state().nodes.at(node_).devices.at(now).reason, "noise");
  EXPECT_EQ(leader_.state().nodes.at(node_).devices.size(), 1u);
  for (std::size_t i = events; i < leader_.recent_events().size(); ++i)
    EXPECT_EQ(leader_.recent_events()[i].kind, fleet::EventKind::ready) << leader_.recent_events()[i].text;

  // Later commands with the former id also apply.
  ASSERT_TRUE(leader_.set_device_intent(node_, former, {Intent::in_service, "user:ann", {}}));
  EXPECT_TRUE(leader_.state().nodes.at(node_).devices.empty());
}

TEST_F(LeaderTest, TheFirstReportOfANodeThatJoinsLaterIsNoReturn) {
  ASSERT_TRUE(report("a-1", 1, 100));
  ASSERT_TRUE(leader_.step());
  clock_.advance(10s);
  const NodeId late("gpu-2");
  fleet::Credential credential;
  credential.id = "t2";
  credential.role = fleet::Role::node;
  credential.node = late;
  ASSERT_TRUE(leader_.add_node(late, credential, "", "test"));
  EXPECT_EQ(leader_.health(late), controller::NodeHealth::healthy);
  ASSERT_TRUE(leader_.step());
  LastReport first;
  first.report.node.id = late;
  first.report.agent = "a-2";
  first.report.number = first.report.epoch = 1;
  ASSERT_TRUE(leader_.take_report(std::move(first)));
  ASSERT_TRUE(leader_.step());
  std::vector<std::string> texts;
  for (const fleet::Event& event : leader_.recent_events())
    if (event.subject == "node/gpu-2") texts.push_back(event.text);
  EXPECT_EQ(texts, (std::vector<std::string>{"gpu-2 joined", "gpu-2 is part of the fleet"}));
}

TEST_F(LeaderTest, PuttingANodeInServiceThatIsInServiceIsNoEvent) {
  const std::string before = leader_.recent_events().back().text;
  EXPECT_TRUE(leader_.set_intent(node_, Intent::in_service, "user:ann"));
  EXPECT_EQ(leader_.recent_events().back().text, before);
  EXPECT_TRUE(leader_.set_intent(node_, Intent::cordoned, "user:ann"));
  EXPECT_TRUE(leader_.set_intent(node_, Intent::in_service, "user:ann"));
  EXPECT_EQ(leader_.recent_events().back().text, "gpu-1 is in service");
}

}  // namespace
}  // namespace berth::server
