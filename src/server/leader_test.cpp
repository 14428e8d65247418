#include "server/leader.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "berth/fake_clock.hpp"
#include "store/memory_engine.hpp"
#include "store/records.hpp"
#include "store/test_failing_engine.hpp"

namespace berth::server {
namespace {

using namespace std::chrono_literals;

class LeaderTest : public testing::Test {
 protected:
  LeaderTest() { join(); }

  void join() {
    fleet::Credential credential;
    credential.id = "t1";
    credential.role = fleet::Role::node;
    credential.node = node_;
    EXPECT_TRUE(leader_.add_node(node_, credential, "", "test"));
  }

  // As a machine that joins with the token of this id.
  Result<void> join_with(const std::string& token, const std::string& id) {
    fleet::Credential credential;
    credential.id = id;
    credential.role = fleet::Role::node;
    credential.node = node_;
    return leader_.add_node(node_, credential, token, "test");
  }
  // Time passes in which this server leads and the node is silent.
  void lose_node() {
    for (int i = 0; i < 100 && leader_.health(node_) != controller::NodeHealth::lost; ++i) {
      clock_.advance(5s);
      EXPECT_TRUE(leader_.renew());
    }
    EXPECT_EQ(leader_.health(node_), controller::NodeHealth::lost);
  }
  void add_join_token(const std::string& id, std::optional<NodeId> node) {
    fleet::Credential token;
    token.id = id;
    token.role = fleet::Role::join;
    token.node = std::move(node);
    EXPECT_TRUE(leader_.add_credential(token, "test"));
  }

  Result<void> report(const std::string& agent, std::uint64_t number, std::uint64_t memory_bytes,
                      std::uint64_t start_ms = 0, std::vector<fleet::ReplicaReport> replicas = {}) {
    Heard heard;
    heard.report.node.id = node_;
    heard.report.node.memory_bytes = memory_bytes;
    heard.report.agent = agent;
    heard.report.agent_start_monotonic_ms = start_ms;
    heard.report.number = number;
    heard.report.epoch = 1;
    heard.report.replicas = std::move(replicas);
    return leader_.take_report(std::move(heard));
  }
  // One replica without a GPU, which the node gets.
  void deploy(DeploymentSpec spec) {
    spec.name = DeploymentId("batch");
    spec.model = "llama-3.1-8b";
    spec.command = {"serve"};
    spec.cpu = true;
    Project project;
    project.cluster.name = "lab";
    project.deployments.push_back(std::move(spec));
    EXPECT_TRUE(report("a-1", 1, 100));
    EXPECT_TRUE(leader_.apply(project, std::nullopt, "user:ann"));
    EXPECT_TRUE(leader_.step());
    EXPECT_EQ(leader_.orders(node_).orders.size(), 1u);
  }
  std::optional<std::uint64_t> known_bytes() const { return leader_.heard(node_)->report.node.memory_bytes; }

