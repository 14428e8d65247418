#include "scheduler/lanes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "scheduler/fixture.hpp"

namespace berth::scheduler {
namespace {

// Holds the only lane of the only device while the test fills its queue.
class OneLane : public testing::Test {
 protected:
  void hold() {
    blocker_ = bench_->submit([this](TaskContext&) { EXPECT_TRUE(gate_.pass()); });
    ASSERT_TRUE(gate_.wait_for_arrivals(1));
  }
  void release() {
    gate_.open();
    EXPECT_TRUE(blocker_.get());
  }
  Task<NoValue> noted(std::string name, TaskOptions work = {}) {
    return bench_->submit([this, name](TaskContext&) { order_.push_back(name); }, std::move(work));
  }
  static TaskOptions of(Priority priority, Deadline deadline = {}) {
    TaskOptions work;
    work.requirements.priority = priority;
    work.deadline = deadline;
    return work;
  }

  FakeClock clock_{FakeClock::Sleepers::block};
  Gate gate_;
  std::vector<std::string> order_;  // written by the lane, read after its end
  Bench bench_{1, with_policy("least_loaded", 1), clock_};
  Task<NoValue> blocker_;
};

TEST_F(OneLane, S0_F5_PriorityOrdersTheQueueThenDeadlineThenArrival) {
  hold();
  std::vector<Task<NoValue>> tasks;
  tasks.push_back(noted("low", of(Priority::low)));
  tasks.push_back(noted("normal 1"));
  tasks.push_back(noted("normal late", of(Priority::normal, {TimePoint(seconds(9))})));
  tasks.push_back(noted("normal soon", of(Priority::normal, {TimePoint(seconds(5))})));
  tasks.push_back(noted("normal 2"));
  tasks.push_back(noted("high", of(Priority::high)));
  release();
  for (auto& task : tasks) EXPECT_TRUE(task.get());
  EXPECT_EQ(order_, (std::vector<std::string>{"high", "normal soon", "normal late", "normal 1", "normal 2", "low"}));
}

TEST_F(OneLane, S0_F5_LowPriorityIsOvertakenSevenTimesAtMost) {
  hold();
  std::vector<Task<NoValue>> tasks;
  tasks.push_back(noted("low", of(Priority::low)));
  for (int i = 0; i < 30; ++i) tasks.push_back(noted("high", of(Priority::high)));
  release();
  for (auto& task : tasks) EXPECT_TRUE(task.get());
  EXPECT_EQ(std::find(order_.begin(), order_.end(), "low") - order_.begin(), 7);
}

TEST_F(OneLane, S0_F5_PriorityBecomesThePriorityOfTheStream) {
  for (const Priority priority : {Priority::low, Priority::normal, Priority::high, Priority::low}) {
    const auto seen = [](TaskContext& execution) { return (*execution.stream())->priority(); };
    EXPECT_EQ(bench_->run(seen, of(priority))->value, priority);
    EXPECT_EQ(bench_->submit(seen, of(priority)).get()->value, priority);
  }
}

TEST_F(OneLane, X_F4_WorkThatDidNotBeginByItsDeadlineIsCancelled) {
  hold();
  auto late = noted("late", of(Priority::normal, Deadline::after(clock_, milliseconds(10))));
  auto in_time = noted("in time", of(Priority::normal, Deadline::after(clock_, milliseconds(50))));
  clock_.advance(milliseconds(20));
  release();
  const auto result = late.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::timeout);
  EXPECT_EQ(result.error().where, "sim-0");
  EXPECT_TRUE(in_time.get());
  EXPECT_EQ(order_, std::vector<std::string>{"in time"});
  EXPECT_EQ(bench_.total().cancelled, 1U);
  EXPECT_TRUE(adds_up(bench_->statistics()));

