// What happens to work when the queue is full.

#include <atomic>
#include <thread>

#include "scheduler/fixture.hpp"

namespace berth::scheduler {
namespace {

using Number = Result<TaskResult<int>>;

class FullQueue : public testing::Test {
 protected:
  FullQueue() {
    SchedulerOptions options = with_policy("least_loaded", 1);
    options.queue_capacity = 1;
    bench.emplace(1, options, clock);
    running = bench->scheduler->submit([&](TaskContext&) { gate.pass(); });
    EXPECT_TRUE(gate.wait_for_arrivals(1));
    waiting = bench->scheduler->submit(nothing);
  }
  ~FullQueue() override { gate.open(); }
  static TaskOptions when(WhenFull choice) {
    TaskOptions options;
    options.when_full = choice;
    return options;
  }

  FakeClock clock{FakeClock::Sleepers::block};
  Gate gate;
  std::optional<Bench> bench;
  Task<NoValue> running, waiting;
};

TEST_F(FullQueue, RejectsByDefault) {
  EXPECT_EQ(bench->scheduler->submit(nothing).get(soon()).error().code, ErrorCode::queue_full);
}

TEST_F(FullQueue, WaitsForRoom) {
  std::atomic<bool> returned{false};
  std::thread producer([&] {
    auto task = bench->scheduler->submit([](TaskContext&) { return 9; }, when(WhenFull::wait));
    returned = true;
    EXPECT_EQ(task.get(soon())->value, 9);
  });
  while (bench->total().in_flight != 3) std::this_thread::yield();  // the third has its device and waits for a place
  EXPECT_FALSE(returned);
  gate.open();
  producer.join();
  EXPECT_TRUE(adds_up(bench->scheduler->statistics()));
}

TEST_F(FullQueue, WaitsForRoomUntilTheDeadline) {
  TaskOptions options = when(WhenFull::wait);
  options.deadline = {clock.now() + seconds(1)};
  std::thread other([&] {
    while (bench->total().in_flight != 3) std::this_thread::yield();
    clock.advance(seconds(1));
  });
  EXPECT_EQ(bench->scheduler->submit(nothing, options).get(soon()).error().code, ErrorCode::timeout);
  EXPECT_EQ(bench->total().in_flight, 2U) << "the charge of the refused work was given back";
  other.join();
}

TEST_F(FullQueue, RunsOnTheCallersThread) {
  const auto here = std::this_thread::get_id();
  auto task = bench->scheduler->submit([&](TaskContext&) { return std::this_thread::get_id() == here; },
                                       when(WhenFull::run_here));
  EXPECT_TRUE(task.ready());
  EXPECT_TRUE(task.get(soon())->value);
}

TEST_F(FullQueue, WorkThatWaitsForRoomInsideItsOwnLaneRunsInline) {
  waiting.cancel();
  auto outer = bench->scheduler->submit([&](TaskContext&) {
    auto first = bench->scheduler->submit(nothing, when(WhenFull::wait));   // takes the only place
    auto second = bench->scheduler->submit(nothing, when(WhenFull::wait));  // would wait for this lane
    return second.ready();
  });
  gate.open();
  const auto result = outer.get(soon());
  ASSERT_TRUE(result) << result.error().to_text();
  EXPECT_TRUE(result->value);
}

TEST(Scheduler, ProducersThatWaitForRoomAllGetTheirTurn) {
  SchedulerOptions options;
  options.queue_capacity = 2;
  Bench bench(2, options);
  std::atomic<int> done{0};
  std::vector<std::thread> producers;
  for (int p = 0; p < 4; ++p) {
    producers.emplace_back([&] {
      TaskOptions waits;
      waits.when_full = WhenFull::wait;
      for (int i = 0; i < 500; ++i)
        bench->submit([](TaskContext&) {}, waits).then([&](Result<TaskResult<NoValue>> ended) {
          if (ended) ++done;
        });
    });
  }
  for (std::thread& producer : producers) producer.join();
  bench.scheduler.reset();
  EXPECT_EQ(bench.pool->statistics().total().completed + bench.pool->statistics().total().cancelled, 2000U);
  EXPECT_EQ(static_cast<std::uint64_t>(done), bench.pool->statistics().total().completed);
}

}  // namespace
}  // namespace berth::scheduler
