// The CUDA back end on a real GPU. Without one every test here is skipped and
// says why; what needs no GPU is tested in the other cuda_*_test.cpp.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>

#include "device/backends.hpp"
#include "device/cuda/driver.hpp"
#include "device/cuda/nvml.hpp"

namespace berth {
namespace {

using namespace std::chrono_literals;

// Long enough for a busy machine, short enough that a hang is a failure.
Deadline soon() { return Deadline::after(real_clock(), 20s); }

constexpr const char* kernels = R"(
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

// Runs for that many nanoseconds.
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

// Writes to an address nobody owns.
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

// Each group writes the multiprocessor it ran on, after that many nanoseconds.
constexpr const char* where_kernel = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry where(.param .u64 out, .param .u64 duration)
{
  .reg .pred %p<2>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [duration];
  mov.u64 %rd2, %globaltimer;
again:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra again;
  ld.param.u64 %rd5, [out];
  cvta.to.global.u64 %rd5, %rd5;
  mov.u32 %r1, %ctaid.x;
  mul.wide.u32 %rd6, %r1, 4;
  add.u64 %rd7, %rd5, %rd6;
  mov.u32 %r2, %smid;
  st.global.u32 [%rd7], %r2;
  ret;
}
)";

KernelSource source(const char* entry) { return {entry, {}, {}, kernels}; }

// The first GPU, its back end, and the raw driver beside it.
struct Gpu {
  std::unique_ptr<Backend> backend;
  DeviceInfo info;
  const cuda::Driver* driver = nullptr;

  std::shared_ptr<Device> open() const { return open(info.id); }
  std::shared_ptr<Device> open(const DeviceId& id) const {
    Result<std::shared_ptr<Device>> device = backend->open(id);
    EXPECT_TRUE(device.has_value()) << device.error().to_text();
    return *device;
  }
  // Stands for a GPU, and has no multiprocessors of its own.
  bool is_double() const { return driver->find<long long(const char*, int)>("berth_double_count") != nullptr; }
  int active() const {
    const auto state = driver->find<cuda::Code(int, unsigned*, int*)>("cuDevicePrimaryCtxGetState");
    unsigned flags = 0;
    int is_active = -1;
    EXPECT_EQ(state(info.ordinal, &flags, &is_active), 0);
    return is_active;
  }
  cuda::Context current() const {
    cuda::Context context = nullptr;
    EXPECT_EQ(driver->cuCtxGetCurrent(&context), 0);
    return context;
  }
};

Result<Gpu> first_gpu(const BackendOptions& options = {}) {
  Gpu gpu{make_cuda_backend(options), {}, nullptr};
  Result<std::vector<DeviceInfo>> found = gpu.backend->list();
  if (!found) return std::move(found).error();
  if (found->empty()) return Error{ErrorCode::no_device, "the CUDA driver finds no GPU", "", "", {}};
  gpu.info = found->front();
  gpu.driver = *cuda::Driver::load();
  return gpu;
}

// The first GPU in parts, with what was listed; an error where it cannot be cut.
struct CutGpu : Gpu {
  std::vector<DeviceInfo> parts;  // of the first GPU
};
BackendOptions cut_into(std::vector<std::uint32_t> units) {
  BackendOptions options;
  options.partitions.push_back({"cuda:0", std::move(units)});
  return options;
}
Result<CutGpu> cut_gpu(std::vector<std::uint32_t> units) {
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

// Green contexts are of whole GPUs and recent drivers.
#define BERTH_NEEDS_CUT_GPU(gpu, ...)                                          \
  Result<CutGpu> gpu = cut_gpu({__VA_ARGS__});                                 \
  if (!gpu && (gpu.error().code == ErrorCode::invalid_argument)) {             \
    GTEST_SKIP() << "this test needs a larger GPU: " << gpu.error().to_text(); \
  }                                                                            \
  if (!gpu) GTEST_SKIP() << "this test needs an NVIDIA GPU to cut: " << gpu.error().to_text()

std::unique_ptr<Stream> open_stream(Device& device, Priority priority = Priority::normal) {
  Result<std::unique_ptr<Stream>> stream = device.open_stream(priority);
  EXPECT_TRUE(stream.has_value()) << stream.error().to_text();
  return *std::move(stream);
}

std::shared_ptr<Kernel> load(Device& device, const char* entry) {
  Result<std::shared_ptr<Kernel>> kernel = device.load(source(entry));
  EXPECT_TRUE(kernel.has_value()) << kernel.error().to_text();
  return *std::move(kernel);
}

void expect_ok(const Result<void>& result) { EXPECT_TRUE(result.has_value()) << result.error().to_text(); }

Result<void> spin(Stream& stream, const Kernel& kernel, std::chrono::nanoseconds duration) {
  const std::array<Argument, 1> arguments{static_cast<std::uint64_t>(duration.count())};
  return stream.launch(kernel, {}, arguments);
}

TEST(Cuda, MissingDriverLibraryIsNotInitializedWithAdvice) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr || dlopen("libcuda.so", RTLD_LAZY) != nullptr) {
    GTEST_SKIP() << "this machine has a CUDA driver library";
  }
  const auto listed = make_cuda_backend({})->list();
  ASSERT_FALSE(listed.has_value());
  EXPECT_EQ(listed.error().code, ErrorCode::not_initialized);
  EXPECT_EQ(listed.error().driver, (DriverError{3, "CUDA_ERROR_NOT_INITIALIZED"}));
  EXPECT_FALSE(listed.error().advice.empty());
  const auto opened = make_cuda_backend({})->open(DeviceId("GPU-1"));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error(), listed.error());
}

