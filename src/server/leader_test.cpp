#include "server/leader.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "server/test_leader.hpp"

namespace berth::server {
namespace {

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
  ASSERT_FALSE(late) << "the sender must not believe that its report counts";
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
  engine_->fail_after(0, store::FailingEngine::Failure::unacknowledged);
  EXPECT_FALSE(leader_.set_intent(node_, Intent::draining, "user:ann"));
  EXPECT_EQ(leader_.state().nodes.at(node_).intent, Intent::draining);
}

TEST_F(LeaderTest, NothingIsDecidedOnAStateThatMayBeOld) {
  ASSERT_TRUE(leader_.set_intent(node_, Intent::draining, "user:ann"));
  const auto reason = [&] { return leader_.state().nodes.at(node_).intent_reason; };
  engine_->fail_lists(true, 1);  // the listing after the commit
  EXPECT_FALSE(leader_.set_intent(node_, Intent::draining, "user:ann", "its fan is loud"));
  EXPECT_EQ(reason(), "") << "the change could not be read";
  EXPECT_FALSE(leader_.step());
  EXPECT_FALSE(leader_.forget_node(node_, "user:ann"));
  engine_->fail_lists(false);
  const Result<void> old = leader_.forget_node(node_, "user:ann");
  ASSERT_FALSE(old) << "the decision was based on an older state";
  EXPECT_EQ(old.error().code, ErrorCode::stale_handle);
  EXPECT_EQ(reason(), "its fan is loud");
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
  EXPECT_EQ(leader_.state().epoch, epoch) << "this server does not know what the other one decided";
  EXPECT_EQ(next.state().nodes.at(node_).intent, Intent::draining);
}

// Otherwise the node could believe that its report was received and keep running what another server replaces.
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
  EXPECT_NE(leader_.problem(), "") << "the problem remains although the step needs no store";
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

TEST_F(LeaderTest, AnUnchangedProjectIsAcceptedOnlyWhereAllThatIsCommittedIsKnown) {
  Project first, second;
  first.cluster.name = second.cluster.name = "lab";
  second.deployments.emplace_back().name = DeploymentId("batch");
  second.deployments.back().model = "llama-3.1-8b";
  second.deployments.back().command = {"serve"};
  second.deployments.back().cpu = true;
  ASSERT_TRUE(leader_.apply(first, std::nullopt, "user:ann"));
  const auto is_there = [&] {
    return store::Store::open(engine_).value()->load().value().desired.deployments.contains(DeploymentId("batch"));
  };
  engine_->fail_after(0, store::FailingEngine::Failure::unacknowledged);
  engine_->fail_lists(true, 1);
  ASSERT_FALSE(leader_.apply(second, std::nullopt, "user:ann"));
  engine_->fail_lists(false);
  engine_->recover();
  ASSERT_TRUE(is_there()) << "it was committed, but the answer was lost";
  const auto again = [&] { return leader_.apply(first, std::nullopt, "user:ann").has_value(); };
  for (int tries = 0; tries < 3 && !again(); ++tries) continue;
  EXPECT_FALSE(is_there()) << "the change was accepted";

  Leader next = Leader::begin(store::Store::open(engine_).value(), "server-1", clock_, {}).value();
  EXPECT_FALSE(leader_.apply(first, std::nullopt, "user:ann")) << "another server leads";
}

TEST_F(LeaderTest, AReportIsNotTakenWhileTheStoreMayHaveNewerOrders) {
  deploy({});
  const std::uint64_t number = leader_.orders_number(node_);
  Project nothing;
  nothing.cluster.name = "lab";
  ASSERT_TRUE(leader_.apply(nothing, std::nullopt, "user:ann"));
  engine_->fail_after(0, store::FailingEngine::Failure::unacknowledged);
  engine_->fail_lists(true, 1);
  ASSERT_FALSE(leader_.step()) << "the stop of the replica is committed, but the answer was lost";
  EXPECT_FALSE(report("a-1", 2, 100)) << "the node would continue with old orders";
  engine_->fail_lists(false);
  engine_->recover();
  ASSERT_TRUE(report("a-1", 3, 100));
  EXPECT_GT(leader_.orders_number(node_), number);
  EXPECT_TRUE(leader_.orders(node_).orders.at(0).assigned.stopping);
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
}  // namespace
}  // namespace berth::server
