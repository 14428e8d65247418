// Memory of a GPU, and host memory that is pinned for it.
#include "device/cuda/test_gpu.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>

#include "device/cuda/nvml.hpp"

namespace berth::cuda {
namespace {

TEST(Cuda, ExhaustedMemoryIsOutOfMemoryAndTheDeviceStaysUsable) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  // All there is: the context itself needs some of it.
  const auto huge = device->allocate(gpu->info.memory_bytes_total.value());
  ASSERT_FALSE(huge.has_value());
  EXPECT_EQ(huge.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(huge.error().driver, (DriverError{2, "CUDA_ERROR_OUT_OF_MEMORY"}));
  EXPECT_EQ(huge.error().where, gpu->info.id.text());
  EXPECT_TRUE(device->allocate(64).has_value());
}

TEST(Cuda, StreamOrderedMemoryServesItsWorkAndOutlivesStreamAndDevice) {
  BERTH_NEEDS_GPU(gpu);
  auto device = gpu->open();
  auto stream = open_stream(*device);
  const auto kernel = load(*device, "count_up");
  constexpr std::uint32_t count = 5003;
  std::vector<std::uint32_t> want(count);
  Buffer last;
  for (std::uint32_t round = 0; round < 20; ++round) {
    Result<Buffer> buffer = stream->allocate(count * sizeof(std::uint32_t));
    ASSERT_TRUE(works(buffer));
    EXPECT_EQ(buffer->bytes(), count * sizeof(std::uint32_t));
    const std::array<Argument, 3> arguments{*buffer, count, round};
    expect_ok(stream->launch(*kernel, {{count, 1, 1}, {}}, arguments));
    std::vector<std::uint32_t> got(count);
    expect_ok(stream->copy_out(*buffer, 0, std::as_writable_bytes(std::span(got))));
    expect_ok(stream->wait(soon()));
    std::iota(want.begin(), want.end(), round);
    ASSERT_EQ(got, want);
    last = *buffer;  // frees the previous buffer, in stream order
  }
  EXPECT_EQ(stream->allocate(0).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(stream->allocate(gpu->info.memory_bytes_total.value()).error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(stream->allocate(1ULL << 60).error().code, ErrorCode::out_of_memory);
  stream.reset();
  device->close();
  device.reset();
  last = Buffer();
  EXPECT_EQ(gpu->current(), nullptr);
}

TEST(Cuda, FreedStreamOrderedMemoryIsReturnedToTheGpu) {
  BERTH_NEEDS_GPU(gpu);
  if (!gpu->info.features.contains("memory_pools")) GTEST_SKIP() << "this test needs a device with memory pools";
  if (!nvml::Library::load()) GTEST_SKIP() << "this test needs NVML";
  const auto watcher = gpu->open();
  const auto free_bytes = [&] { return watcher->sample().value_or(LoadSample{}).memory_bytes_free.value_or(0); };
  constexpr std::uint64_t gibibyte = 1ULL << 30, kept = 256ULL << 20;
  constexpr std::uint64_t slack = 64ULL << 20;  // bookkeeping of the driver
  const std::uint64_t before = free_bytes();
  {
    const auto [device, stream] = open_with_stream(*gpu);
    {
      Result<Buffer> buffer = stream->allocate(2 * gibibyte);
      ASSERT_TRUE(works(buffer));
      expect_ok(stream->wait(soon()));
      EXPECT_LE(free_bytes(), before - 2 * gibibyte + slack);
    }
    expect_ok(stream->wait(soon()));
    EXPECT_TRUE(device->sample().has_value());
    EXPECT_GE(free_bytes() + kept + slack, before) << "each sample returns what exceeds the share of the pool";
  }
  EXPECT_GE(free_bytes() + slack, before) << "the last handle releases all of it";
}

TEST(Cuda, MemoryThatAStreamFreedServesItsNextWorkAndGoesBackWhenItIsNotUsed) {
  BERTH_NEEDS_GPU(gpu);
  if (!gpu->info.features.contains("memory_pools")) GTEST_SKIP() << "this test needs a device with memory pools";
  const auto [device, stream] = open_with_stream(*gpu);
  const Driver& driver = *gpu->driver;
  // The bytes in use once all work is done: until then, the driver counts freed memory as used.
  const auto used_bytes = [&, &device = device, &stream = stream] {
    std::uint64_t bytes = 0;
    expect_ok(stream->run([&](Stream&) -> Result<void> {
      MemoryPool pool = nullptr;
      EventHandle event = nullptr;
      const auto number = static_cast<DeviceNumber>(reinterpret_cast<std::intptr_t>(device->native().device));
      EXPECT_EQ(driver.cuEventCreate(&event, event_default), code_success);
      EXPECT_EQ(driver.cuEventRecord(event, static_cast<StreamHandle>(stream->native())), code_success);
      while (driver.cuEventQuery(event) == code_not_ready) std::this_thread::yield();
      EXPECT_EQ(driver.cuEventSynchronize(event), code_success);
      driver.cuEventDestroy_v2(event);
      EXPECT_EQ(driver.cuDeviceGetDefaultMemPool(&pool, number), code_success);
      EXPECT_EQ(driver.cuMemPoolGetAttribute(pool, pool_bytes_used, &bytes), code_success);
      return {};
    }));
    return bytes;
  };
  constexpr std::uint64_t size = 40ULL << 20;
  const std::uint64_t before = used_bytes();
  void* const first = stream->allocate(size).value().native();
  EXPECT_EQ(used_bytes(), before + size) << "the freed memory is kept";
  EXPECT_EQ(stream->allocate(size).value().native(), first);
  {
    const Result<Buffer> left = stream->allocate(size), right = stream->allocate(size), third = stream->allocate(size),
                         fourth = stream->allocate(size);
    ASSERT_TRUE(left && right && third && fourth);
    EXPECT_NE(left->native(), right->native());
  }
  EXPECT_TRUE(stream->allocate(size).has_value());
  EXPECT_TRUE(device->sample().has_value());
  EXPECT_TRUE(device->sample().has_value());
  EXPECT_EQ(used_bytes(), before) << "not used between two samples";
}

// Whether the driver reports the memory as pinned; absent if it has no such call.
std::optional<bool> is_pinned(const Gpu& gpu, Stream& stream, void* memory) {
  const auto flags_of = gpu.driver->find<Code(unsigned*, void*)>("cuMemHostGetFlags");
  if (flags_of == nullptr) return {};
  bool pinned = false;
  expect_ok(stream.run([&](Stream&) -> Result<void> {
    unsigned flags = 0;
    pinned = flags_of(&flags, memory) == code_success;
    return {};
  }));
  return pinned;
}

TEST(Cuda, PinnedMemoryCopiesBothWaysAndOutlivesTheDevice) {
  BERTH_NEEDS_GPU(gpu);
  auto device = gpu->open();
  auto stream = open_stream(*device);
  Result<PinnedMemory> pinned = device->pin(1 << 20);
  ASSERT_TRUE(works(pinned));
  ASSERT_EQ(pinned->bytes().size(), std::size_t{1} << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned->bytes().data()) % 4096, 0u);
  EXPECT_NE(is_pinned(*gpu, *stream, pinned->bytes().data()), std::optional(false));
  const auto sent = pattern(1 << 20, 9);
  std::copy(sent.begin(), sent.end(), pinned->bytes().begin());
  const Buffer buffer = filled(*device, *stream, pinned->bytes());
  std::fill(pinned->bytes().begin(), pinned->bytes().end(), std::byte{0});
  expect_ok(stream->copy_out(buffer, 0, pinned->bytes()));
  expect_ok(stream->wait(soon()));
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), pinned->bytes().begin()));
  EXPECT_EQ(device->pin(0).error().code, ErrorCode::invalid_argument);
  stream.reset();
  device->close();
  EXPECT_EQ(device->pin(4096).error().code, ErrorCode::device_lost);
  device.reset();
  EXPECT_EQ(pinned->bytes()[5], sent[5]) << "the handle keeps the pages";
  pinned = PinnedMemory();
  EXPECT_EQ(gpu->current(), nullptr);
}

