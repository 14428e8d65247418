#include <gtest/gtest.h>

#include <map>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <thread>

#include "scheduler/fixture.hpp"

namespace berth::scheduler {
namespace {

TEST(Scheduler, S3_17_MapGivesOneResultPerItemInOrder) {
  Bench bench(3);
  std::vector<int> items(100);
  for (int i = 0; i < 100; ++i) items[i] = i;
  const auto results = bench->map(items, [](TaskContext&, int i) -> Result<int> {
    if (i % 10 == 3) return failure(ErrorCode::invalid_argument);
    if (i % 10 == 7) throw std::runtime_error("seven");
    return i * i;
  });
  ASSERT_EQ(results.size(), 100U);
  for (int i = 0; i < 100; ++i) {
    if (i % 10 == 3)
      EXPECT_EQ(results[i].error().code, ErrorCode::invalid_argument);
    else if (i % 10 == 7)
      EXPECT_EQ(results[i].error().code, ErrorCode::work_failed);
    else
      EXPECT_EQ(results[i]->value, i * i);
  }
  EXPECT_TRUE(bench->map(std::vector<int>{}, [](TaskContext&, int i) { return i; }).empty());
  EXPECT_EQ(bench.total().dispatched, 100U);
  EXPECT_EQ(bench.total().failed, 20U);
  EXPECT_TRUE(adds_up(bench->statistics()));
}

TEST(Scheduler, S3_T11_SixFramesDoubledOverTwoDevicesAreInOrder) {
  Bench bench(2, with_policy("round_robin"));
  const auto results = bench->map(std::vector{1, 2, 3, 4, 5, 6}, [](TaskContext&, int i) { return 2 * i; });
  ASSERT_EQ(results.size(), 6U);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(results[i]->value, 2 * (i + 1));
  EXPECT_EQ(bench->statistics().devices[0].completed, 3U) << "turns are kept";
  EXPECT_EQ(bench->statistics().devices[1].completed, 3U);
}

TEST(Scheduler, S3_F2_MapKeepsTheShareOfADeviceThatIsSlowerThanItsWeight) {
  Bench bench({spec(0, 1.0), spec(1, 50.0)}, with_policy("weighted_capacity", 1));
  const auto work = asynchronous(0.5);
  const auto results = bench->map(std::vector<int>(40), [&](TaskContext& execution, int) { return work(execution); });
  for (const auto& result : results) EXPECT_TRUE(result);
  EXPECT_EQ(bench->statistics().devices[0].completed, 20U) << "map waits for the turn of this device";
  EXPECT_EQ(bench->statistics().devices[1].completed, 20U);
}

TEST(Scheduler, MapBindsLateSoThatASlowDeviceGetsLess) {
  Bench bench(2, with_policy("least_loaded", 1));
  Gate gate;
  std::atomic<int> left{39};
  // One device is stuck with its first item until the other has done the rest,
  // but for the one that waits behind it.
  const auto results = bench->map(std::vector<int>(40), [&](TaskContext& execution, int) {
    if (execution.device().id() == sim(0)) return gate.pass();
    if (left.fetch_sub(1) == 2) gate.open();
    return true;
  });
  int slow = 0;
  for (const auto& result : results) {
    EXPECT_TRUE(result->value);
    slow += result->device == sim(0);
  }
  EXPECT_LE(slow, 3);
}

TEST(Scheduler, MapGivesEveryItemItsOwnWork) {
  Bench bench(2, with_policy("least_loaded", 1));
  std::mutex mutex;
  std::vector<int> started;
  const auto results = bench->map(
      std::vector{1, 5, 3},
      [&](TaskContext& execution, int item) {
        const std::lock_guard lock(mutex);
        started.push_back(item);
        return execution.device().id();
      },
      [](int item) {
        TaskOptions work = only_on(1);
        work.requirements.cost = item;
        return work;
      });
  EXPECT_EQ(started, (std::vector{5, 3, 1})) << "dear items start first";
  for (const auto& result : results) EXPECT_EQ(result->value, sim(1));
}

TEST(Scheduler, AWorkFunctionThatThrowsFailsItsItemOnly) {
  Bench bench(2);
  const auto results = bench->map(
      std::vector{1, 2, 3}, [](TaskContext&, int i) { return i; },
      [](int i) {
        if (i == 2) throw std::runtime_error("no idea");
        return TaskOptions{};
      });
  EXPECT_EQ(results[0]->value, 1);
  EXPECT_EQ(results[1].error().code, ErrorCode::work_failed);
  EXPECT_EQ(results[2]->value, 3);
}

TEST(Scheduler, MapsFromTwoThreadsDoNotWaitForEachOther) {
  Bench bench(2, with_policy("least_loaded", 1));
  Gate gate;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      const auto results = bench->map(std::vector{1}, [&](TaskContext&, int) { return gate.meet(2); });
      EXPECT_TRUE(results[0]->value) << "the items of both maps run at the same time";
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Scheduler, MapInsideALanesWorkRunsInline) {
  Bench bench(2, with_policy("least_loaded", 1));
  const auto outer = bench->map(std::vector{1, 2, 3, 4}, [&](TaskContext&, int i) {
    const auto lane = std::this_thread::get_id();
    int sum = 0;
    for (const auto& inner : bench->map(std::vector{1, 2, 3}, [&](TaskContext&, int j) {
           EXPECT_EQ(std::this_thread::get_id(), lane);
           return i * j;
         }))
      sum += inner->value;
    return sum;
  });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(outer[i]->value, 6 * (i + 1));
}

TEST(Scheduler, MapIsNotStoppedByAFullQueue) {
  SchedulerOptions options = with_policy("least_loaded", 1);
  options.queue_capacity = 1;
  Bench bench(1, options);
  for (const auto& result : bench->map(std::vector<int>(20, 1), [](TaskContext&, int i) { return i; }))
    EXPECT_TRUE(result);
}

TEST(Scheduler, MapUsesOtherDevicesWhenThePreferredOneIsFull) {
  Bench bench(3, with_policy("least_loaded", 1));
  TaskOptions options;
  options.requirements.prefer = {sim(2)};
  std::map<DeviceId, int> items;
  for (const auto& result : bench->map(std::vector<int>(60), [](TaskContext&, int i) { return i; }, options))
    ++items[result->device];
  EXPECT_GT(items[sim(2)], 0);
  EXPECT_GT(items[sim(0)], 0) << "a lane and one waiting item fill the preferred device";
}

TEST(Scheduler, MapStartsTheItemOfTheHighestCostFirst) {
  Bench bench(1, with_policy("least_loaded", 1));
  std::vector<double> order;
  const auto results = bench->map(
      std::vector<double>{1, 2e6, 9e6, 4e6},
      [&](TaskContext&, double cost) {
        order.push_back(cost);  // one lane
        return 0;
      },
      [](double cost) {
        TaskOptions options;
        options.requirements.cost = cost;
        return options;
      });
  for (const auto& result : results) EXPECT_TRUE(result);
  EXPECT_EQ(order, (std::vector<double>{9e6, 4e6, 2e6, 1}));
}

// Teaches the scheduler what a unit costs on each device.
void learn(Bench& bench, FakeClock& clock, std::vector<Duration> unit_costs) {
  for (std::size_t i = 0; i < unit_costs.size(); ++i)
    ASSERT_TRUE(bench->run([&](TaskContext&) { clock.advance(unit_costs[i]); }, only_on(i)));
}

TEST(Scheduler, MapLeavesASlowDeviceOutNearTheEnd) {
  FakeClock clock(FakeClock::Sleepers::block);
  Bench bench(2, with_policy("least_loaded", 1), clock);
  learn(bench, clock, {milliseconds(100), milliseconds(1)});
  // The slow device would be at the second item long after the fast one had
  // done both.
  for (const auto& result : bench->map(std::vector{1, 2}, [](TaskContext&, int i) { return i; }))
    EXPECT_EQ(result->device, sim(1));
}

TEST(Scheduler, MapUsesASlowDeviceWhileThereIsEnoughToDo) {
  FakeClock clock(FakeClock::Sleepers::block);
  Bench bench(2, with_policy("expected_finish", 1), clock);
  learn(bench, clock, {milliseconds(100), milliseconds(1)});
  Gate gate;
  // The fast device does not begin its third of a thousand items before the slow one has begun its first.
  std::atomic<int> fast{0};
  const auto results = bench->map(std::vector<int>(1000), [&](TaskContext& execution, int) {
    if (execution.device().id() == sim(0)) gate.open();
    return execution.device().id() == sim(0) || fast.fetch_add(1) < 2 || gate.pass();
  });
  for (const auto& result : results) EXPECT_TRUE(result->value);
}

TEST(RealDevices, MapKeepsEveryDeviceOfTheMachineBusyAtOnce) {
  // Two devices of PoCL if it is installed, unless the environment names others.
  setenv("POCL_DEVICES", "basic basic", 0);
  BackendOptions backends;
  backends.host_devices = 2;
  auto pool = std::move(Pool::open_all(backends)).value();
  auto scheduler = std::move(Scheduler::start(pool, with_policy("round_robin", 1))).value();
  const std::size_t count = pool.devices().size();
  ASSERT_GE(count, 2U);
  bool opencl = false;
  for (const auto& device : pool.devices()) opencl |= device->info().backend == "opencl";
  if (!opencl) std::fprintf(stderr, "SKIPPED in part: no OpenCL device here, host devices only\n");

  Gate gate;
  const auto results =
      scheduler.map(std::vector<std::size_t>(count, count), [&](TaskContext& execution, std::size_t n) {
        // Each item also does real work: it copies bytes to the device and back.
        std::vector<std::byte> out(4096, std::byte{7});
        std::vector<std::byte> back(4096);
        Result<Stream*> stream = execution.stream();
        Result<Buffer> buffer = execution.device().allocate(out.size());
        if (!stream || !buffer) return false;
        if (!(*stream)->copy_in(*buffer, 0, out) || !(*stream)->copy_out(*buffer, 0, back)) return false;
        return (*stream)->wait().has_value() && back == out && gate.meet(n);
      });
  std::set<DeviceId> used;
  for (const auto& result : results) {
    ASSERT_TRUE(result) << result.error().to_text();
    EXPECT_TRUE(result->value) << "on " << result->device;
    used.insert(result->device);
  }
  EXPECT_EQ(used.size(), count);
}

TEST(RealDevices, HostKernelsComputeThroughTheScheduler) {
  BackendOptions backends;
  backends.host_devices = 2;
  auto backend = std::move(make_backend("host", backends)).value();
  std::vector<std::shared_ptr<Device>> devices;
  const std::vector<DeviceInfo> listed = std::move(backend->list()).value();
  for (const DeviceInfo& info : listed) devices.push_back(std::move(backend->open(info.id)).value());
  auto pool = std::move(Pool::open(std::move(devices))).value();
  auto scheduler = std::move(Scheduler::start(pool)).value();

  KernelSource doubling;
  doubling.entry = "doubling";
  doubling.host = [](const LaunchShape&, std::uint32_t begin, std::uint32_t end, const HostArguments& arguments) {
    for (std::uint32_t i = begin; i < end; ++i) arguments.buffer<std::uint32_t>(0)[i] *= 2;
  };
  std::vector<std::vector<std::uint32_t>> frames(32, std::vector<std::uint32_t>(256));
  for (std::size_t i = 0; i < frames.size(); ++i) frames[i].assign(256, static_cast<std::uint32_t>(i));

  // The results are read after map: the bytes arrive when the stream drained.
  const auto results = scheduler.map(frames, [&](TaskContext& execution, const auto& frame) -> Result<void> {
    auto& bytes = const_cast<std::vector<std::uint32_t>&>(frame);
    Result<Stream*> stream = execution.stream();
    if (!stream) return std::move(stream).error();
    Result<Buffer> buffer = execution.device().allocate(bytes.size() * sizeof(std::uint32_t));
    if (!buffer) return std::move(buffer).error();
    Result<std::shared_ptr<LoadedKernel>> kernel = execution.device().load(doubling);
    if (!kernel) return std::move(kernel).error();
    const std::vector<Argument> arguments{Argument(*buffer)};
    LaunchShape shape;
    shape.global = {256, 1, 1};
    if (auto in = (*stream)->copy_in(*buffer, 0, std::as_bytes(std::span(bytes))); !in) return in;
    if (auto ran = (*stream)->launch(**kernel, shape, arguments); !ran) return ran;
    if (auto out = (*stream)->copy_out(*buffer, 0, std::as_writable_bytes(std::span(bytes))); !out) return out;
    return (*stream)->wait(execution.deadline());
  });
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(results[i]) << results[i].error().to_text();
    EXPECT_EQ(frames[i], std::vector<std::uint32_t>(256, static_cast<std::uint32_t>(2 * i)));
  }
}

}  // namespace
}  // namespace berth::scheduler