  const NodeId node_{"gpu-1"};
  FakeClock clock_;
  std::shared_ptr<store::FailingEngine> engine_ =
      std::make_shared<store::FailingEngine>(store::make_memory_engine(clock_));
  Leader leader_ = Leader::begin(store::Store::open(engine_).value(), "server-1", clock_, {}).value();
};

TEST_F(LeaderTest, ALateReportDoesNotReplaceANewerOne) {
  EXPECT_TRUE(report("a-1", 5, 500));
  EXPECT_TRUE(report("a-1", 4, 400));
  EXPECT_EQ(known_bytes(), 500u);
  EXPECT_TRUE(report("a-1", 6, 600));
  EXPECT_EQ(known_bytes(), 600u);
}

TEST_F(LeaderTest, AnAgentThatWasStartedAgainCountsAnew) {
  EXPECT_TRUE(report("a-1", 5, 500));
  EXPECT_TRUE(report("a-2", 1, 100));
  EXPECT_EQ(known_bytes(), 100u);
}

TEST_F(LeaderTest, ALateReportOfAnEarlierStartDoesNotReplaceOneOfALaterStart) {
  EXPECT_TRUE(report("a-1", 1, 100, 1'000));
  EXPECT_TRUE(report("a-2", 1, 200, 2'000));
  const Result<void> late = report("a-1", 1, 100, 1'000);
  ASSERT_FALSE(late) << "who sent it must not take itself for heard";
  EXPECT_EQ(late.error().code, ErrorCode::unavailable);
  EXPECT_EQ(known_bytes(), 200u);
}

TEST_F(LeaderTest, AnEarlierStartSpeaksForItsNodeAgainWhenTheLaterOneIsSilent) {
  EXPECT_TRUE(report("a-2", 1, 200, 2'000));
  clock_.advance(7s);
  EXPECT_TRUE(report("a-1", 1, 100, 1'000));
  EXPECT_EQ(known_bytes(), 100u);
}

TEST_F(LeaderTest, AnAgentThatDoesNotSayWhenItWasStartedIsTakenForTheLaterOne) {
  EXPECT_TRUE(report("a-1", 1, 100, 1'000));
  EXPECT_TRUE(report("a-2", 1, 200, 0));
  EXPECT_EQ(known_bytes(), 200u);
}

TEST_F(LeaderTest, ReportsWithoutNumbersAreTakenAsTheyCome) {
  EXPECT_TRUE(report("a-1", 0, 100));
  EXPECT_TRUE(report("a-1", 0, 200));
  EXPECT_EQ(known_bytes(), 200u);
}

TEST_F(LeaderTest, AChangeWhoseAnswerWasLostIsSeen) {
  engine_->fail_after(0, store::FailingEngine::Failure::unheard);
  EXPECT_FALSE(leader_.set_intent(node_, Intent::draining, "user:ann"));
  EXPECT_EQ(leader_.state().nodes.at(node_).intent, Intent::draining);
}

TEST_F(LeaderTest, NothingIsDecidedOnAStateThatMayBeOld) {
  engine_->fail_lists(true, 1);  // the one after the commit
  EXPECT_FALSE(leader_.set_intent(node_, Intent::draining, "user:ann"));
  EXPECT_EQ(leader_.state().nodes.at(node_).intent, Intent::in_service) << "it could not be read";
  EXPECT_FALSE(leader_.step());
  EXPECT_FALSE(leader_.forget_node(node_, "user:ann"));
  engine_->fail_lists(false);
  const Result<void> old = leader_.forget_node(node_, "user:ann");
  ASSERT_FALSE(old) << "it was decided on what was known before";
  EXPECT_EQ(old.error().code, ErrorCode::stale_handle);
  EXPECT_EQ(leader_.state().nodes.at(node_).intent, Intent::draining);
  EXPECT_TRUE(leader_.forget_node(node_, "user:ann"));
}

TEST_F(LeaderTest, AFormerLeaderDoesNotSpeakForItsSuccessor) {
  clock_.advance(16s);
  Leader next = Leader::begin(store::Store::open(engine_).value(), "server-2", clock_, {}).value();
  ASSERT_TRUE(next.set_intent(node_, Intent::draining, "user:ann"));
  const std::uint64_t epoch = leader_.epoch();
  const Result<void> late = leader_.set_intent(node_, Intent::cordoned, "user:ann");
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::unavailable);
  EXPECT_EQ(leader_.epoch(), epoch);
  EXPECT_EQ(leader_.orders(node_).epoch, epoch);
  EXPECT_EQ(leader_.state().epoch, epoch) << "nor does it know what that one decided";
  EXPECT_EQ(next.state().nodes.at(node_).intent, Intent::draining);
}

// Its node could take itself for heard, and go on with what another server replaces.
TEST_F(LeaderTest, AReportIsTakenOnlyWhileItLeadsForSure) {
  clock_.advance(14s);
  EXPECT_TRUE(report("a-1", 1, 100));
  clock_.advance(2s);
  const Result<void> late = report("a-1", 2, 100);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(leader_.renew());
  EXPECT_TRUE(report("a-1", 3, 100));
}

TEST_F(LeaderTest, AStoreThatFailsForAMomentIsShownAndAskedAgain) {
  engine_->fail_lists(true);
  EXPECT_TRUE(leader_.renew()) << "no other server can lead yet";
  EXPECT_TRUE(leader_.problem().ends_with("the planted failure")) << leader_.problem();
  EXPECT_TRUE(leader_.step()) << "there is nothing to commit";
  EXPECT_NE(leader_.problem(), "") << "that the step needs no store does not make it work";
  engine_->fail_lists(false);
  EXPECT_TRUE(leader_.renew());
  EXPECT_EQ(leader_.problem(), "");
}

TEST_F(LeaderTest, AStoreThatFailsForLongerThanItLeadsEndsIt) {
  clock_.advance(10s);
  EXPECT_TRUE(leader_.renew());
  engine_->fail_lists(true);
  clock_.advance(14s);
  EXPECT_TRUE(leader_.renew());
  clock_.advance(2s);
  const Result<void> over = leader_.renew();
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().message, "the planted failure");
}

TEST_F(LeaderTest, ALeaderThatAnotherOneReplacedEndsAtOnce) {
  clock_.advance(16s);
  Leader next = Leader::begin(store::Store::open(engine_).value(), "server-2", clock_, {}).value();
  const Result<void> replaced = leader_.renew();
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(next.renew());
}

TEST_F(LeaderTest, TheInventoryOfANodeThatJoinsAgainIsKeptAgain) {
  const auto kept = [&] { return leader_.state().nodes.at(node_).inventory; };
  ASSERT_TRUE(report("a-1", 1, 100));
  const std::string before = kept();
  EXPECT_FALSE(before.empty());
  ASSERT_TRUE(leader_.forget_node(node_, "user:ann"));
  join();
  EXPECT_EQ(kept(), "");
  ASSERT_TRUE(report("a-2", 1, 100));
  EXPECT_EQ(kept(), before);
}

TEST_F(LeaderTest, AnUnchangedProjectIsAcceptedOnlyWhereAllThatIsCommittedIsKnown) {
  Project one, two;
  one.cluster.name = two.cluster.name = "lab";
  two.deployments.emplace_back().name = DeploymentId("batch");
  two.deployments.back().model = "llama-3.1-8b";
  two.deployments.back().command = {"serve"};
  two.deployments.back().cpu = true;
  ASSERT_TRUE(leader_.apply(one, std::nullopt, "user:ann"));
  const auto is_there = [&] {
    return store::Store::open(engine_).value()->load().value().desired.deployments.contains(DeploymentId("batch"));
  };
  engine_->fail_after(0, store::FailingEngine::Failure::unheard);
  engine_->fail_lists(true, 1);
  ASSERT_FALSE(leader_.apply(two, std::nullopt, "user:ann"));
  engine_->fail_lists(false);
  engine_->recover();
  ASSERT_TRUE(is_there()) << "it was committed, and the server did not hear of it";
  const auto again = [&] { return leader_.apply(one, std::nullopt, "user:ann").has_value(); };
  for (int tries = 0; tries < 3 && !again(); ++tries) continue;
  EXPECT_FALSE(is_there()) << "the change was accepted";

  Leader next = Leader::begin(store::Store::open(engine_).value(), "server-1", clock_, {}).value();
  EXPECT_FALSE(leader_.apply(one, std::nullopt, "user:ann")) << "another server leads";
}

TEST_F(LeaderTest, AReportIsNotTakenWhileTheStoreMayHaveNewerOrders) {
  deploy({});
  const std::uint64_t number = leader_.orders_number(node_);
  Project nothing;
  nothing.cluster.name = "lab";
  ASSERT_TRUE(leader_.apply(nothing, std::nullopt, "user:ann"));
  engine_->fail_after(0, store::FailingEngine::Failure::unheard);
  engine_->fail_lists(true, 1);
  ASSERT_FALSE(leader_.step()) << "that the replica stops is committed, and the server did not hear of it";
  EXPECT_FALSE(report("a-1", 2, 100)) << "the node would go on with orders that are replaced";
  engine_->fail_lists(false);
  engine_->recover();
  ASSERT_TRUE(report("a-1", 3, 100));
  EXPECT_GT(leader_.orders_number(node_), number);
  EXPECT_TRUE(leader_.orders(node_).orders.at(0).assigned.stopping);
}

TEST_F(LeaderTest, ANodeThatJoinsAgainIsNotHeldToItsEarlierRefusals) {
  deploy({});
  fleet::ReplicaReport refused;
  refused.key = leader_.orders(node_).orders.at(0).assigned.key();
  refused.state = fleet::ReplicaState::refused;
  ASSERT_TRUE(report("a-1", 2, 100, 0, {refused}));
  ASSERT_TRUE(leader_.step());
  ASSERT_TRUE(leader_.orders(node_).orders.empty()) << "it is left alone for a while";
  ASSERT_TRUE(leader_.forget_node(node_, "user:ann"));
  join();
  ASSERT_TRUE(report("a-2", 1, 100));
  ASSERT_TRUE(leader_.step());
  EXPECT_EQ(leader_.orders(node_).orders.size(), 1u) << "it may be another machine";
}

TEST_F(LeaderTest, ANodeThatCouldNotBeRemovedIsStillHeard) {
  ASSERT_TRUE(report("a-1", 1, 100));
  engine_->fail_after(0, store::FailingEngine::Failure::lost);
  EXPECT_FALSE(leader_.forget_node(node_, "user:ann"));
  engine_->recover();
  EXPECT_EQ(leader_.health(node_), controller::NodeHealth::healthy);
  ASSERT_NE(leader_.heard(node_), nullptr);
}

TEST_F(LeaderTest, AReportWithSomethingNewIsDecidedOn) {
  deploy({});
  const auto state = [&] { return leader_.deployments().front().state; };
  EXPECT_EQ(state(), controller::DeploymentState::updating);
  ASSERT_TRUE(report("a-1", 2, 100));
  ASSERT_TRUE(leader_.step());
  EXPECT_EQ(state(), controller::DeploymentState::updating);
  fleet::ReplicaReport ready;
  ready.key = leader_.orders(node_).orders.front().assigned.key();
  ready.state = fleet::ReplicaState::ready;
  ASSERT_TRUE(report("a-1", 3, 100, 0, {ready}));
  ASSERT_TRUE(leader_.step());
  EXPECT_EQ(state(), controller::DeploymentState::serving);
}

TEST_F(LeaderTest, TheCredentialOfTheMachineBeforeDoesNotSpeakForAJoinedNode) {
  ASSERT_TRUE(report("first", 1, 1));
  lose_node();
  add_join_token("t7", node_);
  ASSERT_TRUE(join_with("t7", "t8"));
  EXPECT_FALSE(leader_.state().credentials.contains("t1")) << "of the machine before";
  EXPECT_FALSE(leader_.state().credentials.contains("t7")) << "a token to join is good for once";
  EXPECT_TRUE(leader_.state().credentials.contains("t8"));
}

TEST_F(LeaderTest, ALostNodeIsReplacedOnlyWithATokenThatWasMadeForIt) {
  ASSERT_TRUE(report("first", 1, 1));
  add_join_token("t7", node_);
  EXPECT_EQ(join_with("t7", "t8").error().code, ErrorCode::already_exists) << "it lives";
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
    Heard heard;
    heard.report.node.id = node_;
    heard.report.agent = "a";
    heard.report.number = number;
    heard.report.epoch_seen = seen;
    EXPECT_TRUE(leader_.take_report(std::move(heard)));
  };
  const auto told = [&] {
    return std::count_if(leader_.recent_events().begin(), leader_.recent_events().end(), [](const fleet::Event& event) {
      return event.text.find("ignores this server of epoch") != std::string::npos;
    });
  };
  report_epoch(1, leader_.epoch());
  EXPECT_FALSE(leader_.later_epoch(node_));
  EXPECT_EQ(told(), 0);
  for (std::uint64_t number = 2; number < 10; ++number) report_epoch(number, leader_.epoch() + 5 * number);
  EXPECT_EQ(leader_.later_epoch(node_), leader_.epoch() + 45);
  EXPECT_EQ(told(), 1) << "once, whatever the node says";
  EXPECT_NE(leader_.node_problem(node_).find("it ignores this server"), std::string::npos);
  ASSERT_EQ(leader_.warnings().size(), 1u);
  EXPECT_NE(leader_.warnings().at("store").find("1 node ignores this server"), std::string::npos);
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
  ASSERT_FALSE(early) << "another one would start while it may run";
  EXPECT_EQ(early.error().code, ErrorCode::already_exists);
  clock_.advance(1s);
  EXPECT_TRUE(leader_.forget_node(node_, "user:ann"));
}

// A node that was updated gives a device another id, and says which one it had.
TEST_F(LeaderTest, WhatWasDecidedUnderAFormerIdStaysWithTheDevice) {
  const DeviceId former("opencl/pocl/basic-a-very-long-processor-name.0"), now("cpu-opencl-0");
  const auto with_device = [&](const DeviceId& id, std::vector<fleet::ReplicaReport> replicas) {
    Heard heard;
    heard.report.node.id = node_;
    NodeDevice& device = heard.report.node.devices.emplace_back();
    device.info.id = id;
    device.info.backend = "opencl";
    device.info.memory_bytes_total = 1000;
    if (id == now) device.info.former_id = former;
    heard.report.agent = "a-" + id.text();
    heard.report.epoch = 1;
    heard.report.replicas = std::move(replicas);
    return leader_.take_report(std::move(heard));
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
  ASSERT_TRUE(leader_.state().nodes.at(node_).devices.contains(now)) << "the cordon holds";
  EXPECT_EQ(leader_.state().nodes.at(node_).devices.at(now).reason, "noise");
  EXPECT_EQ(leader_.state().nodes.at(node_).devices.size(), 1u);
  for (std::size_t i = events; i < leader_.recent_events().size(); ++i)
    EXPECT_EQ(leader_.recent_events()[i].kind, fleet::EventKind::ready) << leader_.recent_events()[i].text;

  // Also what a person says under the former id from now on.
  ASSERT_TRUE(leader_.set_device_intent(node_, former, {Intent::in_service, "user:ann", {}}));
  EXPECT_TRUE(leader_.state().nodes.at(node_).devices.empty());
}

Project project_of(std::vector<DeploymentSpec> specs) {
  Project project;
  project.cluster.name = "lab";
  project.deployments = std::move(specs);
  return project;
}
DeploymentSpec cpu_spec(const std::string& name, std::uint32_t replicas = 1) {
  DeploymentSpec spec;
  spec.name = DeploymentId(name);
  spec.model = "llama-3.1-8b";
  spec.command = {"serve"};
  spec.cpu = true;
  spec.replicas = replicas;
  return spec;
}

TEST_F(LeaderTest, ManyReplicasOnOneNodeKeepNoOtherDeploymentFromItsPlace) {
  EXPECT_TRUE(report("a-1", 1, 100));
  ASSERT_TRUE(leader_.apply(project_of({cpu_spec("many", 6000)}), std::nullopt, "user:ann"));
  ASSERT_TRUE(leader_.step()) << leader_.problem();
  EXPECT_EQ(leader_.orders(node_).orders.size(), 6000u);
  ASSERT_TRUE(leader_.apply(project_of({cpu_spec("many", 6000), cpu_spec("other")}), std::nullopt, "user:ann"));
  ASSERT_TRUE(leader_.step()) << leader_.problem();
  EXPECT_EQ(leader_.orders(node_).orders.size(), 6001u);
  EXPECT_TRUE(leader_.warnings().empty());
}

TEST_F(LeaderTest, ASpecOfAHundredKilobytesIsUpdatedAsOftenAsNeeded) {
  for (int i = 0; i < 15; ++i) {
    DeploymentSpec spec = cpu_spec("large");
    spec.command.push_back(std::string(110'000, 'x') + std::to_string(i));
    const auto applied = leader_.apply(project_of({spec}), std::nullopt, "user:ann");
    ASSERT_TRUE(applied) << i << ": " << applied.error().to_text();
  }
  EXPECT_GE(leader_.state().desired.deployments.at(DeploymentId("large")).earlier.size(), 2u);
  EXPECT_TRUE(leader_.rollout(DeploymentId("large"), RolloutAction::pause, std::string(5'000, 'r'), "user:ann"));
  EXPECT_TRUE(leader_.rollout(DeploymentId("large"), RolloutAction::undo, "", "user:ann"));
}

// As a version without these bounds accepted it: with the reason of a pause it is larger than a store takes.
TEST_F(LeaderTest, ADeploymentThatCannotBeWrittenBlocksOnlyItself) {
  EXPECT_TRUE(report("a-1", 1, 100));
  DeploymentSpec first = cpu_spec("huge"), next = first;
  first.command.push_back("before");
  ASSERT_TRUE(leader_.apply(project_of({first}), std::nullopt, "user:ann"));
  ASSERT_TRUE(leader_.step());
  fleet::Wanted wanted = leader_.state().desired.deployments.at(DeploymentId("huge"));
  wanted.earlier = {wanted.spec};
  wanted.spec = next;
  ++wanted.revision;
  wanted.spec.command.push_back(std::string(store::value_bytes_max - store::text_of(wanted).size() - 100, 'x'));
  {
    leader_.end();
    const auto store = store::Store::open(engine_).value();
    ASSERT_TRUE(store->lead("server-0", 1h));
    store::Change change = change_of(store->load().value());
    change.deployments[DeploymentId("huge")] = wanted;
    ASSERT_TRUE(store->commit(change).value());
    store->give_up();
  }
  Leader leader = Leader::begin(store::Store::open(engine_).value(), "server-1", clock_, {}).value();
  std::uint64_t number = 1;
  const auto hear = [&](const std::string& reason) {
    Heard heard;
    heard.report.node.id = node_;
    heard.report.node.memory_bytes = 100;
    heard.report.agent = "a-1";
    heard.report.number = ++number;
    heard.report.epoch = leader.epoch();
    for (const fleet::ReplicaOrder& order : leader.orders(node_).orders) {
      fleet::ReplicaReport one;
      one.key = order.assigned.key();
      one.state =
          order.assigned.revision == wanted.revision ? fleet::ReplicaState::backing_off : fleet::ReplicaState::ready;
      one.failures = one.state == fleet::ReplicaState::ready ? 0 : 3;
      one.reason = reason;
      heard.report.replicas.push_back(std::move(one));
    }
    EXPECT_TRUE(leader.take_report(std::move(heard)));
    const auto stepped = leader.step();
    EXPECT_TRUE(stepped) << stepped.error().to_text();
  };
  for (int i = 0; i < 3; ++i) hear(std::string(2'000, 'r'));  // it is rolled out, fails and cannot be paused
  ASSERT_FALSE(leader.warnings().empty());
  EXPECT_EQ(leader.warnings().begin()->first, "deployment/huge");
  EXPECT_NE(leader.warnings().begin()->second.find("larger than a store keeps"), std::string::npos);
  EXPECT_EQ(leader.problem(), "") << "others are decided on";
  ASSERT_TRUE(leader.set_intent(node_, Intent::cordoned, "user:ann"));
  ASSERT_TRUE(leader.set_intent(node_, Intent::in_service, "user:ann"));
  // Another one gets its place in the same steps. Its project leaves the other as it is.
  {
    const auto found = leader.state().desired;
    fleet::Wanted other;
    other.spec = cpu_spec("other");
    other.revision = 1;
    leader.end();
    const auto store = store::Store::open(engine_).value();
    ASSERT_TRUE(store->lead("server-0", 1h));
    store::Change change = change_of(store->load().value());
    change.deployments[DeploymentId("other")] = other;
    ASSERT_TRUE(store->commit(change).value());
    store->give_up();
  }
  leader = Leader::begin(store::Store::open(engine_).value(), "server-1", clock_, {}).value();
  for (int i = 0; i < 3; ++i) hear(std::string(2'000, 'r'));
  const auto orders = leader.orders(node_).orders;
  EXPECT_TRUE(std::any_of(orders.begin(), orders.end(),
                          [](const fleet::ReplicaOrder& one) { return one.spec.name == DeploymentId("other"); }));
}

TEST_F(LeaderTest, ReplicasOfADeploymentThatCannotBeReadStayAsTheyAre) {
  deploy({});
  const std::string key = store::keys::deployment(DeploymentId("batch"), leader_.state().desired.version);
  ASSERT_TRUE(engine_->commit({{}, {{key, "{\"schema\":1,"}}}).value());
  leader_.end();
  Leader leader = Leader::begin(store::Store::open(engine_).value(), "server-1", clock_, {}).value();
  Heard heard;
  heard.report.node.id = node_;
  heard.report.agent = "a-1";
  heard.report.epoch = leader.epoch();
  ASSERT_TRUE(leader.take_report(std::move(heard)));
  ASSERT_TRUE(leader.step());
  ASSERT_EQ(leader.orders(node_).orders.size(), 1u);
  EXPECT_FALSE(leader.orders(node_).orders[0].assigned.stopping);
  EXPECT_TRUE(leader.warnings().contains("store"));
  EXPECT_TRUE(leader.warnings().contains("deployment/batch"));
  EXPECT_EQ(leader.problem(), "");
  // Without it, the project ends it; applied again, it is as any other.
  ASSERT_TRUE(leader.apply(project_of({}), std::nullopt, "user:ann"));
  ASSERT_TRUE(leader.step());
  EXPECT_TRUE(leader.orders(node_).orders.empty() || leader.orders(node_).orders[0].assigned.stopping);
  EXPECT_FALSE(leader.warnings().contains("deployment/batch"));
}

TEST_F(LeaderTest, FlippingDevicesPushNothingOutThatPeopleDid) {
  DeploymentSpec spec;
  deploy(spec);
  for (std::uint64_t i = 2; i < 40; ++i) {
    Heard heard;
    heard.report.node.id = node_;
    heard.report.agent = "a-1";
    heard.report.number = i;
    heard.report.epoch = 1;
    for (int device = 0; device < 1024; ++device) {
      NodeDevice& one = heard.report.node.devices.emplace_back();
      one.info.id = DeviceId("GPU-" + std::to_string(device));
      one.health = i % 2 == 0 ? Health::lost : Health::healthy;
    }
    ASSERT_TRUE(leader_.take_report(std::move(heard)));
    ASSERT_TRUE(leader_.step());
  }
  EXPECT_LT(leader_.state().last_event, 1'100u);
  const std::vector<fleet::Event> events = leader_.events(0, 100'000).value();
  EXPECT_TRUE(
      std::any_of(events.begin(), events.end(), [](const fleet::Event& one) { return one.actor == "user:ann"; }));
  EXPECT_TRUE(std::any_of(events.begin(), events.end(),
                          [](const fleet::Event& one) { return one.text.find("left out") != std::string::npos; }));
}

TEST_F(LeaderTest, AReportThatIsRefusedIsShownAtItsNodeUntilTheNextOne) {
  leader_.refuse_report(node_, "report.inventory.devices is missing");
  EXPECT_EQ(leader_.warnings().at("node/gpu-1"), "its last report was refused: report.inventory.devices is missing");
  EXPECT_TRUE(report("a-1", 1, 100));
  EXPECT_TRUE(leader_.warnings().empty());
}

}  // namespace
}  // namespace berth::server
