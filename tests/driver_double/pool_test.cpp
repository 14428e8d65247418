// A pool of eight GPUs, one of which goes wrong: the other seven are polled and
// used as before, and the pool can be closed.
#include "berth/pool.hpp"

#include <atomic>
#include <thread>

#include "device/deadline_call.hpp"
#include "driver_double/fixture.hpp"

namespace berth::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t gpus = 8;
constexpr std::size_t bad = 3;

// Every kind of call, on one device. Errors are welcome, a crash is not.
void use_everything(Backend& backend, Device& device) {
  static_cast<void>(add_vectors(device, soon()));
  std::vector<std::byte> host(4096);
  if (auto stream = device.open_stream()) {
    auto ordered = (*stream)->allocate(4096), plain = device.allocate(4096);
    auto pinned = device.pin(4096), own = device.pin(host);
    if (ordered && plain) static_cast<void>((*stream)->copy(*plain, 0, *ordered, 0, 4096));
    auto first = (*stream)->record(), second = (*stream)->record();
    if (first) static_cast<void>((*first)->wait(soon()));
    if (second) static_cast<void>((*second)->wait(soon()));
    if (first && second) static_cast<void>((*second)->since(**first));
    if (auto empty = device.load(kernel("empty"))) static_cast<void>((*empty)->occupancy(64));
  }
  static_cast<void>(device.sample());
  static_cast<void>(backend.observe(device.id()));
  if (auto again = backend.open(device.id())) (*again)->close();
}

class PoolOnDouble : public testing::Test {
 protected:
  void begin(const std::string& more = "") {
    ASSERT_NO_FATAL_FAILURE(start("gpus 8\nnvswitch 0-7\n" + more));
    devices_ = open_all(*backend_);
    ASSERT_EQ(devices_.size(), gpus);
    PoolOptions options;
    options.poll_period = 5ms;
    options.poll_deadline = 20ms;
    options.stale_after = 10s;
    auto pool = Pool::open(devices_, options);
    ASSERT_TRUE(works(pool));
    pool_ = *std::move(pool);
    ASSERT_TRUE(works(pool_->wait_ready(soon())));
  }
  void TearDown() override {
    also("calm");
    release();
    pool_.reset();
    devices_.clear();
  }
  // Waits for `condition`; false when it takes too long.
  static bool eventually(const std::function<bool()>& condition) {
    const Deadline deadline = soon();
    while (!condition()) {
      if (deadline.passed(real_clock().now())) return false;
      std::this_thread::yield();
    }
    return true;
  }
  void expect_others_work() {
    for (std::size_t i = 0; i < gpus; ++i) {
      if (i == bad) continue;
      EXPECT_TRUE(works(add_vectors(*devices_[i], soon()))) << i;
    }
    pool_->poll_now();
    const auto all = pool_->status();
    ASSERT_EQ(all.size(), gpus);
    for (std::size_t i = 0; i < gpus; ++i) {
      if (i != bad) {
        EXPECT_EQ(all[i].view.health, Health::healthy) << i;
      }
    }
  }
  Health health(std::size_t device) const { return pool_->status().at(device).view.health; }

  std::unique_ptr<Backend> backend_ = device::make_cuda_backend({});
  std::vector<std::shared_ptr<Device>> devices_;
  std::optional<Pool> pool_;
};

// The calls that are made while a device is used and watched.
std::vector<std::string> calls_in_use() {
  start("gpu");
  const auto backend = device::make_cuda_backend({});
  const auto devices = open_all(*backend);
  std::vector<std::string> called;
  std::vector<std::pair<std::string, long long>> before;
#define BERTH_COUNT(symbol, ...) before.emplace_back(#symbol, count(#symbol));
  BERTH_CUDA_REQUIRED(BERTH_COUNT)
  BERTH_CUDA_OPTIONAL(BERTH_COUNT)
  BERTH_NVML_REQUIRED(BERTH_COUNT)
  BERTH_NVML_OPTIONAL(BERTH_COUNT)
#undef BERTH_COUNT
  use_everything(*backend, *devices.front());
  for (const auto& [symbol, calls] : before) {
    if (count(symbol.c_str()) > calls) called.push_back(symbol);
  }
  return called;
}

TEST_F(PoolOnDouble, AHangingCallHoldsUpItsCallerAndNobodyElse) {
  std::size_t hung = 0;
  for (const std::string& symbol : calls_in_use()) {
    SCOPED_TRACE(symbol);
    ASSERT_NO_FATAL_FAILURE(begin());
    also("hang " + symbol + " gpu=3 times=always");
    std::atomic<bool> ended = false;
    std::thread caller([&, device = devices_[bad]] {
      use_everything(*backend_, *device);
      ended = true;
    });
    // Some calls concern no GPU in particular and do not hang here.
    EXPECT_TRUE(eventually([&] { return count("hung") > 0 || ended; }));
    hung += ended ? 0 : 1;
    expect_others_work();
    pool_.reset();
    EXPECT_TRUE(count("hung") > 0 || ended) << "the pool was closed although a call did not return";
    also("calm");
    release();
    caller.join();
    devices_.clear();
    // The poll that was stuck gives its device back in its own time.
    EXPECT_TRUE(eventually([] { return left_over().empty(); })) << testing::PrintToString(left_over());
    if (HasFailure()) break;
  }
  EXPECT_GT(hung, 45U) << "most calls are about one GPU";
}

