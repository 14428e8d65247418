// A scheduler used from several threads, and changed while work is running.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <thread>

#include "berth/scheduler.hpp"
#include "scheduler/fixture.hpp"

namespace berth::scheduler {
namespace {

TEST(Scheduler, S3_18_EveryOperationMayBeUsedFromSeveralThreads) {
  Bench bench(3);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        EXPECT_TRUE(bench->run(nothing));
        EXPECT_EQ(bench->submit([i](TaskContext&) { return i; }).get()->value, i);
        EXPECT_TRUE(bench->select());
        for (const auto& result : bench->map(std::vector{1, 2}, [](TaskContext&, int item) { return item; }))
          EXPECT_TRUE(result);
        const DeviceStatistics so_far = bench.total();
        EXPECT_LE(so_far.completed, so_far.dispatched);
        EXPECT_EQ(bench->work_class(i % 2 ? "odd" : "even"), bench->work_class(i % 2 ? "odd" : "even"));
        auto withdrawn = bench->submit(nothing);
        withdrawn.cancel();
        static_cast<void>(withdrawn.get());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const DeviceStatistics total = bench.total();
  EXPECT_EQ(total.dispatched, 4000U);
  EXPECT_GE(total.completed, 3200U) << "only the withdrawn work may have been cancelled";
  EXPECT_EQ(total.completed + total.cancelled, 4000U);
  EXPECT_TRUE(adds_up(bench->statistics()));
}

TEST(Scheduler, S3_F8_CallersAtTheSameMomentGetDifferentDevices) {
  FakeClock clock;  // nothing takes any time, so no device looks faster than another
  Bench bench(4, {}, clock);
  for (int round = 0; round < 20; ++round) {
    Gate gate;
    std::mutex mutex;
    std::set<DeviceId> used;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        const auto done = bench->run([&](TaskContext&) { return gate.meet(4); });
        EXPECT_TRUE(done->value);
        const std::lock_guard lock(mutex);
        used.insert(done->device);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(used.size(), 4U) << "round " << round;
  }
}

TEST(Scheduler, S3_F15_DevicesComeAndGoWhileWorkGoesOn) {
  Bench bench(1, with_policy("least_loaded", 1));
  Gate gate;
  auto running = bench->submit([&](TaskContext&) { EXPECT_TRUE(gate.pass()); });
  auto waiting = bench->submit(nothing);
  ASSERT_TRUE(gate.wait_for_arrivals(1));

  ASSERT_TRUE(bench.pool->join(simulated::make_simulated_device(spec(1), real_clock())));
  EXPECT_EQ(bench->submit(nothing).get()->device, sim(1)) << "a device that joined gets lanes";
  ASSERT_TRUE(bench.pool->leave(sim(0)));
  EXPECT_EQ(bench->run(nothing)->device, sim(1));
  EXPECT_EQ(bench->submit(nothing, only_on(0)).get().error().code, ErrorCode::no_eligible_device);
  gate.open();
  EXPECT_EQ(running.get()->device, sim(0)) << "a device that left finishes its queue";
  EXPECT_EQ(waiting.get()->device, sim(0));
}

TEST(Scheduler, S3_F15_AFullQueueRefusesWork) {
  SchedulerOptions options = with_policy("least_loaded", 1);
  options.queue_capacity = 3;
  Bench bench(1, options);
  Gate gate;
  auto running = bench->submit([&](TaskContext&) { EXPECT_TRUE(gate.pass()); });
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  std::vector<Task<NoValue>> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(bench->submit(nothing));
  auto refused = bench->submit(nothing);
  ASSERT_TRUE(refused.ready());
  EXPECT_EQ(refused.get().error().code, ErrorCode::queue_full);
  waiting[1].cancel();
  auto fits = bench->submit(nothing);
  EXPECT_FALSE(fits.ready()) << "work that was withdrawn made room";
  gate.open();
  EXPECT_TRUE(running.get());
  EXPECT_TRUE(fits.get());
  EXPECT_TRUE(adds_up(bench->statistics()));
}

TEST(Scheduler, S3_F15_ThePolicyCanBeChangedWhileWorkGoesOn) {
  Bench bench(3, with_policy("round_robin"));
  EXPECT_EQ(bench->policy().name, "round_robin");
  ASSERT_TRUE(bench->set_policy("weighted_capacity"));
  EXPECT_EQ(bench->policy().name, "weighted_capacity");
  ASSERT_TRUE(bench.pool->set_weight(sim(2), 100));
  EXPECT_EQ(bench->run(nothing)->device, sim(2));
  EXPECT_EQ(bench->set_policy("weighted_capacty").error().code, ErrorCode::not_found);
  EXPECT_EQ(bench->policy().name, "weighted_capacity");
}

TEST(Scheduler, S3_F16_StatisticsAreOneCutWithAVersion) {
  Bench bench(4);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        EXPECT_TRUE(bench->run(nothing));
        EXPECT_FALSE(bench->run([](TaskContext&) -> Result<void> { return failure(ErrorCode::io); }));
        EXPECT_TRUE(bench->run(nothing));
      }
    });
  }
  Statistics last;
  for (int i = 0; i < 300; ++i) {
    const Statistics now = bench->statistics();
    EXPECT_TRUE(adds_up(now));
    EXPECT_LE(now.total().in_flight, 2U);
    EXPECT_GE(now.total().dispatched, last.total().dispatched);
    EXPECT_TRUE(now.total().dispatched == last.total().dispatched || now.version != last.version);
    last = now;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const std::uint64_t quiet = bench->statistics().version;
  EXPECT_EQ(bench->statistics().version, quiet);
}