TEST(Cuda, MissingTelemetryIsAnErrorNotZero) {
  const auto seen = nvml::Watch(DeviceId("GPU-of-nobody"), real_clock()).sample();
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
    ASSERT_TRUE(device.has_value()) << device.error().to_text();
    EXPECT_NE((*device)->native().context, nullptr);
    int number = -1;
    EXPECT_EQ(gpu->driver->cuDeviceGet(&number, info.ordinal), 0);
    EXPECT_EQ(reinterpret_cast<std::intptr_t>((*device)->native().device), number);
  }
}

TEST(Cuda, S4_F3_ContextIsTheDevicesPrimaryOne) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  EXPECT_EQ(gpu->active(), 1);
  cuda::Context primary = nullptr;
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

TEST(Cuda, S4_F4_CallersContextIsLeftAsFound) {
  BERTH_NEEDS_GPU(gpu);
  ASSERT_EQ(gpu->driver->cuCtxSetCurrent(nullptr), 0);
  {
    const auto device = gpu->open();
    EXPECT_EQ(gpu->current(), nullptr);
    use_everything(*device, [&] { EXPECT_EQ(gpu->current(), device->native().context); });
    EXPECT_EQ(gpu->current(), nullptr);
  }
  EXPECT_EQ(gpu->current(), nullptr);

  // The same with a context of the caller's own.
  const auto create = gpu->driver->find<cuda::Code(cuda::Context*, unsigned, int)>("cuCtxCreate_v2");
  const auto destroy = gpu->driver->find<cuda::Code(cuda::Context)>("cuCtxDestroy_v2");
  ASSERT_TRUE(create && destroy);
  cuda::Context own = nullptr;
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

TEST(Cuda, S3_F13_KernelReallyComputesAndItsEventTellsOfCompletion) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto stream = open_stream(*device);
  const auto kernel = load(*device, "count_up");
  constexpr std::uint32_t count = 100003;  // no multiple of a group
  Result<Buffer> buffer = device->allocate(count * sizeof(std::uint32_t));
  ASSERT_TRUE(buffer.has_value());
  const std::array<Argument, 3> arguments{*buffer, count, std::uint32_t{7}};
  expect_ok(stream->launch(*kernel, {{count, 1, 1}, {}}, arguments));
  std::vector<std::uint32_t> got(count), want(count);
  expect_ok(stream->copy_out(*buffer, 0, std::as_writable_bytes(std::span(got))));
  Result<std::shared_ptr<Event>> event = stream->record();
  ASSERT_TRUE(event.has_value());
  expect_ok((*event)->wait(soon()));
  EXPECT_TRUE((*event)->done().value_or(false));
  std::iota(want.begin(), want.end(), 7u);
  EXPECT_EQ(got, want);
}

TEST(Cuda, S3_F14_EventsMeasureTheKernelNotItsSubmission) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto stream = open_stream(*device);
  const auto kernel = load(*device, "spin");
  expect_ok(spin(*stream, *kernel, 1us));  // loads the code
  expect_ok(stream->wait(soon()));
  Result<std::shared_ptr<Event>> begin = stream->record();
  expect_ok(spin(*stream, *kernel, 100ms));
  Result<std::shared_ptr<Event>> end = stream->record();
  ASSERT_TRUE(begin.has_value() && end.has_value());
  // Submission is over and the kernel still runs: wall time would say nothing.
  Result<bool> done = (*end)->done();
  ASSERT_TRUE(done.has_value());
  EXPECT_FALSE(*done);
  expect_ok((*end)->wait(soon()));
  Result<Duration> took = (*end)->since(**begin);
  ASSERT_TRUE(took.has_value()) << took.error().to_text();
  EXPECT_GE(*took, 99ms);
  EXPECT_LE(*took, 150ms);
}

TEST(Cuda, WaitGivesUpAtItsDeadlineAndTheWorkGoesOn) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto stream = open_stream(*device);
  const auto kernel = load(*device, "spin");
  expect_ok(spin(*stream, *kernel, 300ms));
  Result<std::shared_ptr<Event>> event = stream->record();
  ASSERT_TRUE(event.has_value());
  const Result<void> early = (*event)->wait(Deadline::after(real_clock(), 5ms));
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().code, ErrorCode::timeout);
  expect_ok((*event)->wait(soon()));
}

TEST(Cuda, EventPendingAtCloseResolvesAsLost) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto stream = open_stream(*device);
  const auto kernel = load(*device, "spin");
  expect_ok(spin(*stream, *kernel, 300ms));
  Result<std::shared_ptr<Event>> event = stream->record();
  ASSERT_TRUE(event.has_value());
  device->close();
  const Result<void> waited = (*event)->wait(soon());
  ASSERT_FALSE(waited.has_value());
  EXPECT_EQ(waited.error().code, ErrorCode::device_lost);
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

TEST(Cuda, TelemetrySeesAnAllocationAndItsEnd) {
  BERTH_NEEDS_GPU(gpu);
  if (!nvml::Library::load()) GTEST_SKIP() << "this test needs NVML";
  const auto device = gpu->open();
  const auto free_bytes = [&] { return device->sample().value_or(LoadSample{}).memory_bytes_free.value_or(0); };
  constexpr std::uint64_t gibibyte = 1ULL << 30;
  constexpr std::uint64_t slack = 64ULL << 20;  // bookkeeping of the driver
  const std::uint64_t before = free_bytes();
  {
    Result<Buffer> buffer = device->allocate(4 * gibibyte);
    ASSERT_TRUE(buffer.has_value()) << buffer.error().to_text();
    EXPECT_LE(free_bytes(), before - 4 * gibibyte + slack);
    // A slice does not say how busy it is.
    EXPECT_NE(device->sample()->utilisation.has_value(), gpu->info.parent.has_value());
  }
  EXPECT_GE(free_bytes() + slack, before);
}

