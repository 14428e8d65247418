// Work that fails, throws or hangs, and devices that fail or hang.
#include <gtest/gtest.h>

#include <stdexcept>

#include "berth/scheduler.hpp"
#include "scheduler/fixture.hpp"

namespace berth::scheduler {
namespace {

TEST(Scheduler, S3_F7_AnErrorSaysWhichDeviceItWas) {
  Bench bench(2);
  const auto fail = [](TaskContext&) -> Result<void> { return failure(); };
  EXPECT_EQ(bench->run(fail, only_on(1)).error().where, "sim-1");
  EXPECT_EQ(bench->submit(fail, only_on(1)).get().error().where, "sim-1");
}

TEST(Scheduler, S3_F7_ADeviceThatFailsFastDoesNotAttractAllWork) {
  Bench bench(2);
  int served = 0;
  for (int i = 0; i < 100; ++i) {
    served += bench
                  ->run([](TaskContext& execution) -> Result<void> {
                    if (execution.device().id() == sim(0)) return failure(ErrorCode::unavailable);
                    return {};
                  })
                  .has_value();
  }
  EXPECT_GE(served, 90);
}

TEST(Scheduler, S3_F7_WorkThatMayRunTwiceIsTriedElsewhere) {
  Bench bench(2);
  const auto fails_on_0 = [](TaskContext& execution) -> Result<std::string> {
    if (execution.device().id() == sim(0)) return failure(ErrorCode::unavailable);
    return execution.device().id().text();
  };
  TaskOptions work;
  EXPECT_EQ(bench->run(fails_on_0, work).error().where, "sim-0") << "not retried unless it may run twice";
  work.may_run_twice = true;
  for (const auto& result : {bench->run(fails_on_0, work), bench->submit(fails_on_0, work).get()}) {
    ASSERT_TRUE(result);
    EXPECT_EQ(result->value, "sim-1");
    EXPECT_EQ(result->device, sim(1));
  }
  EXPECT_EQ(bench->statistics().devices[0].failed, 3U);
  EXPECT_EQ(bench->statistics().devices[1].completed, 2U);

  int tries = 0;
  const auto always = [&](TaskContext&) -> Result<void> {
    ++tries;
    return failure(ErrorCode::unavailable);
  };
  EXPECT_FALSE(bench->submit(always, work).get());
  EXPECT_EQ(tries, 2) << "once elsewhere, not forever";
  const auto callers_fault = [&](TaskContext&) -> Result<void> {
    ++tries;
    return failure(ErrorCode::invalid_argument);
  };
  EXPECT_FALSE(bench->run(callers_fault, work));
  EXPECT_EQ(tries, 3) << "another device would not help";
}

TEST(Scheduler, WhenEverythingFailsNotEverythingIsRepeated) {
  FakeClock clock;
  Bench bench(20, {}, clock);
  std::atomic<int> tries{0};
  const auto fails = [&](TaskContext&) -> Result<void> {
    ++tries;
    return failure(ErrorCode::io);
  };
  TaskOptions work;
  work.may_run_twice = true;
  for (int i = 0; i < 30; ++i) EXPECT_FALSE(bench->run(fails, work));
  EXPECT_GE(tries, 40) << "ten retries, and a fifth of the work handed out";
  EXPECT_LE(tries, 52);
  tries = 0;
  clock.advance(seconds(2));
  EXPECT_FALSE(bench->run(fails, work));
  EXPECT_EQ(tries, 2) << "ten more retries in the next second";
}

TEST(Scheduler, WorkThatDeclinesItsDeviceHasNotBegunAndGoesToAnother) {
  Bench bench(3);
  const auto only_on_2 = [](TaskContext& task) -> Result<std::string> {
    if (task.device().id() == sim(2)) return task.device().id().text();
    task.decline();
    return failure(ErrorCode::not_supported);
  };
  TaskOptions work;
  work.may_decline = true;
  for (const auto& result : {bench->run(only_on_2, work), bench->submit(only_on_2, work).get()}) {
    ASSERT_TRUE(result);
    EXPECT_EQ(result->device, sim(2));
  }
  for (const auto& result :
       bench->map(std::vector<int>(9), [&](TaskContext& task, int) { return only_on_2(task); }, work))
    EXPECT_TRUE(result);
  const auto nowhere = [](TaskContext& task) -> Result<void> {
    task.decline();
    return failure(ErrorCode::not_supported);
  };
  EXPECT_EQ(bench->submit(nowhere, work).get().error().code, ErrorCode::not_supported)
      << "the task's own error if no device is left";
  EXPECT_TRUE(adds_up(bench->statistics()));
}

TEST(Scheduler, S3_F9_AClosureThatThrowsHasFailedAndNothingLeaks) {
  Bench bench(1);
  const auto throws = [](TaskContext&) -> int { throw std::runtime_error("out of cheese"); };
  const auto inline_result = bench->run(throws);
  const auto task_result = bench->submit(throws).get();
  for (const auto* result : {&inline_result, &task_result}) {
    ASSERT_FALSE(*result);
    EXPECT_EQ(result->error().code, ErrorCode::work_failed);
    EXPECT_NE(result->error().message.find("out of cheese"), std::string::npos);
    EXPECT_EQ(result->error().where, "sim-0");
  }
  EXPECT_FALSE(bench->run([](TaskContext&) { throw 7; }));
  EXPECT_EQ(bench.total().failed, 3U);
  EXPECT_EQ(bench.total().in_flight, 0U);
  EXPECT_TRUE(adds_up(bench->statistics()));
}

TEST(Scheduler, S3_F14_AsynchronousWorkIsMeasuredAtItsTimeOnTheDevice) {
  FakeClock clock;
  Bench bench({spec(0, 4.0)}, {}, clock);
  const TimePoint before = clock.now();
  EXPECT_TRUE(bench->run(asynchronous(20)));
  EXPECT_EQ(clock.now() - before, milliseconds(5)) << "work completes when the device does, not when it is enqueued";
  EXPECT_NEAR(bench.total().rate.value(), 200.0, 1e-6);
  EXPECT_TRUE(bench->submit(asynchronous(20)).get());
  EXPECT_NEAR(bench.total().rate.value(), 200.0, 1e-6);
}

TEST(Scheduler, S3_F14_AFailureOnTheDeviceIsTheWorksFailure) {
  FakeClock clock;
  simulated::SimulatedSpec faulty = spec(0);
  faulty.faults.push_back(at_launch(simulated::SimulatedFault::Kind::error, 1));
  Bench bench({faulty}, {}, clock);
  const auto result = bench->run(asynchronous(1));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().where, "sim-0");
  EXPECT_EQ(bench.total().failed, 1U);
  EXPECT_TRUE(bench->run(asynchronous(1))) << "the next one gets a fresh stream";
}

TEST(Scheduler, S3_F14_ADeviceThatHangsEndsAtTheDeadline) {
  FakeClock clock;
  simulated::SimulatedSpec faulty = spec(0);
  faulty.faults.push_back(at_launch(simulated::SimulatedFault::Kind::hang, 1));
  Bench bench({faulty}, {}, clock);
  TaskOptions work;
  work.deadline = Deadline::after(clock, milliseconds(30));
  EXPECT_EQ(bench->run(asynchronous(1), work).error().code, ErrorCode::timeout);
  EXPECT_EQ(clock.now().time_since_epoch(), milliseconds(30));
  EXPECT_EQ(bench.total().failed, 1U);
}

TEST(Scheduler, S3_F14_ADeviceThatHangsInALaneEndsAtTheDeadline) {
  FakeClock clock(FakeClock::Sleepers::block);
  simulated::SimulatedSpec faulty = spec(0);
  faulty.faults.push_back(at_launch(simulated::SimulatedFault::Kind::hang, 1));
  Bench bench({faulty}, {}, clock);
  TaskOptions work;
  work.deadline = Deadline::after(clock, milliseconds(30));
  // Late only when it runs: work that is late before it starts would be cancelled, not failed.
  Gate begun;
  const auto hangs = asynchronous(1);
  auto task = bench->submit([&](TaskContext& execution) { return begun.meet(1), hangs(execution); }, work);
  EXPECT_TRUE(begun.wait_for_arrivals(1));
  clock.advance(milliseconds(30));
  EXPECT_EQ(task.get().error().code, ErrorCode::timeout);
  EXPECT_EQ(bench.total().failed, 1U);
}

}  // namespace
}  // namespace berth::scheduler