class Mixture : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Mixture, EveryPieceOfWorkEndsOnceAndTheSumsHold) {
  set_assert_seed(GetParam());
  SeededRandom random(GetParam());
  FakeClock clock(FakeClock::Sleepers::block);
  std::vector<simulated::SimulatedSpec> specs = Bench::specs(3);
  specs[1].concurrency = 2;
  SchedulerOptions options = with_policy(random.below(2) ? "least_loaded" : "power_of_two");
  options.queue_capacity = 8;
  Bench bench(specs, options, clock);

  std::vector<Task<int>> tasks;
  std::atomic<int> ran{0};
  int accepted_results = 0;
  for (int step = 0; step < 400; ++step) {
    TaskOptions work;
    work.requirements.priority = static_cast<Priority>(random.below(3));
    work.requirements.cost = 1 + static_cast<double>(random.below(5));
    work.may_run_twice = random.below(2) == 0;
    if (random.below(3) == 0) work.deadline = Deadline::after(clock, Duration(random.below(3)));
    const auto kind = random.below(8);
    const auto closure = [&ran, kind](TaskContext& execution) -> Result<int> {
      ++ran;
      if (kind == 0) return failure(ErrorCode::io);
      if (kind == 1) throw std::runtime_error("mixture");
      if (kind == 2 && !execution.stream()) return failure(ErrorCode::internal);
      return 1;
    };
    switch (random.below(7)) {
      case 0: static_cast<void>(bench->run(closure, work)); break;
      case 1:
        if (!tasks.empty()) tasks[random.below(tasks.size())].cancel();
        break;
      case 2:
        if (!tasks.empty()) {
          const std::size_t which = random.below(tasks.size());
          accepted_results += tasks[which].get().has_value();
          tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(which));
        }
        break;
      case 3: clock.advance(Duration(1)); break;
      case 4:
        for (const auto& result :
             bench->map(std::vector{1, 2, 3}, [&](TaskContext& e, int) { return closure(e); }, work))
          static_cast<void>(result);
        break;
      default: tasks.push_back(bench->submit(closure, work)); break;
    }
    ASSERT_TRUE(adds_up(bench->statistics())) << "seed " << GetParam() << " step " << step;
  }
  for (std::size_t i = 0; i < tasks.size() / 2; ++i) static_cast<void>(tasks[i].get());
  bench.scheduler.reset();
  for (auto& task : tasks) EXPECT_TRUE(task.ready());
  for (const DeviceStatus& device : bench.pool->status()) EXPECT_EQ(device.view.in_flight, 0U);
  EXPECT_GT(ran.load(), 0);
  EXPECT_GT(accepted_results, 0);
}
INSTANTIATE_TEST_SUITE_P(Seeds, Mixture, testing::Range<std::uint64_t>(1, 13));

TEST(Scheduler, CancellersAndLanesNeverBothEndAPieceOfWork) {
  Bench bench(2, with_policy("least_loaded", 2));
  std::atomic<int> ran{0};
  int cancelled = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<Task<NoValue>> tasks;
    for (int i = 0; i < 8; ++i) tasks.push_back(bench->submit([&](TaskContext&) { ++ran; }));
    std::thread canceller([&] {
      for (auto& task : tasks) task.cancel();
    });
    canceller.join();
    for (auto& task : tasks) {
      const auto result = task.get();
      if (result) continue;
      EXPECT_EQ(result.error().code, ErrorCode::cancelled);
      ++cancelled;
    }
  }
  EXPECT_EQ(ran.load() + cancelled, 2400);
  EXPECT_EQ(bench.total().cancelled, static_cast<std::uint64_t>(cancelled));
  EXPECT_TRUE(adds_up(bench->statistics()));
}

}  // namespace
}  // namespace berth::scheduler