TEST(Cuda, PrioritiesBecomeStreamPriorities) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto priority_of = gpu->driver->find<cuda::Code(cuda::StreamHandle, int*)>("cuStreamGetPriority");
  ASSERT_NE(priority_of, nullptr);
  std::array<int, 3> level{};
  for (const Priority priority : {Priority::low, Priority::normal, Priority::high}) {
    const auto stream = open_stream(*device, priority);
    EXPECT_EQ(stream->priority(), priority);
    expect_ok(stream->run([&](Stream& inside) -> Result<void> {
      EXPECT_EQ(priority_of(static_cast<cuda::StreamHandle>(inside.native()), &level.at(static_cast<int>(priority))),
                0);
      return {};
    }));
  }
  // Lower numbers are more urgent.
  EXPECT_GT(level[0], level[1]);
  EXPECT_GT(level[1], level[2]);
}

TEST(Cuda, CompilersOwnWordsAreInTheError) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto bad = device->load({"broken", {}, {}, ".version 7.0\n.target sm_52\n.address_size 64\nnonsense here\n"});
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(bad.error().driver, (DriverError{218, "CUDA_ERROR_INVALID_PTX"}));
  EXPECT_NE(bad.error().message.find("line 4"), std::string::npos) << bad.error().message;
  const auto absent = device->load(source("no_such_kernel"));
  ASSERT_FALSE(absent.has_value());
  EXPECT_EQ(absent.error().code, ErrorCode::not_found);
  EXPECT_EQ(device->load({"x", {}, "kernel void x() {}", {}}).error().code, ErrorCode::not_supported);
}

TEST(Cuda, LaunchWithWrongArgumentsIsRefused) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  if (gpu->driver->cuFuncGetParamInfo == nullptr) GTEST_SKIP() << "this driver does not tell a kernel's parameters";
  const auto stream = open_stream(*device);
  const auto kernel = load(*device, "count_up");
  Result<Buffer> buffer = device->allocate(64);
  ASSERT_TRUE(buffer.has_value());
  const std::array<Argument, 2> too_few{*buffer, std::uint32_t{1}};
  const std::array<Argument, 3> wrong_size{*buffer, std::uint64_t{1}, std::uint32_t{1}};
  EXPECT_EQ(stream->launch(*kernel, {}, too_few).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(stream->launch(*kernel, {}, wrong_size).error().code, ErrorCode::invalid_argument);
  expect_ok(stream->wait(soon()));
}

TEST(Cuda, ExhaustedMemoryIsTypedAndTheDeviceGoesOn) {
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

std::vector<std::byte> pattern(std::size_t bytes, unsigned first) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(first + 7 * i);
  return values;
}

Buffer filled(Device& device, Stream& stream, std::span<const std::byte> bytes) {
  Result<Buffer> buffer = device.allocate(bytes.size());
  EXPECT_TRUE(buffer.has_value()) << buffer.error().to_text();
  expect_ok(stream.copy_in(*buffer, 0, bytes));
  expect_ok(stream.wait(soon()));
  return *buffer;
}

std::vector<std::byte> content(Stream& stream, const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes());
  expect_ok(stream.copy_out(buffer, 0, bytes));
  expect_ok(stream.wait(soon()));
  return bytes;
}

TEST(Cuda, CopyWithinTheDeviceReachesItsOffsetAndNothingElse) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto stream = open_stream(*device);
  const auto from = pattern(1000, 1);
  auto want = pattern(1000, 100);
  const Buffer source_buffer = filled(*device, *stream, from), target = filled(*device, *stream, want);
  expect_ok(stream->copy(target, 300, source_buffer, 50, 200));
  std::copy_n(from.begin() + 50, 200, want.begin() + 300);
  EXPECT_EQ(content(*stream, target), want);
  expect_ok(stream->copy(target, 1000, source_buffer, 0, 0));
  for (const auto& [to, at, bytes] : {std::array{801, 0, 200}, std::array{0, 801, 200}, std::array{0, 0, 1001}}) {
    EXPECT_EQ(stream->copy(target, to, source_buffer, at, bytes).error().code, ErrorCode::invalid_argument);
  }
  EXPECT_EQ(stream->copy(target, 0, Buffer(), 0, 1).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(stream->copy(target, ~0ULL, source_buffer, ~0ULL, 2).error().code, ErrorCode::invalid_argument);
}

TEST(Cuda, CopyFromAnEarlierOpeningIsStale) {
  BERTH_NEEDS_GPU(gpu);
  const auto earlier = gpu->open(), device = gpu->open();
  const auto stream = open_stream(*device);
  const Result<Buffer> old = earlier->allocate(64), own = device->allocate(64);
  ASSERT_TRUE(old && own);
  EXPECT_EQ(stream->copy(*own, 0, *old, 0, 64).error().code, ErrorCode::stale_handle);
  EXPECT_EQ(stream->copy(*old, 0, *own, 0, 64).error().code, ErrorCode::stale_handle);
}