TEST_F(PoolOnDouble, AKernelThatNeverEndsHoldsUpNobodyElse) {
  ASSERT_NO_FATAL_FAILURE(begin());
  also("hang kernel gpu=3");
  auto stream = devices_[bad]->open_stream();
  auto empty = devices_[bad]->load(kernel("empty"));
  ASSERT_TRUE(works((*stream)->launch(**empty, {}, {})));
  EXPECT_TRUE(fails_with((*stream)->wait(Deadline::after(real_clock(), 5ms)), ErrorCode::timeout));
  expect_others_work();
  release();
  EXPECT_TRUE(works((*stream)->wait(soon()))) << "a late result is still right";
}

TEST_F(PoolOnDouble, AGpuThatFallsOffTheBusUnderLoadIsLostAndTheOthersGoOn) {
  ASSERT_NO_FATAL_FAILURE(begin("lost cuLaunchKernel gpu=3 at=20"));
  std::vector<std::thread> threads;
  std::vector<Result<void>> last(gpus);
  std::atomic<bool> stop = false;
  for (std::size_t i = 0; i < gpus; ++i) {
    threads.emplace_back([&, i] {
      while (!stop && last[i]) last[i] = add_vectors(*devices_[i], soon());
    });
  }
  EXPECT_TRUE(eventually([&] { return health(bad) == Health::lost; }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < gpus; ++i) {
    if (i == bad) continue;
    EXPECT_TRUE(works(last[i])) << i;
    EXPECT_EQ(health(i), Health::healthy) << i;
  }
  EXPECT_TRUE(fails_with(last[bad], ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(backend_->open(devices_[bad]->id()), ErrorCode::device_lost));
}

TEST_F(PoolOnDouble, WhatTheDriverReportsReachesHealth) {
  struct Report {
    const char* script;
    Health health;
  };
  for (const Report& report : {Report{"event gpu=3 kind=xid code=79", Health::lost},
                               {"event gpu=3 kind=xid code=95", Health::quarantined},
                               {"event gpu=3 kind=ecc", Health::quarantined},
                               {"set 3 recovery_action=1", Health::quarantined},
                               {"event gpu=3 kind=xid code=31", Health::healthy},
                               {"event gpu=3 kind=xid code=13", Health::healthy}}) {
    SCOPED_TRACE(report.script);
    ASSERT_NO_FATAL_FAILURE(begin());
    also(report.script);
    if (report.health == Health::healthy) {
      // Two whole polls later it is still so.
      pool_->poll_now();
      pool_->poll_now();
      EXPECT_EQ(health(bad), report.health) << "the task's fault, not the device's";
    } else {
      // Repeated, because events from before the pool listens are not delivered.
      EXPECT_TRUE(eventually([&] { return also(report.script), health(bad) == report.health; }))
          << to_string(health(bad));
    }
    for (std::size_t i = 0; i < gpus; ++i) {
      if (i != bad) {
        EXPECT_EQ(health(i), Health::healthy) << i;
      }
    }
    TearDown();
  }
}

TEST_F(PoolOnDouble, AGpuThatCannotBeOpenedIsInThePoolWithItsReasonAndTheOthersWork) {
  ASSERT_NO_FATAL_FAILURE(start("gpus 8\nerror cuDevicePrimaryCtxRetain gpu=3 code=46 times=always"));
  const std::vector<std::shared_ptr<Backend>> backends{device::make_cuda_backend({})};
  auto pool = Pool::open_backends(backends);
  ASSERT_TRUE(works(pool));
  EXPECT_EQ(pool->device_count(), gpus);
  EXPECT_EQ(pool->devices().size(), gpus - 1);
  const auto status = pool->status();
  ASSERT_TRUE(status[bad].error.has_value());
  EXPECT_EQ(status[bad].error->driver->code, 46);
  for (const auto& device : pool->devices()) EXPECT_TRUE(works(add_vectors(*device, soon())));
}

TEST_F(PoolOnDouble, ADriverThatHangsWhenItIsListedIsReportedAndThePoolOpensWithoutIt) {
  ASSERT_NO_FATAL_FAILURE(start("gpus 8\nhang cuDeviceGetCount times=always"));
  PoolOptions options;
  options.driver_deadline = 1s;
  auto pool = Pool::open_all({}, std::move(options));
  ASSERT_TRUE(works(pool));
  EXPECT_TRUE(pool->device(DeviceId("host")));
  const auto failed = pool->failed_backends();
  ASSERT_FALSE(failed.empty());
  EXPECT_EQ(failed[0].backend, "cuda");
  EXPECT_EQ(failed[0].error.code, ErrorCode::timeout);
  pool = Error{};
  also("calm");
  release();
  EXPECT_TRUE(eventually([] { return device::detached_threads() == 0; })) << "the late answer was dropped";
}

}  // namespace
}  // namespace berth::test
