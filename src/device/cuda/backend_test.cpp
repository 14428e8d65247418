// Listing and opening GPUs, and the contexts of the process.
#include "device/cuda/test_gpu.hpp"

#include <dlfcn.h>

#include <array>
#include <functional>

#include "device/cuda/nvml.hpp"

namespace berth::cuda {
namespace {

TEST(Cuda, MissingDriverLibraryIsNotInitializedWithAdvice) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr || dlopen("libcuda.so", RTLD_LAZY) != nullptr) {
    GTEST_SKIP() << "this machine has a CUDA driver library";
  }
  const auto listed = device::make_cuda_backend({})->list();
  ASSERT_FALSE(listed.has_value());
  EXPECT_EQ(listed.error().code, ErrorCode::not_initialized);
  EXPECT_EQ(listed.error().driver, (DriverError{3, "CUDA_ERROR_NOT_INITIALIZED"}));
  EXPECT_FALSE(listed.error().advice.empty());
  const auto opened = device::make_cuda_backend({})->open(DeviceId("GPU-1"));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error(), listed.error());
}

TEST(Cuda, MissingTelemetryIsAnErrorNotZero) {
  const auto seen = nvml::Watch(DeviceId("GPU-that-does-not-exist"), real_clock()).sample();
  ASSERT_FALSE(seen.has_value());
  EXPECT_TRUE(seen.error().code == ErrorCode::not_initialized || seen.error().code == ErrorCode::not_found);
  EXPECT_FALSE(seen.error().advice.empty());
}

TEST(Cuda, ListNamesDevicesByUuidAndOpensNoContext) {
  BERTH_NEEDS_GPU(gpu);
  const int before = gpu->active();
  const auto listed = gpu->backend->list();
  ASSERT_TRUE(listed.has_value());
  for (const DeviceInfo& info : *listed) {
    EXPECT_TRUE(info.id.text().starts_with("GPU-") || info.id.text().starts_with("MIG-")) << info.id;
    EXPECT_EQ(info.id.text().size(), 40u);
    EXPECT_EQ(info.parent.has_value(), info.id.text().starts_with("MIG-")) << "a slice has its GPU as parent";
    EXPECT_TRUE(info.pci_address.has_value());
    EXPECT_TRUE(info.capability.has_value());
    EXPECT_TRUE(info.compute_units.has_value());
    EXPECT_TRUE(info.features.contains("ptx"));
    EXPECT_TRUE(info.features.contains("stream_priority"));
    EXPECT_FALSE(info.is_fallback);
  }
  EXPECT_EQ(gpu->active(), before);
}

TEST(Cuda, EveryDeviceHasANameMemoryAndAContext) {
  BERTH_NEEDS_GPU(gpu);
  const auto listed = gpu->backend->list();
  ASSERT_TRUE(listed.has_value());
  EXPECT_GT(listed->size(), 0u);
  for (const DeviceInfo& info : *listed) {
    EXPECT_FALSE(info.name.empty());
    EXPECT_GT(info.memory_bytes_total.value_or(0), 0u);
    Result<std::shared_ptr<Device>> device = gpu->backend->open(info.id);
    ASSERT_TRUE(works(device));
    EXPECT_NE((*device)->native().context, nullptr);
    int number = -1;
    EXPECT_EQ(gpu->driver->cuDeviceGet(&number, info.ordinal), 0);
    EXPECT_EQ(reinterpret_cast<std::intptr_t>((*device)->native().device), number);
  }
}

TEST(Cuda, S4_F3_TheContextIsThePrimaryContextOfTheDevice) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  EXPECT_EQ(gpu->active(), 1);
  Context primary = nullptr;
  ASSERT_EQ(gpu->driver->cuDevicePrimaryCtxRetain(&primary, gpu->info.ordinal), 0);
  EXPECT_EQ(device->native().context, primary);
  EXPECT_EQ(gpu->driver->cuDevicePrimaryCtxRelease_v2(gpu->info.ordinal), 0);
}

