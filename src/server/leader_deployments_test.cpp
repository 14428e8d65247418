#include <gtest/gtest.h>

#include <algorithm>

#include "fleet/bounds.hpp"
#include "server/test_leader.hpp"
#include "store/records.hpp"

namespace berth::server {
namespace {

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
  EXPECT_TRUE(leader_.rollout(DeploymentId("large"), {RolloutAction::pause, std::string(5'000, 'r')}, "user:ann"));
  EXPECT_TRUE(leader_.rollout(DeploymentId("large"), {RolloutAction::undo}, "user:ann"));
}

// A version without these bounds accepted it: with the reason of a pause it is larger than a store value may be.
TEST_F(LeaderTest, ADeploymentThatCannotBeWrittenBlocksOnlyItself) {
  EXPECT_TRUE(report("a-1", 1, 100));
  DeploymentSpec first = cpu_spec("huge"), next = first;
  first.command.push_back("before");
  ASSERT_TRUE(leader_.apply(project_of({first}), std::nullopt, "user:ann"));
  ASSERT_TRUE(leader_.step());
  fleet::DesiredDeployment wanted = leader_.state().desired.deployments.at(DeploymentId("huge"));
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
  const auto report_and_step = [&](const std::string& reason) {
    LastReport last;
    last.report.node.id = node_;
    last.report.node.memory_bytes = 100;
    last.report.agent = "a-1";
    last.report.number = ++number;
    last.report.epoch = leader.epoch();
    for (const fleet::ReplicaOrder& order : leader.orders(node_).orders) {
      fleet::ReplicaReport replica;
      replica.key = order.assigned.key();
      replica.state =
          order.assigned.revision == wanted.revision ? fleet::ReplicaState::backing_off : fleet::ReplicaState::ready;
      replica.failures = replica.state == fleet::ReplicaState::ready ? 0 : 3;
      replica.reason = reason;
      last.report.replicas.push_back(std::move(replica));
    }
    EXPECT_TRUE(leader.take_report(std::move(last)));
    const auto stepped = leader.step();
    EXPECT_TRUE(stepped) << stepped.error().to_text();
  };
  for (int i = 0; i < 3; ++i) report_and_step(std::string(2'000, 'r'));  // the rollout fails, but it cannot be paused
  ASSERT_FALSE(leader.warnings().empty());
  EXPECT_EQ(leader.warnings().begin()->first, "deployment/huge");
  EXPECT_NE(leader.warnings().begin()->second.find("too large for the store"), std::string::npos);
  EXPECT_EQ(leader.problem(), "") << "others are decided on";
  ASSERT_TRUE(leader.set_intent(node_, Intent::cordoned, "user:ann"));
  ASSERT_TRUE(leader.set_intent(node_, Intent::in_service, "user:ann"));
  // Another deployment is placed in the same steps. Its project does not change the first one.
  {
    const auto found = leader.state().desired;
    fleet::DesiredDeployment other;
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
  for (int i = 0; i < 3; ++i) report_and_step(std::string(2'000, 'r'));
  const auto orders = leader.orders(node_).orders;
  EXPECT_TRUE(std::any_of(orders.begin(), orders.end(),
                          [](const fleet::ReplicaOrder& order) { return order.spec.name == DeploymentId("other"); }));
}

TEST_F(LeaderTest, ReplicasOfADeploymentThatCannotBeReadStayAsTheyAre) {
  deploy({});
  const std::string key = store::keys::deployment(DeploymentId("batch"), leader_.state().desired.version);
  ASSERT_TRUE(engine_->commit({{}, {{key, "{\"schema\":1,"}}}).value());
  leader_.end();
  Leader leader = Leader::begin(store::Store::open(engine_).value(), "server-1", clock_, {}).value();
  LastReport last;
  last.report.node.id = node_;
  last.report.agent = "a-1";
  last.report.epoch = leader.epoch();
  ASSERT_TRUE(leader.take_report(std::move(last)));
  ASSERT_TRUE(leader.step());
  ASSERT_EQ(leader.orders(node_).orders.size(), 1u);
  EXPECT_FALSE(leader.orders(node_).orders[0].assigned.stopping);
  EXPECT_TRUE(leader.warnings().contains("store"));
  EXPECT_TRUE(leader.warnings().contains("deployment/batch"));
  EXPECT_EQ(leader.problem(), "");
  // A project without the deployment ends it; applied again, it is like any other.
  ASSERT_TRUE(leader.apply(project_of({}), std::nullopt, "user:ann"));
  ASSERT_TRUE(leader.step());
  EXPECT_TRUE(leader.orders(node_).orders.empty() || leader.orders(node_).orders[0].assigned.stopping);
  EXPECT_FALSE(leader.warnings().contains("deployment/batch"));
}

TEST_F(LeaderTest, FlippingDevicesPushNothingOutThatPeopleDid) {
  DeploymentSpec spec;
  deploy(spec);
  for (std::uint64_t i = 2; i < 40; ++i) {
    LastReport last;
    last.report.node.id = node_;
    last.report.agent = "a-1";
    last.report.number = i;
    last.report.epoch = 1;
    for (int device = 0; device < 1024; ++device) {
      NodeDevice& gpu = last.report.node.devices.emplace_back();
      gpu.info.id = DeviceId("GPU-" + std::to_string(device));
      gpu.health = i % 2 == 0 ? Health::lost : Health::healthy;
    }
    ASSERT_TRUE(leader_.take_report(std::move(last)));
    ASSERT_TRUE(leader_.step());
  }
  EXPECT_LT(leader_.state().last_event, 1'100u);
  const std::vector<fleet::Event> events = leader_.events(0, 100'000).value();
  EXPECT_TRUE(
      std::any_of(events.begin(), events.end(), [](const fleet::Event& event) { return event.actor == "user:ann"; }));
  EXPECT_TRUE(std::any_of(events.begin(), events.end(),
                          [](const fleet::Event& event) { return event.text.find("left out") != std::string::npos; }));
}

TEST_F(LeaderTest, AnUndoGoesBackToANamedRevisionOrTheNewestOneThatDiffers) {
  const DeploymentId name("chat");
  const auto apply = [&](const std::string& command) {
    DeploymentSpec spec = cpu_spec("chat", 2);
    spec.command = {command};
    ASSERT_TRUE(leader_.apply(project_of({spec}), std::nullopt, "user:ann"));
  };
  const auto wanted = [&]() -> const fleet::DesiredDeployment& { return leader_.state().desired.deployments.at(name); };
  const auto undo = [&](std::optional<std::uint64_t> to) {
    return leader_.rollout(name, {RolloutAction::undo, "", to}, "user:ann");
  };
  apply("one");
  EXPECT_EQ(undo(std::nullopt).error().code, ErrorCode::already_exists) << "there is no earlier revision";
  const std::uint64_t first = wanted().revision;
  apply("two");
  apply("three");
  ASSERT_TRUE(leader_.make(leader_.propose_scale(name, 5, std::nullopt).value(), "user:ann"));
  ASSERT_TRUE(undo(first));
  EXPECT_EQ(wanted().spec.command.front(), "one");
  EXPECT_EQ(wanted().spec.replicas, 5u) << "the number of replicas is not part of a revision";
  const std::uint64_t revision = wanted().revision;
  const Leader::Proposal again = leader_.propose_rollout(name, {RolloutAction::undo, "", first}, "user:ann").value();
  EXPECT_FALSE(again.applied.changed) << "it already has these settings";
  ASSERT_TRUE(undo(first));
  EXPECT_EQ(wanted().revision, revision);
  EXPECT_EQ(undo(first + 99).error().code, ErrorCode::not_found);
  ASSERT_TRUE(leader_.rollout(name, {RolloutAction::restart}, "user:ann"));
  EXPECT_EQ(wanted().restart_revision, wanted().revision);
  ASSERT_TRUE(undo(std::nullopt));
  EXPECT_EQ(wanted().spec.command.front(), "three") << "the revision before the restart has the same settings";
}

// Together with the present number of replicas, earlier settings may be more than a server accepts.
TEST_F(LeaderTest, AnUndoHasTheBoundsOfWhatIsAccepted) {
  const DeploymentId name("chat");
  DeploymentSpec large = cpu_spec("chat", 90), small = cpu_spec("chat", 90);
  large.command.push_back(std::string(fleet::orders_bytes_max / 100, 'x'));
  ASSERT_TRUE(leader_.apply(project_of({large}), std::nullopt, "user:ann"));
  ASSERT_TRUE(leader_.apply(project_of({small}), std::nullopt, "user:ann"));
  ASSERT_TRUE(leader_.make(leader_.propose_scale(name, 1'000, std::nullopt).value(), "user:ann"));
  const auto undone = leader_.rollout(name, {RolloutAction::undo}, "user:ann");
  ASSERT_FALSE(undone);
  EXPECT_EQ(undone.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(leader_.state().desired.deployments.at(name).spec, [&] {
    small.replicas = 1'000;
    return small;
  }());
  EXPECT_TRUE(leader_.rollout(name, {RolloutAction::pause}, "user:ann")) << "its settings were accepted before";
}

TEST_F(LeaderTest, AProposalChangesNothingUntilItIsMade) {
  ASSERT_TRUE(leader_.apply(project_of({cpu_spec("chat")}), std::nullopt, "user:ann"));
  const std::uint64_t version = leader_.state().desired.version;
  const DeploymentId name("chat");
  Leader::Proposal scaled = leader_.propose_scale(name, 3, version).value();
  const Leader::Proposal restarted = leader_.propose_rollout(name, {RolloutAction::restart}, "user:ann").value();
  EXPECT_EQ(leader_.state().desired.version, version);
  EXPECT_EQ(leader_.make(std::move(scaled), "user:ann").value().version, version + 1);
  EXPECT_EQ(leader_.recent_events().back().text, "it is scaled from 1 to 3 replicas");
  EXPECT_FALSE(leader_.make(restarted, "user:ann")) << "it was proposed for an earlier version";
  EXPECT_EQ(leader_.propose_scale(name, 4, version).error().code, ErrorCode::stale_handle);
  EXPECT_EQ(leader_.propose_scale(name, replicas_max + 1, std::nullopt).error().code, ErrorCode::invalid_argument);
  EXPECT_FALSE(leader_.make(leader_.propose_scale(name, 3, std::nullopt).value(), "user:ann").value().changed);
  ASSERT_TRUE(leader_.rollout(name, {RolloutAction::pause, ""}, "user:ann"));
  EXPECT_EQ(leader_.recent_events().back().text, "its rollout is paused");
  EXPECT_EQ(leader_.state().desired.deployments.at(name).paused, "paused by user:ann");
  ASSERT_TRUE(leader_.rollout(name, {RolloutAction::pause, "wait"}, "user:ann"));
  EXPECT_EQ(leader_.recent_events().back().text, "its rollout is paused: wait");
  EXPECT_FALSE(leader_.rollout(name, {RolloutAction::restart}, "user:ann")) << "the rollout is paused";
}

TEST_F(LeaderTest, ANameThatIsNotKnownGetsTheNearestOne) {
  ASSERT_TRUE(leader_.apply(project_of({cpu_spec("chat")}), std::nullopt, "user:ann"));
  EXPECT_EQ(leader_.no_deployment(DeploymentId("caht")).to_text(),
            "there is no deployment \"caht\"; did you mean chat?");
  EXPECT_EQ(leader_.no_deployment(DeploymentId("embeddings")).advice, "see berth deployments");
  EXPECT_EQ(leader_.no_node(NodeId("gpu1")).advice, "did you mean gpu-1?");
}

TEST_F(LeaderTest, AReportThatIsRefusedIsShownAtItsNodeUntilTheNextOne) {
  leader_.refuse_report(node_, "report.inventory.devices is missing");
  EXPECT_EQ(leader_.warnings().at("node/gpu-1"), "its last report was refused: report.inventory.devices is missing");
  EXPECT_TRUE(report("a-1", 1, 100));
  EXPECT_TRUE(leader_.warnings().empty());
}

}  // namespace
}  // namespace berth::server