TEST(Cuda, CopyBetweenTwoGpusArrivesAndAClosedSourceIsStale) {
  BERTH_NEEDS_GPU(gpu);
  const auto listed = gpu->backend->list();
  if (listed->size() < 2) GTEST_SKIP() << "this test needs two GPUs";
  const auto near = gpu->open((*listed)[0].id), far = gpu->open((*listed)[1].id);
  const auto near_stream = open_stream(*near), far_stream = open_stream(*far);
  const auto sent = pattern(1 << 20, 3);
  const Buffer there = filled(*far, *far_stream, sent);
  const Buffer here = filled(*near, *near_stream, std::vector<std::byte>(1 << 20));
  for (int round = 0; round < 2; ++round) {
    expect_ok(near_stream->copy(here, 0, there, 0, sent.size()));
    EXPECT_EQ(content(*near_stream, here), sent);
  }
  EXPECT_EQ(near_stream->copy(there, 0, here, 0, 64).error().code, ErrorCode::invalid_argument)
      << "a stream writes to its own device only";
  EXPECT_EQ(near_stream->copy(here, 0, there, sent.size(), 1).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(gpu->current(), nullptr);
  far->close();
  EXPECT_EQ(near_stream->copy(here, 0, there, 0, 64).error().code, ErrorCode::stale_handle);
  EXPECT_EQ(content(*near_stream, here), sent) << "the refusal left this device alone";
}

TEST(Cuda, MemoryOfAStreamIsThereForItsWorkAndOutlivesStreamAndDevice) {
  BERTH_NEEDS_GPU(gpu);
  auto device = gpu->open();
  auto stream = open_stream(*device);
  const auto kernel = load(*device, "count_up");
  constexpr std::uint32_t count = 5003;
  std::vector<std::uint32_t> want(count);
  Buffer last;
  for (std::uint32_t round = 0; round < 20; ++round) {
    Result<Buffer> buffer = stream->allocate(count * sizeof(std::uint32_t));
    ASSERT_TRUE(buffer.has_value()) << buffer.error().to_text();
    EXPECT_EQ(buffer->bytes(), count * sizeof(std::uint32_t));
    const std::array<Argument, 3> arguments{*buffer, count, round};
    expect_ok(stream->launch(*kernel, {{count, 1, 1}, {}}, arguments));
    std::vector<std::uint32_t> got(count);
    expect_ok(stream->copy_out(*buffer, 0, std::as_writable_bytes(std::span(got))));
    expect_ok(stream->wait(soon()));
    std::iota(want.begin(), want.end(), round);
    ASSERT_EQ(got, want);
    last = *buffer;  // frees the one before, in stream order
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

TEST(Cuda, MemoryOfAStreamIsNotHeldBackFromOtherProcesses) {
  BERTH_NEEDS_GPU(gpu);
  if (!gpu->info.features.contains("memory_pools")) GTEST_SKIP() << "this test needs a device with memory pools";
  if (!nvml::Library::load()) GTEST_SKIP() << "this test needs NVML";
  const auto watcher = gpu->open();
  const auto free_bytes = [&] { return watcher->sample().value_or(LoadSample{}).memory_bytes_free.value_or(0); };
  constexpr std::uint64_t gibibyte = 1ULL << 30, kept = 256ULL << 20;
  constexpr std::uint64_t slack = 64ULL << 20;  // bookkeeping of the driver
  const std::uint64_t before = free_bytes();
  {
    const auto device = gpu->open();
    const auto stream = open_stream(*device);
    {
      Result<Buffer> buffer = stream->allocate(2 * gibibyte);
      ASSERT_TRUE(buffer.has_value()) << buffer.error().to_text();
      expect_ok(stream->wait(soon()));
      EXPECT_LE(free_bytes(), before - 2 * gibibyte + slack);
    }
    expect_ok(stream->wait(soon()));
    EXPECT_TRUE(device->sample().has_value());
    EXPECT_GE(free_bytes() + kept + slack, before) << "each sample gives back what exceeds the pool's share";
  }
  EXPECT_GE(free_bytes() + slack, before) << "the last handle gives all of it back";
}

// Whether the driver knows the memory as pinned; absent where it cannot be asked.
std::optional<bool> is_pinned(const Gpu& gpu, Stream& stream, void* memory) {
  const auto flags_of = gpu.driver->find<cuda::Code(unsigned*, void*)>("cuMemHostGetFlags");
  if (flags_of == nullptr) return {};
  bool pinned = false;
  expect_ok(stream.run([&](Stream&) -> Result<void> {
    unsigned flags = 0;
    pinned = flags_of(&flags, memory) == cuda::code_success;
    return {};
  }));
  return pinned;
}

TEST(Cuda, PinnedMemoryCopiesBothWaysAndOutlivesTheDevice) {
  BERTH_NEEDS_GPU(gpu);
  auto device = gpu->open();
  auto stream = open_stream(*device);
  Result<PinnedMemory> pinned = device->pin(1 << 20);
  ASSERT_TRUE(pinned.has_value()) << pinned.error().to_text();
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

TEST(Cuda, CallersMemoryIsPinnedForTheLifeOfTheHandle) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto stream = open_stream(*device);
  alignas(4096) static std::array<std::byte, 16 * 4096> memory{};
  const std::span<std::byte> whole(memory);
  Result<PinnedMemory> pinned = device->pin(whole);
  ASSERT_TRUE(pinned.has_value()) << pinned.error().to_text();
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
  EXPECT_TRUE(device->pin(whole).has_value()) << "letting go made it free to be pinned again";
  EXPECT_EQ(device->pin(std::span<std::byte>()).error().code, ErrorCode::invalid_argument);
}

// The PTX above linked into a binary for this GPU; absent where the driver has no linker.
std::optional<std::string> cubin_of(const Gpu& gpu, Stream& stream) {
  using State = void*;
  const auto create = gpu.driver->find<cuda::Code(unsigned, int*, void**, State*)>("cuLinkCreate_v2");
  const auto add = gpu.driver->find<cuda::Code(State, int, void*, std::size_t, const char*, unsigned, int*, void**)>(
      "cuLinkAddData_v2");
  const auto complete = gpu.driver->find<cuda::Code(State, void**, std::size_t*)>("cuLinkComplete");
  const auto destroy = gpu.driver->find<cuda::Code(State)>("cuLinkDestroy");
  if (!create || !add || !complete || !destroy) return {};
  constexpr int input_is_ptx = 1;
  std::string text = kernels, binary;
  expect_ok(stream.run([&](Stream&) -> Result<void> {
    State state = nullptr;
    void* image = nullptr;
    std::size_t bytes = 0;
    EXPECT_EQ(create(0, nullptr, nullptr, &state), 0);
    EXPECT_EQ(add(state, input_is_ptx, text.data(), text.size() + 1, "kernels", 0, nullptr, nullptr), 0);
    EXPECT_EQ(complete(state, &image, &bytes), 0);
    binary.assign(static_cast<const char*>(image), bytes);
    EXPECT_EQ(destroy(state), 0);
    return {};
  }));
  return binary;
}

void expect_counts_up(Device& device, Stream& stream, const Kernel& kernel) {
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

TEST(Cuda, ABinaryMadeForTheDeviceRuns) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto stream = open_stream(*device);
  const std::optional<std::string> binary = cubin_of(*gpu, *stream);
  if (!binary) GTEST_SKIP() << "this driver has no linker to make a binary with";
  KernelSource form{"count_up", {}, {}, {}};
  form.cubin = *binary;
  form.ptx = "nobody reads this";
  const auto kernel = device->load(form);
  ASSERT_TRUE(kernel.has_value()) << kernel.error().to_text();
  expect_counts_up(*device, *stream, **kernel);
}

TEST(Cuda, ABinaryTheDeviceCannotRunGivesWayToPtx) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto stream = open_stream(*device);
  KernelSource form = source("count_up");
  form.cubin = "no binary of any GPU, and long enough to have a header of some kind that nobody knows";
  const auto kernel = device->load(form);
  ASSERT_TRUE(kernel.has_value()) << kernel.error().to_text();
  expect_counts_up(*device, *stream, **kernel);
  form.ptx.clear();
  const auto refused = device->load(form);
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().code == ErrorCode::invalid_argument || refused.error().code == ErrorCode::not_supported);
  EXPECT_NE(refused.error().message.find("binary of the kernel 'count_up'"), std::string::npos);
  EXPECT_NE(refused.error().advice.find("ptx"), std::string::npos) << refused.error().to_text();
  form.ptx = ".version 7.0\n.target sm_52\n.address_size 64\nnonsense here\n";
  const auto both = device->load(form);
  ASSERT_FALSE(both.has_value());
  EXPECT_NE(both.error().message.find("; then "), std::string::npos) << both.error().message;
}

TEST(Cuda, CudaCppIsCompiledForTheDeviceWhereTheCompilerIsInstalled) {
  BERTH_NEEDS_GPU(gpu);
  if (gpu->is_double()) GTEST_SKIP() << "a scripted GPU does not read what the run-time compiler writes";
  const auto device = gpu->open();
  const auto stream = open_stream(*device);
  KernelSource form{"count_up", {}, {}, {}};
  form.cuda_cpp = R"(extern "C" __global__ void count_up(unsigned* out, unsigned count, unsigned first) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = first + i;
  })";
  const auto kernel = device->load(form);
  if (!kernel && kernel.error().message.find("no CUDA run-time compiler") != std::string::npos) {
    GTEST_SKIP() << kernel.error().to_text();
  }
  ASSERT_TRUE(kernel.has_value()) << kernel.error().to_text();
  expect_counts_up(*device, *stream, **kernel);
  // Without extern "C" the entry has another name, and the error says so.
  form.cuda_cpp = "__global__ void count_up(unsigned* out, unsigned count, unsigned first) {}";
  const auto mangled = device->load(form);
  ASSERT_FALSE(mangled.has_value());
  EXPECT_EQ(mangled.error().code, ErrorCode::not_found);
  EXPECT_NE(mangled.error().advice.find("extern \"C\""), std::string::npos) << mangled.error().to_text();
  form.cuda_cpp = "extern \"C\" __global__ void count_up() { no_such_name; }";
  const auto wrong = device->load(form);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(wrong.error().message.find("no_such_name"), std::string::npos) << wrong.error().message;
  EXPECT_EQ(wrong.error().where, gpu->info.id.text());
}

