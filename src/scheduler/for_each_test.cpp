#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "scheduler/fixture.hpp"

namespace berth::scheduler {
namespace {

// Work of one millisecond per item on a device of speed 1.
Result<void> work_on(TaskContext& task, Range range) { return asynchronous(static_cast<double>(range.size()))(task); }

// One device after the other, so that no device's wait moves the clock while another measures.
template <class F>
void measure_each(Bench& bench, std::size_t devices, std::uint64_t count, F work, TaskOptions options = {}) {
  for (std::size_t i = 0; i < devices; ++i) {
    options.requirements.only = {sim(i)};
    for (const auto& part : bench->for_each(count, work, options)) EXPECT_TRUE(part.result);
  }
}

template <class Parts>
std::map<DeviceId, std::uint64_t> items_by_device(const Parts& parts) {
  std::map<DeviceId, std::uint64_t> items;
  for (const auto& [range, result] : parts) {
    EXPECT_TRUE(result) << result.error().to_text();
    if (result) items[result->device] += range.size();
  }
  return items;
}

TEST(ForEach, EveryIndexIsInExactlyOnePartAndResultsAreInOrder) {
  FakeClock clock;  // nothing takes any time, so the devices stay equal
  Bench bench(3, {}, clock);
  for (const std::uint64_t count : {1, 2, 3, 7, 1000}) {
    std::vector<std::atomic<int>> calls(count);
    const auto parts = bench->for_each(count, [&](TaskContext&, Range range) {
      for (std::uint64_t i = range.begin; i < range.end; ++i) ++calls[i];
      return range.begin;
    });
    EXPECT_EQ(parts.size(), std::min<std::uint64_t>(count, 3));
    std::uint64_t end = 0;
    for (const auto& [range, result] : parts) {
      EXPECT_EQ(range.begin, end);
      EXPECT_EQ(result->value, range.begin);
      end = range.end;
    }
    EXPECT_EQ(end, count);
    for (const std::atomic<int>& called : calls) EXPECT_EQ(called, 1);
  }
  EXPECT_TRUE(adds_up(bench->statistics()));
}

TEST(ForEach, NoItemsGiveNoParts) {
  Bench bench(2);
  EXPECT_TRUE(bench->for_each(0, [](TaskContext&, Range) {}).empty());
  EXPECT_EQ(bench.total().dispatched, 0U);
}

TEST(ForEach, PartsAreProportionalToTheMeasuredSpeeds) {
  FakeClock clock;
  Bench bench({spec(0, 1), spec(1, 3), spec(2, 6)}, {}, clock);
  const auto nothing_to_do = [](TaskContext&, Range) {};
  EXPECT_EQ(items_by_device(bench->for_each(900, nothing_to_do))[sim(0)], 300U)
      << "nothing is measured yet: equal parts";
  measure_each(bench, 3, 100, work_on);
  auto items = items_by_device(bench->for_each(900, nothing_to_do));
  EXPECT_NEAR(static_cast<double>(items[sim(0)]), 90, 9);
  EXPECT_NEAR(static_cast<double>(items[sim(1)]), 270, 27);
  EXPECT_NEAR(static_cast<double>(items[sim(2)]), 540, 54);
}

TEST(ForEach, SpeedsOfItemsThatTakeLessThanANanosecondAreToldApart) {
  FakeClock clock;
  Bench bench({spec(0, 1), spec(1, 3)}, {}, clock);
  measure_each(bench, 2, 2'000'000'000,
               [](TaskContext& task, Range range) { return work_on(task, {0, range.size() / 100'000'000}); });
  auto items = items_by_device(bench->for_each(4'000'000'000, [](TaskContext&, Range) {}));
  EXPECT_NEAR(static_cast<double>(items[sim(0)]), 1e9, 1e8);
  EXPECT_NEAR(static_cast<double>(items[sim(1)]), 3e9, 3e8);
}

TEST(ForEach, ClassesOfWorkHaveSpeedsOfTheirOwn) {
  FakeClock clock;
  Bench bench({spec(0, 1), spec(1, 3)}, {}, clock);
  TaskOptions other;
  other.requirements.work_class = bench->work_class("other");
  measure_each(bench, 2, 100, work_on);
  EXPECT_EQ(items_by_device(bench->for_each(100, [](TaskContext&, Range) {}, other))[sim(0)], 50U);
  EXPECT_LT(items_by_device(bench->for_each(100, [](TaskContext&, Range) {}))[sim(0)], 30U);
}

TEST(ForEach, ADeviceThatWasNotMeasuredCountsAsTheMeanOfTheOthers) {
  FakeClock clock;
  Bench bench({spec(0, 1), spec(1, 3), spec(2, 6)}, {}, clock);
  measure_each(bench, 2, 100, work_on);
  auto items = items_by_device(bench->for_each(600, [](TaskContext&, Range) {}));
  EXPECT_NEAR(static_cast<double>(items[sim(0)]), 100, 2);
  EXPECT_NEAR(static_cast<double>(items[sim(1)]), 300, 2);
  EXPECT_NEAR(static_cast<double>(items[sim(2)]), 200, 2);
}

TEST(ForEach, TheCostOfAnItemIsTheUnitOfWhatIsLearnt) {
  FakeClock clock;
  Bench bench(1, {}, clock);
  TaskOptions options;
  options.requirements.cost = 2;
  EXPECT_EQ(items_by_device(bench->for_each(10, work_on, options))[sim(0)], 10U);
  EXPECT_NEAR(bench->statistics().devices[0].rate.value_or(0), 2000, 1) << "20 units in 10 ms";
}

TEST(ForEach, UnitAndMinimumLimitTheParts) {
  Bench bench(4);
  const auto parts = bench->for_each(300, [](TaskContext&, Range) {}, {}, {.unit = 32, .minimum = 128});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].range, (Range{0, 128}));
  EXPECT_EQ(parts[1].range, (Range{128, 300}));
}

TEST(ForEach, APartMovesWhenItsDeviceFails) {
  std::vector<simulated::SimulatedSpec> specs = Bench::specs(3);
  specs[1].faults = {at_launch(simulated::SimulatedFault::Kind::lost, 1)};
  FakeClock clock;
  Bench bench(specs, {}, clock);
  const auto work = [](TaskContext& task, Range) { return asynchronous(1)(task); };
  TaskOptions twice;
  twice.may_run_twice = true;
  const auto parts = bench->for_each(30, work, twice);
  ASSERT_EQ(parts.size(), 3U);
  for (const auto& [range, result] : parts) {
    ASSERT_TRUE(result) << result.error().to_text();
    EXPECT_NE(result->device, sim(1));
  }
  EXPECT_EQ(bench.total().failed, 1U);
  EXPECT_EQ(bench->for_each(30, work).size(), 2U) << "a lost device gets no part";
  EXPECT_TRUE(adds_up(bench->statistics()));
}

TEST(ForEach, APartThatMayNotRunTwiceFailsAloneAndSaysWhichRange) {
  std::vector<simulated::SimulatedSpec> specs = Bench::specs(3);
  specs[1].faults = {at_launch(simulated::SimulatedFault::Kind::error, 1)};
  FakeClock clock;
  Bench bench(specs, {}, clock);
  const auto parts = bench->for_each(30, [](TaskContext& task, Range) { return asynchronous(1)(task); });
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_TRUE(parts[0].result);
  EXPECT_TRUE(parts[2].result);
  EXPECT_EQ(parts[1].result.error().where, sim(1).text());
  EXPECT_EQ(parts[1].range, (Range{10, 20}));
}

TEST(ForEach, APartRunsElsewhereWhenItsDeviceIsNotEligibleAnyMore) {
  // The policy is first asked for part 0, after the split; from then on the device of part 1 is out of service.
  std::optional<Pool> pool;
  std::atomic<bool> asked{false};
  PoolOptions options;
  options.poll = false;
  options.custom_policy = by_cost("cordons a device when first asked", [&](Candidate) -> std::uint64_t {
    if (!asked.exchange(true)) {
      EXPECT_TRUE(pool->set_intent(sim(1), Intent::cordoned));
    }
    return 0;
  });
  std::vector<std::shared_ptr<Device>> devices;
  for (std::size_t i = 0; i < 2; ++i) devices.push_back(simulated::make_simulated_device(spec(i), real_clock()));
  pool = Pool::open(std::move(devices), options).value();
  const Scheduler scheduler = Scheduler::start(*pool).value();
  const auto parts = scheduler.for_each(10, [](TaskContext&, Range range) { return range.size(); });
  ASSERT_EQ(parts.size(), 2U);
  for (const auto& part : parts) {
    ASSERT_TRUE(part.result) << part.result.error().to_text();
    EXPECT_EQ(part.result->device, sim(0));
    EXPECT_EQ(part.result->value, 5U);
  }
}

TEST(ForEach, WithoutAnEligibleDeviceTheWholeRangeFails) {
  Bench bench(2);
  TaskOptions options;
  options.requirements.only = {sim(7)};
  const auto parts = bench->for_each(10, [](TaskContext&, Range) {}, options);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].range, (Range{0, 10}));
  EXPECT_EQ(parts[0].result.error().code, ErrorCode::no_eligible_device);
}