  EXPECT_EQ(bench_->run(nothing, of(Priority::normal, {clock_.now()})).error().code, ErrorCode::timeout);
  EXPECT_EQ(bench_.total().cancelled, 2U);
}

TEST_F(OneLane, X_F4_WhoWaitsHearsOfAPassedDeadlineWithoutAFreeLane) {
  hold();
  auto late = noted("late", of(Priority::normal, Deadline::after(clock_, milliseconds(10))));
  clock_.advance(milliseconds(10));
  EXPECT_EQ(late.get().error().code, ErrorCode::timeout);
  EXPECT_EQ(bench_.total().cancelled, 1U);
  release();
  EXPECT_TRUE(order_.empty());
}

TEST_F(OneLane, X_F4_GettingGivesUpAtItsDeadlineAndTheWorkGoesOn) {
  Gate gate;
  auto task = bench_->submit([&](TaskContext&) { return gate.pass(); });
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  const Deadline soon = Deadline::after(clock_, milliseconds(5));
  clock_.advance(milliseconds(5));
  EXPECT_EQ(task.get(soon).error().code, ErrorCode::timeout);
  EXPECT_FALSE(task.ready());
  gate.open();
  EXPECT_TRUE(task.get()->value);
  EXPECT_EQ(task.get().error().code, ErrorCode::invalid_argument) << "a result is given once";
}

TEST_F(OneLane, X_F4_WaitingWorkIsWithdrawnByCancelling) {
  hold();
  auto cancelled = noted("cancelled");
  auto kept = noted("kept");
  cancelled.cancel();
  cancelled.cancel();
  EXPECT_TRUE(cancelled.ready());
  EXPECT_EQ(cancelled.get().error().code, ErrorCode::cancelled);
  EXPECT_EQ(bench_.total().cancelled, 1U);
  EXPECT_EQ(bench_.total().in_flight, 2U);
  release();
  EXPECT_TRUE(kept.get());
  EXPECT_EQ(order_, std::vector<std::string>{"kept"});
}

TEST_F(OneLane, X_F4_RunningWorkSeesThatItIsCancelled) {
  Gate gate;
  auto stops = bench_->submit([&](TaskContext& execution) -> Result<bool> {
    gate.pass();
    if (execution.cancelled()) return Error{ErrorCode::cancelled, "I was told to stop"};
    return false;
  });
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  stops.cancel();
  gate.open();
  EXPECT_EQ(stops.get().error().message, "I was told to stop");
  EXPECT_EQ(bench_.total().cancelled, 1U);
  EXPECT_EQ(bench_.total().failed, 0U);
}

TEST_F(OneLane, RunningWorkSeesThatItsDeadlineHasPassed) {
  const TaskOptions by_then = of(Priority::normal, Deadline::after(clock_, milliseconds(10)));
  Gate gate;
  auto late = bench_->submit(
      [&](TaskContext& execution) {
        const bool at_first = execution.cancelled();
        gate.pass();
        return std::pair(at_first, execution.cancelled());
      },
      by_then);
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  clock_.advance(milliseconds(10));
  gate.open();
  const auto seen = late.get();
  ASSERT_TRUE(seen) << "it ends as the closure ends";
  EXPECT_FALSE(seen->value.first);
  EXPECT_TRUE(seen->value.second);

  const auto inline_too = bench_->run(
      [&](TaskContext& execution) {
        clock_.advance(milliseconds(10));
        return execution.cancelled();
      },
      of(Priority::normal, Deadline::after(clock_, milliseconds(10))));
  ASSERT_TRUE(inline_too);
  EXPECT_TRUE(inline_too->value);
}

TEST_F(OneLane, DroppingTheHandleDoesNotCancelTheWork) {
  hold();
  {
    const auto dropped = noted("dropped");
  }
  auto last = noted("last");
  release();
  EXPECT_TRUE(last.get());
  EXPECT_EQ(order_, (std::vector<std::string>{"dropped", "last"}));
}

TEST_F(OneLane, TheEndOfTheSchedulerCancelsWhatWaitsAndFinishesWhatRuns) {
  hold();
  auto waiting = noted("waiting");
  std::thread destroyer([&] { bench_.scheduler.reset(); });
  const auto result = waiting.get();
  gate_.open();
  destroyer.join();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(blocker_.get());
  EXPECT_EQ(bench_.pool->status().at(0).view.in_flight, 0U);
}

TEST(Scheduler, LanesOfOneDeviceRunSideBySide) {
  simulated::SimulatedSpec wide = spec(0);
  wide.concurrency = 3;
  Bench bench({wide});
  Gate gate;
  std::vector<Task<bool>> tasks;
  for (int i = 0; i < 3; ++i) tasks.push_back(bench->submit([&](TaskContext&) { return gate.meet(3); }));
  for (auto& task : tasks) EXPECT_TRUE(task.get()->value);
}

TEST(Scheduler, ALostDeviceFailsItsWorkAndTheOthersGoOn) {
  Bench bench(2);
  ASSERT_TRUE(simulated::lose_simulated_device(**bench.pool->device(sim(0))));
  int lost = 0;
  for (int i = 0; i < 20; ++i) {
    const auto result = bench->submit(asynchronous(0)).get();
    EXPECT_TRUE(result || result.error().where == "sim-0");
    lost += !result;
  }
  EXPECT_EQ(lost, 1);
}

}  // namespace
}  // namespace berth::scheduler
