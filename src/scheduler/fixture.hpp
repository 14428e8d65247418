// What the tests of this folder share: gates to hold work at, simulated devices,
// a pool and a scheduler over them, and the check that the counters add up.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "berth/fake_clock.hpp"
#include "berth/scheduler.hpp"
#include "device/simulated/backend.hpp"

namespace berth::scheduler {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How long a test waits for other threads before it fails.
constexpr auto patience = seconds(20);
inline Deadline soon() { return Deadline::after(real_clock(), patience); }

// Closed until opened; pass() waits for it.
class Gate {
 public:
  bool pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    return changed_.wait_for(lock, patience, [&] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool wait_for_arrivals(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return arrived_ >= count; });
  }
  // Waits until `count` threads have called it: true only if they overlap.
  bool meet(std::size_t count) {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    return changed_.wait_for(lock, patience, [&] { return arrived_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t arrived_ = 0;
  bool open_ = false;
};

inline simulated::SimulatedSpec spec(std::size_t i, double speed = 1.0) {
  simulated::SimulatedSpec spec;
  spec.id = "sim-" + std::to_string(i);
  spec.speed = speed;
  spec.launch_time = Duration::zero();
  return spec;
}

inline simulated::SimulatedFault at_launch(simulated::SimulatedFault::Kind kind, std::uint64_t times) {
  simulated::SimulatedFault fault;
  fault.kind = kind;
  fault.times = times;
  return fault;
}

// Devices, a pool that never polls by itself, and a scheduler over it.
class Bench {
 public:
  explicit Bench(std::vector<simulated::SimulatedSpec> specs, SchedulerOptions options = {},
                 Clock& clock = real_clock()) {
    std::vector<std::shared_ptr<Device>> devices;
    for (simulated::SimulatedSpec& spec : specs)
      devices.push_back(simulated::make_simulated_device(std::move(spec), clock));
    PoolOptions pool_options;
    pool_options.poll = false;
    pool_options.clock = &clock;
    pool = std::move(Pool::open(std::move(devices), pool_options)).value();
    scheduler = std::move(Scheduler::start(*pool, std::move(options))).value();
  }
  explicit Bench(std::size_t devices, SchedulerOptions options = {}, Clock& clock = real_clock())
      : Bench(specs(devices), std::move(options), clock) {}

  static std::vector<simulated::SimulatedSpec> specs(std::size_t count) {
    std::vector<simulated::SimulatedSpec> specs;
    for (std::size_t i = 0; i < count; ++i) specs.push_back(spec(i));
    return specs;
  }
  Scheduler* operator->() { return &*scheduler; }
  DeviceStatistics total() const { return scheduler->statistics().total(); }

  std::optional<Pool> pool;
  std::optional<Scheduler> scheduler;
};

inline SchedulerOptions with_policy(std::string policy, std::optional<std::size_t> lanes = {}) {
  SchedulerOptions options;
  options.policy = std::move(policy);
  options.lanes_per_device = lanes;
  return options;
}

inline DeviceId sim(std::size_t i) { return DeviceId("sim-" + std::to_string(i)); }

inline TaskOptions only_on(std::size_t i) {
  TaskOptions work;
  work.requirements.only = {sim(i)};
  return work;
}

inline void nothing(TaskContext&) {}
inline Error failure(ErrorCode code = ErrorCode::work_failed) { return {code, "as asked"}; }

// Work that takes `cost` milliseconds of a device of speed 1, without the
// calling thread noticing.
inline auto asynchronous(double cost) {
  return [cost](TaskContext& execution) -> Result<void> {
    Result<Stream*> stream = execution.stream();
    if (!stream) return std::move(stream).error();
    return simulated::simulated_work(**stream, cost);
  };
}

inline testing::AssertionResult adds_up(const Statistics& statistics) {
  std::vector<DeviceStatistics> all = statistics.devices;
  all.push_back(statistics.total());
  for (const DeviceStatistics& s : all) {
    if (s.dispatched != s.completed + s.failed + s.cancelled + s.in_flight) {
      return testing::AssertionFailure() << "device '" << s.device << "': dispatched " << s.dispatched << ", completed "
                                         << s.completed << ", failed " << s.failed << ", cancelled " << s.cancelled
                                         << ", in flight " << s.in_flight;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace berth::scheduler
