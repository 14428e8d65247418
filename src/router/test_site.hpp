// Shared by tests of the router: devices, a scheduler and a router, and work that
// can be held at a gate.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "berth/fake_clock.hpp"
#include "berth/router.hpp"
#include "device/simulated/backend.hpp"
#include "ledger/test_folder.hpp"

namespace berth::router {

inline std::string user(int i) { return "user-" + std::to_string(i); }
inline DeviceId gpu(int i) { return DeviceId("gpu-" + std::to_string(i)); }

// A pool of simulated devices, a scheduler and a router on virtual time. The shard
// table is not kept unless the options name a file.
struct Site {
  explicit Site(int devices, RouterOptions options = {}, std::uint32_t lanes = 1) {
    std::vector<std::shared_ptr<Device>> made;
    for (int i = 0; i < devices; ++i) made.push_back(device(i, lanes));
    PoolOptions pool_options;
    pool_options.poll = false;
    pool_options.clock = &clock;
    pool = *Pool::open(std::move(made), pool_options);
    scheduler = *Scheduler::start(*pool);
    restart(std::move(options));
  }
  void restart(RouterOptions options = {}) {
    router.reset();
    if (!options.table_file) options.table_file = "";
    router = *Router::start(*scheduler, std::move(options));
  }
  std::shared_ptr<Device> device(int i, std::uint32_t lanes = 1) {
    simulated::SimulatedSpec spec;
    spec.id = gpu(i).text();
    spec.concurrency = lanes;
    return simulated::make_simulated_device(spec, clock);
  }
  // The device on which a piece of work for this key really runs.
  Result<DeviceId> served(const std::string& key) {
    auto task = router->submit(key, [](TaskContext& execution) { return execution.device().id(); });
    Result<TaskResult<DeviceId>> got = task.get();
    if (!got) return got.error();
    return got->value;
  }
  // An answer may reach its caller before the router has counted the work as ended;
  // this waits until it has.
  void wait_until_counted() {
    const auto under_way = [&] {
      const RouterStatistics statistics = router->statistics();
      return std::any_of(statistics.shards.begin(), statistics.shards.end(),
                         [](const ShardStatistics& shard) { return shard.in_flight > 0; });
    };
    while (under_way()) std::this_thread::yield();
  }
  // A key that this device owns.
  std::string key_of(const DeviceId& device, int skip = 0) {
    for (int i = 0;; ++i)
      if (*router->route(user(i)) == device && skip-- == 0) return user(i);
  }

  FakeClock clock{FakeClock::Sleepers::block};
  std::optional<Pool> pool;
  std::optional<Scheduler> scheduler;
  std::optional<Router> router;
};

// An environment variable for one test.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* const old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~EnvironmentVariable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

// Work that signals its start and ends when the gate is opened.
struct Gate {
  std::promise<void> begun_promise, open_promise;
  std::shared_future<void> begun{begun_promise.get_future()}, open{open_promise.get_future()};
  auto work() {
    return [this](TaskContext& execution) {
      begun_promise.set_value();
      open.wait();
      return execution.device().id();
    };
  }
};

}  // namespace berth::router