TEST(Cuda, OccupancyTellsHowManyGroupsFillAUnit) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto kernel = load(*device, "count_up");
  const auto seen = kernel->occupancy(256);
  ASSERT_TRUE(seen.has_value()) << seen.error().to_text();
  EXPECT_GE(seen->groups_per_unit, 1u);
  EXPECT_GE(seen->group_best, 32u);
  EXPECT_LE(seen->group_best, 1024u);
  EXPECT_GT(seen->share, 0.0);
  EXPECT_LE(seen->share, 1.0);
  const auto best = kernel->occupancy(seen->group_best);
  ASSERT_TRUE(best.has_value()) << best.error().to_text();
  EXPECT_GE(best->share, seen->share) << "no size fills a unit better than the best";
  EXPECT_EQ(kernel->occupancy(0).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(kernel->occupancy(100000).error().code, ErrorCode::invalid_argument);
  device->close();
  EXPECT_EQ(kernel->occupancy(256).error().code, ErrorCode::device_lost);
}

TEST(Cuda, ClosingWaitsForTheCopiesOnTheirWay) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto stream = open_stream(*device);
  const auto kernel = load(*device, "spin");
  expect_ok(spin(*stream, *kernel, 1us));
  const auto sent = pattern(1 << 20, 21);
  const Buffer buffer = filled(*device, *stream, sent);
  Result<PinnedMemory> target = device->pin(1 << 20);
  ASSERT_TRUE(target.has_value());
  std::fill(target->bytes().begin(), target->bytes().end(), std::byte{0});
  // The copy cannot begin before the kernel ends, long after close() is called.
  expect_ok(spin(*stream, *kernel, 200ms));
  expect_ok(stream->copy_out(buffer, 0, target->bytes()));
  const TimePoint before = real_clock().now();
  device->close();
  EXPECT_GE(real_clock().now() - before, 100ms);
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), target->bytes().begin()))
      << "after close() nobody writes to the caller's memory";
}

