// The first GPU of this machine, for the tests of the CUDA back end. Without a GPU these
// tests are skipped with a message.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "device/backends.hpp"
#include "device/cuda/driver.hpp"
#include "device/test_results.hpp"

namespace berth::cuda {

using test::fails_with;
using test::soon;
using test::works;

inline constexpr const char* kernels = R"(
.version 7.0
.target sm_52
.address_size 64

.visible .entry empty()
{
  ret;
}

// out[i] = first + i for i below count.
.visible .entry count_up(.param .u64 out, .param .u32 count, .param .u32 first)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [count];
  ld.param.u32 %r2, [first];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 bra done;
  add.u32 %r7, %r6, %r2;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r6, 4;
  add.u64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r7;
done:
  ret;
}

// Runs for `duration` nanoseconds.
.visible .entry spin(.param .u64 duration)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [duration];
  mov.u64 %rd2, %globaltimer;
again:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra again;
  ret;
}

// Writes to an unmapped address.
.visible .entry fault()
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  mov.u32 %r1, 1;
  mov.u64 %rd1, 16;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

inline KernelSource source(const char* entry) { return {entry, {}, {}, kernels}; }

// The first GPU, its back end and the driver itself.
struct Gpu {
  std::unique_ptr<Backend> backend;
  DeviceInfo info;
  const Driver* driver = nullptr;

  std::shared_ptr<Device> open() const { return open(info.id); }
  std::shared_ptr<Device> open(const DeviceId& id) const {
    Result<std::shared_ptr<Device>> device = backend->open(id);
    EXPECT_TRUE(works(device));
    return *device;
  }
  // The driver double of tests/double, which has no multiprocessors.
  bool is_double() const { return driver->find<long long(const char*, int)>("berth_double_count") != nullptr; }
  int active() const {
    const auto state = driver->find<Code(int, unsigned*, int*)>("cuDevicePrimaryCtxGetState");
    unsigned flags = 0;
    int is_active = -1;
    EXPECT_EQ(state(info.ordinal, &flags, &is_active), 0);
    return is_active;
  }
  Context current() const {
    Context context = nullptr;
    EXPECT_EQ(driver->cuCtxGetCurrent(&context), 0);
    return context;
  }
};

inline Result<Gpu> first_gpu(const BackendOptions& options = {}) {
  Gpu gpu{device::make_cuda_backend(options), {}, nullptr};
  Result<std::vector<DeviceInfo>> found = gpu.backend->list();
  if (!found) return std::move(found).error();
  if (found->empty()) return Error{ErrorCode::no_device, "the CUDA driver finds no GPU"};
  gpu.info = found->front();
  gpu.driver = *Driver::load();
  return gpu;
}

// The first GPU cut into parts, or an error if it cannot be cut.
struct CutGpu : Gpu {
  std::vector<DeviceInfo> parts;  // of the first GPU
};
inline BackendOptions cut_into(std::vector<std::uint32_t> units) {
  BackendOptions options;
  options.partitions.push_back({"cuda:0", std::move(units)});
  return options;
}
inline Result<CutGpu> cut_gpu(std::vector<std::uint32_t> units) {
  Result<Gpu> whole = first_gpu();
  if (!whole) return std::move(whole).error();
  Result<Gpu> gpu = first_gpu(cut_into(units));
  if (!gpu) return std::move(gpu).error();
  CutGpu cut{*std::move(gpu), {}};
  Result<std::vector<DeviceInfo>> listed = cut.backend->list();
  if (!listed) return std::move(listed).error();
  listed->resize(units.size());
  cut.parts = *std::move(listed);
  cut.info = whole->info;
  return cut;
}

#define BERTH_NEEDS_GPU(gpu)     \
  Result<Gpu> gpu = first_gpu(); \
  if (!gpu) GTEST_SKIP() << "this test needs an NVIDIA GPU: " << gpu.error().to_text()

// Green contexts need a whole GPU and a recent driver.
#define BERTH_NEEDS_CUT_GPU(gpu, ...)                                          \
  Result<CutGpu> gpu = cut_gpu({__VA_ARGS__});                                 \
  if (!gpu && (gpu.error().code == ErrorCode::invalid_argument)) {             \
    GTEST_SKIP() << "this test needs a larger GPU: " << gpu.error().to_text(); \
  }                                                                            \
  if (!gpu) GTEST_SKIP() << "this test needs an NVIDIA GPU to cut: " << gpu.error().to_text()

inline std::unique_ptr<Stream> open_stream(Device& device, Priority priority = Priority::normal) {
  Result<std::unique_ptr<Stream>> stream = device.open_stream(priority);
  EXPECT_TRUE(works(stream));
  return *std::move(stream);
}

struct OpenGpu {
  std::shared_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};
inline OpenGpu open_with_stream(const Gpu& gpu, const DeviceId& id) {
  OpenGpu opened{gpu.open(id), nullptr};
  opened.stream = open_stream(*opened.device);
  return opened;
}
inline OpenGpu open_with_stream(const Gpu& gpu) { return open_with_stream(gpu, gpu.info.id); }

inline std::shared_ptr<LoadedKernel> load(Device& device, const char* entry) {
  Result<std::shared_ptr<LoadedKernel>> kernel = device.load(source(entry));
  EXPECT_TRUE(works(kernel));
  return *std::move(kernel);
}

inline void expect_ok(const Result<void>& result) { EXPECT_TRUE(works(result)); }

inline Result<void> spin(Stream& stream, const LoadedKernel& kernel, std::chrono::nanoseconds duration) {
  const std::array<Argument, 1> arguments{static_cast<std::uint64_t>(duration.count())};
  return stream.launch(kernel, {}, arguments);
}

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned first) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(first + 7 * i);
  return values;
}

inline Buffer filled(Device& device, Stream& stream, std::span<const std::byte> bytes) {
  Result<Buffer> buffer = device.allocate(bytes.size());
  EXPECT_TRUE(works(buffer));
  expect_ok(stream.copy_in(*buffer, 0, bytes));
  expect_ok(stream.wait(soon()));
  return *buffer;
}

inline std::vector<std::byte> content(Stream& stream, const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes());
  expect_ok(stream.copy_out(buffer, 0, bytes));
  expect_ok(stream.wait(soon()));
  return bytes;
}

inline void expect_counts_up(Device& device, Stream& stream, const LoadedKernel& kernel) {
  constexpr std::uint32_t count = 1000;
  Result<Buffer> buffer = device.allocate(count * sizeof(std::uint32_t));
  ASSERT_TRUE(buffer.has_value());
  const std::array<Argument, 3> arguments{*buffer, count, std::uint32_t{5}};
  expect_ok(stream.launch(kernel, {{count, 1, 1}, {}}, arguments));
  std::vector<std::uint32_t> got(count), want(count);
  expect_ok(stream.copy_out(*buffer, 0, std::as_writable_bytes(std::span(got))));
  expect_ok(stream.wait(soon()));
  std::iota(want.begin(), want.end(), 5u);
  EXPECT_EQ(got, want);
}

}  // namespace berth::cuda
