// Pool and scheduler over real GPUs. Without one every test here is skipped and
// says why.
#include <gtest/gtest.h>

#include <numeric>

#include "berth/scheduler.hpp"
#include "device/contract_kernels.hpp"

namespace berth {
namespace {

using namespace std::chrono_literals;

Result<std::vector<std::shared_ptr<Device>>> all_gpus() {
  Result<std::unique_ptr<Backend>> backend = make_backend("cuda");
  if (!backend) return std::move(backend).error();
  const auto found = (*backend)->list();
  if (!found) return found.error();
  if (found->empty()) return Error{ErrorCode::no_device, "the CUDA driver finds no GPU"};
  std::vector<std::shared_ptr<Device>> devices;
  for (const DeviceInfo& info : *found) {
    auto device = (*backend)->open(info.id);
    if (!device) return std::move(device).error();
    devices.push_back(*std::move(device));
  }
  return devices;
}

#define BERTH_NEEDS_GPUS(devices) \
  auto devices = all_gpus();      \
  if (!devices) GTEST_SKIP() << "this test needs an NVIDIA GPU: " << devices.error().to_text()

TEST(CudaPool, S4_T7_PoolOfRealGpusCountsResolvesAndReports) {
  BERTH_NEEDS_GPUS(devices);
  PoolOptions options;
  options.poll = false;
  auto pool = Pool::open(*devices, options);
  ASSERT_TRUE(pool.has_value()) << pool.error().to_text();
  pool->poll_now();
  EXPECT_GT(pool->device_count(), 0u);
  const auto next = pool->next_device();
  ASSERT_TRUE(next.has_value()) << next.error().to_text();
  const auto same = pool->device_by_ordinal((*next)->info().ordinal);
  ASSERT_TRUE(same.has_value()) << same.error().to_text();
  EXPECT_EQ((*same)->id(), (*next)->id());
  EXPECT_NE((*same)->native().context, nullptr);
  const auto best = pool->best_available_device();
  ASSERT_TRUE(best.has_value()) << best.error().to_text();
  EXPECT_GT((*best)->sample().value_or(LoadSample{}).memory_bytes_free.value_or(0), 0u);
  for (const auto& device : pool->devices()) EXPECT_FALSE(device->info().name.empty());
}

TEST(CudaPool, S3_F13_SchedulerRunsRealKernelsOnEveryLane) {
  BERTH_NEEDS_GPUS(devices);
  auto pool = Pool::open(*devices);
  ASSERT_TRUE(pool.has_value()) << pool.error().to_text();
  auto scheduler = Scheduler::start(*pool);
  ASSERT_TRUE(scheduler.has_value()) << scheduler.error().to_text();
  constexpr std::uint32_t count = 4096;
  std::vector<int> items(24);
  std::iota(items.begin(), items.end(), 0);
  const auto results = scheduler->map(items, [&](TaskContext& execution, int item) -> Result<std::vector<float>> {
    std::vector<float> values(count, static_cast<float>(item));
    const auto kernel = execution.device().load(contract::add_source());
    if (!kernel) return kernel.error();
    const auto buffer = execution.device().allocate(count * sizeof(float));
    if (!buffer) return buffer.error();
    const auto stream = execution.stream();
    if (!stream) return stream.error();
    const std::vector<Argument> arguments{*buffer, *buffer, *buffer, count};
    Result<void> done = (*stream)->copy_in(*buffer, 0, std::as_bytes(std::span(values)));
    if (done) done = (*stream)->launch(**kernel, {{count, 1, 1}, {}}, arguments);
    if (done) done = (*stream)->copy_out(*buffer, 0, std::as_writable_bytes(std::span(values)));
    if (done) done = (*stream)->wait(Deadline::after(real_clock(), 20s));
    if (!done) return done.error();
    return values;
  });
  ASSERT_EQ(results.size(), items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    ASSERT_TRUE(results[i].has_value()) << results[i].error().to_text();
    EXPECT_EQ(results[i]->value, std::vector<float>(count, 2.0F * static_cast<float>(i)));
  }
}

}  // namespace
}  // namespace berth