TEST(Cuda, PartsOfAGpuAreDevicesThatShareItsMemoryAndItsFaults) {
  BERTH_NEEDS_CUT_GPU(gpu, 64, 32, 16, 16);
  const std::string whole = gpu->info.id.text();
  const char* names[] = {"/sm64.0", "/sm32.0", "/sm16.0", "/sm16.1"};
  const std::uint32_t units[] = {64, 32, 16, 16};
  const int before = gpu->active();
  for (std::size_t i = 0; i < 4; ++i) {
    const DeviceInfo& part = gpu->parts[i];
    EXPECT_EQ(part.id.text(), whole + names[i]);
    EXPECT_EQ(part.parent, gpu->info.id);
    EXPECT_EQ(part.compute_units, units[i]);
    EXPECT_EQ(part.memory_domain, whole);
    EXPECT_EQ(part.fault_domain, whole);
    EXPECT_EQ(part.memory_bytes_total, gpu->info.memory_bytes_total);
    EXPECT_EQ(part.pci_address, gpu->info.pci_address);
    EXPECT_TRUE(part.features.contains("partition"));
    EXPECT_EQ(part.ordinal, static_cast<int>(i));
  }
  EXPECT_EQ(gpu->active(), before) << "listing opens nothing";
  const auto again = gpu->backend->list();
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(std::equal(gpu->parts.begin(), gpu->parts.end(), again->begin()));
  const auto cut = gpu->backend->open(gpu->info.id);
  ASSERT_FALSE(cut.has_value());
  EXPECT_EQ(cut.error().code, ErrorCode::not_found);
  EXPECT_NE(cut.error().message.find("cut into parts"), std::string::npos);
}