// Every kind of call once; `check` is called inside run().
void use_everything(Device& device, const std::function<void()>& check) {
  const auto stream = open_stream(device);
  const auto kernel = load(device, "empty");
  Result<Buffer> buffer = device.allocate(64);
  ASSERT_TRUE(buffer.has_value());
  std::array<std::byte, 64> host{};
  expect_ok(stream->copy_in(*buffer, 0, host));
  expect_ok(stream->launch(*kernel, {}, {}));
  expect_ok(stream->copy_out(*buffer, 0, host));
  expect_ok(stream->run([&](Stream&) -> Result<void> {
    check();
    return {};
  }));
  Result<std::shared_ptr<Event>> event = stream->record();
  ASSERT_TRUE(event.has_value());
  expect_ok((*event)->wait(soon()));
  EXPECT_TRUE(device.sample().has_value());
}

TEST(Cuda, S4_F4_TheCurrentContextOfTheCallerIsRestored) {
  BERTH_NEEDS_GPU(gpu);
  ASSERT_EQ(gpu->driver->cuCtxSetCurrent(nullptr), 0);
  {
    const auto device = gpu->open();
    EXPECT_EQ(gpu->current(), nullptr);
    use_everything(*device, [&] { EXPECT_EQ(gpu->current(), device->native().context); });
    EXPECT_EQ(gpu->current(), nullptr);
  }
  EXPECT_EQ(gpu->current(), nullptr);

  // The same with a context that the caller created.
  const auto create = gpu->driver->find<Code(Context*, unsigned, int)>("cuCtxCreate_v2");
  const auto destroy = gpu->driver->find<Code(Context)>("cuCtxDestroy_v2");
  ASSERT_TRUE(create && destroy);
  Context own = nullptr;
  ASSERT_EQ(create(&own, 0, gpu->info.ordinal), 0);
  ASSERT_EQ(gpu->current(), own);
  {
    const auto device = gpu->open();
    use_everything(*device, [&] { EXPECT_EQ(gpu->current(), device->native().context); });
    EXPECT_EQ(gpu->current(), own);
  }
  EXPECT_EQ(gpu->current(), own);
  EXPECT_EQ(destroy(own), 0);
}

TEST(Cuda, PrimaryContextIsReleasedWithTheLastHandle) {
  BERTH_NEEDS_GPU(gpu);
  if (gpu->active() != 0) GTEST_SKIP() << "something else in this process holds the primary context";
  auto device = gpu->open();
  Result<Buffer> buffer = device->allocate(1 << 20);
  ASSERT_TRUE(buffer.has_value());
  device->close();
  EXPECT_EQ(device->allocate(64).error().code, ErrorCode::device_lost);
  EXPECT_EQ(gpu->active(), 1) << "the buffer still needs it";
  buffer = Buffer();
  device.reset();
  EXPECT_EQ(gpu->active(), 0);
}

TEST(Cuda, TelemetryReportsAnAllocationAndItsRelease) {
  BERTH_NEEDS_GPU(gpu);
  if (!nvml::Library::load()) GTEST_SKIP() << "this test needs NVML";
  const auto device = gpu->open();
  const auto free_bytes = [&] { return device->sample().value_or(LoadSample{}).memory_bytes_free.value_or(0); };
  constexpr std::uint64_t gibibyte = 1ULL << 30;
  constexpr std::uint64_t slack = 64ULL << 20;  // bookkeeping of the driver
  const std::uint64_t before = free_bytes();
  {
    Result<Buffer> buffer = device->allocate(4 * gibibyte);
    ASSERT_TRUE(works(buffer));
    EXPECT_LE(free_bytes(), before - 4 * gibibyte + slack);
    // A slice does not report its utilization.
    EXPECT_NE(device->sample()->utilization.has_value(), gpu->info.parent.has_value());
  }
  EXPECT_GE(free_bytes() + slack, before);
}

}  // namespace
}  // namespace berth::cuda
