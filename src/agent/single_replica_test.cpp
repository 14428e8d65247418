// Replicas of deployments with `single`: two of one must never run at once.
#include "agent/test_step.hpp"

namespace berth::agent {
namespace {

using namespace std::chrono_literals;

struct SingleReplicaTest : AgentStepTest {
  ReplicaOrder& add_single(std::uint64_t generation) {
    ReplicaOrder single = order("one", 0, generation);
    single.spec.single = true;
    return add(single);
  }
};

TEST_F(SingleReplicaTest, IsRenewedWithTheTimeTheServerWasHeardAndStopsWithoutIt) {
  const auto& single = add_single(7);
  jobs = {job_of(single, "j1", FoundState::running, 0s)};
  report_sent_at = at(2s);
  Step step = step_at(3s);
  ASSERT_EQ(step.renew.size(), 1u);
  EXPECT_EQ(step.renew[0].report_sent_at, at(2s)) << "when the report was sent, not the current time";
  jobs[0].single->renewed = at(2s);
  step = step_at(4s);
  EXPECT_TRUE(step.renew.empty());
  EXPECT_EQ(step.look_again, at(22s));
  EXPECT_TRUE(step_at(22s - 1ns).stop.empty());
  EXPECT_EQ(stops(step_at(22s)), Words{"j1"});
  // The server is back: the replica that was stopped is restarted at once, and no failure is counted.
  jobs[0].state = FoundState::ended;
  report_sent_at = at(24s);
  step = step_at(25s);
  EXPECT_EQ(starts(step), Words{"one/0#7"});
  EXPECT_EQ(step.start[0].single->renewed, at(24s));
  EXPECT_EQ(step.reports[0].failures, 0u);
}

TEST_F(SingleReplicaTest, PastItsTimeItStopsEvenWhereTheServerIsHeardAgain) {
  jobs = {job_of(add_single(7), "j1", FoundState::running, 0s)};
  report_sent_at = at(30s);
  const Step step = step_at(31s);
  EXPECT_EQ(stops(step), Words{"j1"});
  EXPECT_TRUE(step.renew.empty());
}

TEST_F(SingleReplicaTest, OneThatEndsItsRequestsIsRenewedAndStopsAtOnceWhenItsTimeIsOver) {
  auto& single = add_single(7);
  single.assigned.stopping = true;
  jobs = {job_of(single, "j1", FoundState::running, 0s)};
  jobs[0].is_stopping = jobs[0].is_draining = true;
  report_sent_at = at(2s);
  EXPECT_EQ(step_at(3s).renew.size(), 1u);
  const Step step = step_at(20s);
  ASSERT_EQ(stops(step), Words{"j1"});
  EXPECT_FALSE(step.stop[0].drains);
  jobs[0].is_draining = false;
  EXPECT_TRUE(step_at(21s).stop.empty()) << "the job is already stopping";
}

TEST_F(SingleReplicaTest, StopsWithoutOrdersToo) {
  jobs = {job_of(add_single(7), "j1", FoundState::running, 0s)};
  orders.reset();
  report_sent_at.reset();
  EXPECT_TRUE(step_at(19s).stop.empty());
  EXPECT_EQ(stops(step_at(20s)), Words{"j1"});
}

TEST_F(SingleReplicaTest, StartsOnlyWhereTheServerWasHeardAndNoOtherIncarnationLives) {
  auto& old = add_single(7);
  old.assigned.stopping = true;
  jobs = {job_of(old, "j1", FoundState::running, 0s)};
  jobs[0].is_stopping = true;
  add_single(8);
  report_sent_at = at(1s);
  EXPECT_TRUE(step_at(1s).start.empty());
  jobs[0].state = FoundState::ended;
  report_sent_at.reset();
  EXPECT_TRUE(step_at(2s).start.empty());
  report_sent_at = at(2s);
  EXPECT_TRUE(step_at(22s).start.empty());
  EXPECT_EQ(starts(step_at(3s)), Words{"one/0#8"});
}

}  // namespace
}  // namespace berth::agent
