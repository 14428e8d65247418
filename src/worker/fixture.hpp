// What the tests of this folder share: a pool of the devices of one back end with workers on them, and
// waiting for other processes.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

#include "worker/test_tasks.hpp"

namespace berth::worker {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr auto patience = seconds(60);
inline Deadline soon() { return Deadline::after(real_clock(), patience); }

template <class Condition>
bool within_patience(Condition condition) {
  const Deadline deadline = soon();
  while (!condition()) {
    if (deadline.passed(real_clock().now())) return false;
    std::this_thread::yield();
  }
  return true;
}

inline bool is_stopped(pid_t pid) {
  std::FILE* const file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "re");
  char state = 0;
  const int read = file ? std::fscanf(file, "%*d %*s %c", &state) : 0;
  if (file) std::fclose(file);
  return read == 1 && state == 'T';
}

inline bool has_devices(const std::string& backend) {
  const auto devices = make_backend(backend).value()->list();
  return devices && !devices->empty();
}

// The back ends to test workers on; CUDA last, if there is a GPU.
inline std::vector<std::string> backends_here() {
  std::vector<std::string> names{"host", "opencl"};
  if (has_devices("cuda")) names.emplace_back("cuda");
  return names;
}

// Tests that are run on every back end.
template <class Parameter>
class OnBackend : public testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    std::string backend;
    if constexpr (std::is_same_v<Parameter, std::string>)
      backend = this->GetParam();
    else
      backend = std::get<0>(this->GetParam());
    if (!has_devices(backend)) GTEST_SKIP() << "needs a device of " << backend;
  }
};

// A pool of the devices of some back ends, and workers on them.
class Bench {
 public:
  explicit Bench(const std::string& backend, WorkerOptions options = {}, SchedulerOptions scheduling = {})
      : Bench(std::vector{backend}, std::move(options), std::move(scheduling)) {}
  explicit Bench(const std::vector<std::string>& names, WorkerOptions options = {}, SchedulerOptions scheduling = {}) {
    std::vector<std::shared_ptr<Backend>> backends;
    for (const std::string& name : names) backends.push_back(make_backend(name).value());
    PoolOptions pool_options;
    pool_options.machine_wide = false;
    pool = Pool::open_backends(backends, pool_options).value();
    scheduler = Scheduler::start(*pool, std::move(scheduling)).value();
    workers = Workers::start(*scheduler, std::move(options)).value();
    flags_memory = workers->share(sizeof(Flags)).value();
    new (flags_memory.bytes().data()) Flags;
  }
  Flags& flags() { return *reinterpret_cast<Flags*>(flags_memory.bytes().data()); }
  Harmful harmful(Harm kind, int first_times = 1'000'000) {
    return {kind, first_times, flags_memory.as_argument<std::byte>(), 1};
  }
  TaskOptions on(const DeviceId& device, bool may_run_twice = false) {
    TaskOptions options;
    options.requirements.only = {device};
    options.may_run_twice = may_run_twice;
    return options;
  }
  WorkerStatus status(const DeviceId& device) const {
    for (const WorkerStatus& status : workers->status())
      if (status.device == device) return status;
    return {};
  }
  // The id of its only or first device.
  DeviceId first() const { return pool->devices().front()->id(); }
  Health health(const DeviceId& device) const {
    for (const DeviceStatus& status : pool->status())
      if (status.info.id == device) return status.view.health;
    return Health::lost;
  }

  std::optional<Pool> pool;
  std::optional<Scheduler> scheduler;
  std::optional<Workers> workers;
  SharedMemory flags_memory;
};

}  // namespace berth::worker