TEST(Cuda, PartsComputeAndCopyFromOneAnother) {
  BERTH_NEEDS_CUT_GPU(gpu, 64, 32, 16, 16);
  std::vector<std::shared_ptr<Device>> devices;
  std::vector<std::unique_ptr<Stream>> streams;
  for (const DeviceInfo& part : gpu->parts) {
    devices.push_back(gpu->open(part.id));
    streams.push_back(open_stream(*devices.back()));
    expect_counts_up(*devices.back(), *streams.back(), *load(*devices.back(), "count_up"));
    Result<Buffer> ordered = streams.back()->allocate(4096);
    ASSERT_TRUE(ordered.has_value()) << ordered.error().to_text();
    EXPECT_FALSE(devices.back()->sample()->utilisation.has_value()) << "the GPU's is not the part's";
  }
  EXPECT_EQ(gpu->current(), nullptr);
  const auto sent = pattern(5000, 2);
  const Buffer from = filled(*devices[0], *streams[0], sent);
  const Buffer to = filled(*devices[3], *streams[3], std::vector<std::byte>(5000));
  expect_ok(streams[3]->copy(to, 0, from, 0, sent.size()));
  EXPECT_EQ(content(*streams[3], to), sent);
  // What a sibling made is not this part's, though the memory is one.
  std::array<std::byte, 8> host{};
  EXPECT_EQ(streams[3]->copy_out(from, 0, host).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(streams[3]->launch(*load(*devices[0], "empty"), {}, {}).error().code, ErrorCode::invalid_argument);
  // Closing one leaves the others alone.
  devices[1]->close();
  expect_counts_up(*devices[2], *streams[2], *load(*devices[2], "count_up"));
  EXPECT_EQ(streams[2]->copy(filled(*devices[2], *streams[2], host), 0, Buffer(), 0, 8).error().code,
            ErrorCode::invalid_argument);
}

TEST(Cuda, PartsRunOnTheirOwnMultiprocessorsOnly) {
  BERTH_NEEDS_CUT_GPU(gpu, 64, 32, 16, 16);
  if (gpu->is_double()) GTEST_SKIP() << "a scripted GPU has no multiprocessors to run on";
  constexpr std::uint32_t groups = 4096;  // several waves on any part
  std::vector<std::set<std::uint32_t>> used;
  for (const DeviceInfo& part : gpu->parts) {
    const auto device = gpu->open(part.id);
    const auto stream = open_stream(*device);
    const auto kernel = device->load({"where", {}, {}, where_kernel});
    ASSERT_TRUE(kernel.has_value()) << kernel.error().to_text();
    Result<Buffer> out = device->allocate(groups * sizeof(std::uint32_t));
    ASSERT_TRUE(out.has_value());
    const std::array<Argument, 2> arguments{*out, std::uint64_t{20'000}};
    expect_ok(stream->launch(**kernel, {{groups, 1, 1}, {1, 1, 1}}, arguments));
    std::vector<std::uint32_t> seen(groups);
    expect_ok(stream->copy_out(*out, 0, std::as_writable_bytes(std::span(seen))));
    expect_ok(stream->wait(soon()));
    used.emplace_back(seen.begin(), seen.end());
    EXPECT_EQ(used.back().size(), *part.compute_units) << part.id;
  }
  for (std::size_t a = 0; a < used.size(); ++a) {
    for (std::size_t b = a + 1; b < used.size(); ++b) {
      for (const std::uint32_t unit : used[a]) EXPECT_FALSE(used[b].contains(unit)) << a << " and " << b;
    }
  }
}

TEST(Cuda, APartitionThatDoesNotAddUpIsOneClearSentence) {
  BERTH_NEEDS_GPU(gpu);
  const auto refused = [](const BackendOptions& options) {
    const auto listed = make_cuda_backend(options)->list();
    EXPECT_FALSE(listed.has_value());
    return listed ? Error{} : listed.error();
  };
  const std::uint32_t units = gpu->info.compute_units.value();
  const Error sum = refused(cut_into({units, 8}));
  EXPECT_EQ(sum.code, ErrorCode::invalid_argument) << sum.to_text();
  EXPECT_NE(sum.message.find(std::to_string(units)), std::string::npos) << sum.message;
  const Error small = refused(cut_into({1}));
  EXPECT_EQ(small.code, gpu->info.parent ? ErrorCode::not_supported : ErrorCode::invalid_argument) << small.to_text();
  BackendOptions twice = cut_into({16});
  twice.partitions.push_back({"cuda:" + gpu->info.id.text(), {16}});
  EXPECT_EQ(refused(twice).code, ErrorCode::invalid_argument);
  BackendOptions unknown;
  unknown.partitions.push_back({"cuda:99", {16}});
  EXPECT_EQ(refused(unknown).code, ErrorCode::invalid_argument);
  BackendOptions others;
  others.partitions.push_back({"host:0", {1}});
  EXPECT_TRUE(make_cuda_backend(others)->list().has_value()) << "a request for another back end is not ours";
}

// Runs in a process of its own, which the fault spoils. Says on stderr what
// went wrong and ends with 1, or ends with 0.
[[noreturn]] void fault_and_report() {
  alarm(60);  // a hang is a failure
  int wrong = 0;
  const auto expect = [&](bool good, const std::string& what) {
    if (good) return;
    ++wrong;
    std::fprintf(stderr, "not as promised: %s\n", what.c_str());
  };
  const auto expect_lost = [&](const auto& result, const char* what) {
    expect(!result && result.error().code == ErrorCode::device_lost &&
               result.error().advice.find("restart the process") != std::string::npos,
           std::string(what) + (result ? " succeeded" : ": " + result.error().to_text()));
  };
  Result<Gpu> gpu = first_gpu();
  const DeviceId id = gpu->info.id;
  {
    const auto device = gpu->open();
    const auto stream = open_stream(*device);
    const auto kernel = load(*device, "fault");
    Result<Buffer> buffer = device->allocate(64);
    std::array<std::byte, 64> host{};
    expect(stream->launch(*kernel, {}, {}).has_value(), "the launch itself");
    Result<std::shared_ptr<Event>> event = stream->record();
    const TimePoint before = real_clock().now();
    const Result<void> waited = event ? (*event)->wait(Deadline::after(real_clock(), 10s)) : event.error();
    const Duration took = real_clock().now() - before;
    expect_lost(waited, "waiting for the fault");
    expect(!waited && waited.error().driver == DriverError{700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, "the driver's code");
    std::fprintf(stderr, "fault reported after %lld us\n",
                 static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
    expect_lost(device->allocate(64), "allocate");
    expect_lost(device->open_stream(), "open_stream");
    expect_lost(device->load(source("empty")), "load");
    expect_lost(device->sample(), "sample");
    expect_lost(stream->copy_in(*buffer, 0, host), "copy_in");
    expect_lost(stream->copy_out(*buffer, 0, host), "copy_out");
    expect_lost(stream->launch(*kernel, {}, {}), "launch");
    expect_lost(stream->record(), "record");
    expect_lost(stream->wait(), "wait without a deadline");
    if (event) expect_lost((*event)->done(), "done");
    if (event) expect_lost((*event)->wait(), "wait for the event without a deadline");
    expect(gpu->current() == nullptr, "the caller's context");
  }
  expect_lost(gpu->backend->open(id), "opening again");
  std::fprintf(stderr, wrong == 0 ? "all calls answer device_lost\n" : "%d promises broken\n", wrong);
  std::fflush(stderr);
  std::_Exit(wrong == 0 ? 0 : 1);
}

TEST(CudaDeathTest, FaultIsReportedInTimeAndLosesTheDeviceForTheProcess) {
  BERTH_NEEDS_GPU(gpu);
  // A fresh process: CUDA does not survive a fork.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fault_and_report(), testing::ExitedWithCode(0), "all calls answer device_lost");
  // This process is another fault domain and goes on.
  EXPECT_TRUE(gpu->open()->allocate(64).has_value());
}

// The same with the GPU in parts: the fault of one is the loss of all.
[[noreturn]] void fault_in_one_part_and_report() {
  alarm(60);
  int wrong = 0;
  const auto expect = [&](bool good, const std::string& what) {
    if (good) return;
    ++wrong;
    std::fprintf(stderr, "not as promised: %s\n", what.c_str());
  };
  Result<CutGpu> gpu = cut_gpu({64, 32, 16, 16});
  {
    std::vector<std::shared_ptr<Device>> devices;
    std::vector<std::unique_ptr<Stream>> streams;
    for (const DeviceInfo& part : gpu->parts) {
      devices.push_back(gpu->open(part.id));
      streams.push_back(open_stream(*devices.back()));
    }
    Result<Buffer> ordered = streams[1]->allocate(4096);
    Result<PinnedMemory> pinned = devices[1]->pin(4096);
    const auto fault = load(*devices[2], "fault"), spin_kernel = load(*devices[0], "spin");
    // Work of the siblings is on its way when the fault comes.
    expect(spin(*streams[0], *spin_kernel, 2s).has_value(), "the sibling's launch");
    Result<std::shared_ptr<Event>> sibling = streams[0]->record();
    expect(streams[2]->launch(*fault, {}, {}).has_value(), "the launch itself");
    Result<std::shared_ptr<Event>> own = streams[2]->record();
    const auto lost = [&](const auto& result, const std::string& what) {
      expect(!result && result.error().code == ErrorCode::device_lost,
             what + (result ? " succeeded" : ": " + result.error().to_text()));
    };
    const TimePoint before = real_clock().now();
    // A fast fault is known when the event is recorded.
    lost(own ? (*own)->wait(Deadline::after(real_clock(), 10s)) : own.error(), "waiting for the fault");
    expect(sibling.has_value(), "recording the sibling's event");
    if (sibling) lost((*sibling)->wait(Deadline::after(real_clock(), 10s)), "waiting for the sibling's work");
    expect(real_clock().now() - before < 10s, "the loss is known before the deadline");
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const std::string name = devices[i]->id().text();
      lost(devices[i]->allocate(64), "allocate on " + name);
      lost(devices[i]->open_stream(), "open_stream on " + name);
      lost(streams[i]->record(), "record on " + name);
      lost(streams[i]->wait(), "wait without a deadline on " + name);
    }
    if (ordered) ordered = Buffer();
    if (pinned) pinned = PinnedMemory();
  }
  for (const DeviceInfo& part : gpu->parts) {
    const auto again = gpu->backend->open(part.id);
    expect(!again && again.error().code == ErrorCode::device_lost, "opening " + part.id.text() + " again");
  }
  const auto whole = make_cuda_backend({})->open(gpu->info.id);
  expect(!whole && whole.error().code == ErrorCode::device_lost, "opening the whole GPU");
  std::fprintf(stderr, wrong == 0 ? "every part is lost\n" : "%d promises broken\n", wrong);
  std::fflush(stderr);
  std::_Exit(wrong == 0 ? 0 : 1);
}

TEST(CudaDeathTest, FaultInOnePartLosesItsSiblingsAndNothingHangs) {
  BERTH_NEEDS_CUT_GPU(gpu, 64, 32, 16, 16);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fault_in_one_part_and_report(), testing::ExitedWithCode(0), "every part is lost");
}

// Last, because the runtime keeps the primary context until the process ends.
TEST(CudaRuntime, S4_F3_RuntimeApiOfTheSameProcessUsesTheSameContext) {
  BERTH_NEEDS_GPU(gpu);
  void* runtime = nullptr;
  for (const char* name :
       {"libcudart.so.13", "libcudart.so.12", "libcudart.so", "/usr/local/cuda/lib64/libcudart.so"}) {
    if ((runtime = dlopen(name, RTLD_NOW)) != nullptr) break;
  }
  if (runtime == nullptr) GTEST_SKIP() << "this test needs the CUDA runtime library";
  const auto set_device = reinterpret_cast<int (*)(int)>(dlsym(runtime, "cudaSetDevice"));
  const auto free_memory = reinterpret_cast<int (*)(void*)>(dlsym(runtime, "cudaFree"));
  ASSERT_TRUE(set_device && free_memory);
  {
    const auto device = gpu->open();
    ASSERT_EQ(set_device(gpu->info.ordinal), 0);
    ASSERT_EQ(free_memory(nullptr), 0);
    EXPECT_EQ(gpu->current(), device->native().context);
    // A buffer of ours is memory of the runtime's too.
    Result<Buffer> buffer = device->allocate(4096);
    ASSERT_TRUE(buffer.has_value());
    const auto copy = reinterpret_cast<int (*)(void*, const void*, std::size_t, int)>(dlsym(runtime, "cudaMemcpy"));
    std::array<char, 16> text{"from runtime"};
    EXPECT_EQ(copy(buffer->native(), text.data(), text.size(), /*host to device*/ 1), 0);
    const auto stream = open_stream(*device);
    std::array<char, 16> back{};
    expect_ok(stream->copy_out(*buffer, 0, std::as_writable_bytes(std::span(back))));
    expect_ok(stream->wait(soon()));
    EXPECT_EQ(back, text);
  }
  EXPECT_EQ(gpu->driver->cuCtxSetCurrent(nullptr), 0);
}

}  // namespace
}  // namespace berth
