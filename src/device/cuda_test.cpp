// The CUDA back end on a real GPU. Without one every test here is skipped and
// says why; what needs no GPU is tested in the other cuda_*_test.cpp.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "device/backends.hpp"
#include "device/cuda_driver.hpp"
#include "device/nvml.hpp"

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

KernelSource source(const char* entry) { return {entry, {}, {}, kernels}; }

// The first GPU, its back end, and the raw driver beside it.
struct Gpu {
  std::unique_ptr<Backend> backend;
  DeviceInfo info;
  const cuda::Driver* driver = nullptr;

  std::shared_ptr<Device> open() const {
    Result<std::shared_ptr<Device>> device = backend->open(info.id);
    EXPECT_TRUE(device.has_value()) << device.error().to_text();
    return *device;
  }
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

Result<Gpu> first_gpu() {
  Gpu gpu{make_cuda_backend({}), {}, nullptr};
  Result<std::vector<DeviceInfo>> found = gpu.backend->list();
  if (!found) return std::move(found).error();
  if (found->empty()) return Error{ErrorCode::no_device, "the CUDA driver finds no GPU", "", "", {}};
  gpu.info = found->front();
  gpu.driver = *cuda::Driver::load();
  return gpu;
}

#define BERTH_NEEDS_GPU(gpu)     \
  Result<Gpu> gpu = first_gpu(); \
  if (!gpu) GTEST_SKIP() << "this test needs an NVIDIA GPU: " << gpu.error().to_text()

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
    EXPECT_TRUE(device->sample()->utilisation.has_value());
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