TEST(Cuda, MemoryOfTheCallerIsPinnedWhileTheHandleLives) {
  BERTH_NEEDS_GPU(gpu);
  const auto [device, stream] = open_with_stream(*gpu);
  alignas(4096) static std::array<std::byte, 16 * 4096> memory{};
  const std::span<std::byte> whole(memory);
  Result<PinnedMemory> pinned = device->pin(whole);
  ASSERT_TRUE(works(pinned));
  EXPECT_EQ(pinned->bytes().data(), memory.data());
  EXPECT_EQ(pinned->bytes().size(), memory.size());
  EXPECT_NE(is_pinned(*gpu, *stream, memory.data()), std::optional(false));
  const auto twice = device->pin(whole);
  ASSERT_FALSE(twice.has_value());
  EXPECT_EQ(twice.error().code, ErrorCode::already_exists) << twice.error().to_text();
  const auto sent = pattern(memory.size(), 11);
  const Buffer buffer = filled(*device, *stream, sent);
  expect_ok(stream->copy_out(buffer, 0, pinned->bytes()));
  expect_ok(stream->wait(soon()));
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), memory.begin()));
  pinned = PinnedMemory();
  EXPECT_NE(is_pinned(*gpu, *stream, memory.data()), std::optional(true));
  EXPECT_TRUE(device->pin(whole).has_value()) << "it can be pinned again after the handle was released";
  EXPECT_EQ(device->pin(std::span<std::byte>()).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace berth::cuda