TEST(ForEach, InsideALanesWorkItRunsInline) {
  Bench bench(2, with_policy("least_loaded", 1));
  const auto outer = bench->for_each(4, [&](TaskContext&, Range) {
    const auto lane = std::this_thread::get_id();
    std::uint64_t sum = 0;
    for (const auto& [range, result] : bench->for_each(100, [&](TaskContext&, Range inner) {
           EXPECT_EQ(std::this_thread::get_id(), lane);
           return inner.size();
         }))
      sum += result->value;
    return sum;
  });
  ASSERT_EQ(outer.size(), 2U);
  for (const auto& part : outer) EXPECT_EQ(part.result->value, 100U);
}

TEST(ForEach, EveryPolicyLeavesAPartOnItsDevice) {
  for (const Policy& policy : policies()) {
    FakeClock clock;
    Bench bench({spec(0, 1), spec(1, 50)}, with_policy(std::string(policy.name), 1), clock);
    for (int call = 0; call < 2; ++call) {
      const auto parts = bench->for_each(510, work_on);
      ASSERT_EQ(parts.size(), 2U);
      for (std::size_t i = 0; i < 2; ++i) {
        ASSERT_TRUE(parts[i].result) << policy.name << ": " << parts[i].result.error().to_text();
        EXPECT_EQ(parts[i].result->device, sim(i)) << policy.name;
      }
    }
  }
}

}  // namespace
}  // namespace berth::scheduler
