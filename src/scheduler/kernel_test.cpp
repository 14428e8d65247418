// Kernels in several forms, through the scheduler: loaded once per device, and work goes where
// its kernels can run.
#include <set>

#include "device/contract_kernels.hpp"
#include "scheduler/fixture.hpp"

namespace berth::scheduler {
namespace {

// The host's processor and what OpenCL finds; a GPU if the machine has one.
class Kernels : public testing::Test {
 protected:
  void SetUp() override {
    Result<Pool> opened = Pool::open_all();
    ASSERT_TRUE(opened) << opened.error().to_text();
    pool.emplace(*std::move(opened));
    scheduler.emplace(*Scheduler::start(*pool));
  }
  std::size_t devices_of(std::string_view backend) const {
    std::size_t count = 0;
    for (const auto& device : pool->devices()) count += device->info().backend == backend;
    return count;
  }
  std::string backend_of(const DeviceId& id) const { return (*pool->device(id))->info().backend; }

  // Adds two vectors with the kernel; returns the third value of the sum.
  static auto adding(const Kernel& kernel) {
    return [kernel](TaskContext& task) -> Result<std::vector<float>> {
      const std::vector<float> a{1, 2, 3}, b{10, 20, 30};
      const Buffer a_there = BERTH_TRY(task.copy_in(a)), b_there = BERTH_TRY(task.copy_in(b));
      const Buffer sum = BERTH_TRY(task.allocate(sizeof(float) * 3));
      BERTH_TRY(task.launch(kernel, {3}, {a_there, b_there, sum, std::uint32_t{3}}));
      std::vector<float> out = BERTH_TRY(task.copy_out<float>(sum));
      BERTH_TRY((*task.stream())->wait());  // `a` and `b` are gone when this returns
      return out;
    };
  }
  static TaskOptions with(const Kernel& kernel, std::vector<std::string> backends = {}) {
    TaskOptions options;
    options.kernels = {kernel};
    options.requirements.backends = std::move(backends);
    return options;
  }

  std::optional<Pool> pool;
  std::optional<Scheduler> scheduler;
};

TEST_F(Kernels, OneKernelComputesTheSameOnEveryKindOfDevice) {
  const Kernel add(contract::add_source());
  std::set<std::string> seen;
  for (const auto& device : pool->devices()) {
    TaskOptions options = with(add);
    options.requirements.only = {device->id()};
    const auto sum = scheduler->submit(adding(add), options).get();
    ASSERT_TRUE(sum) << sum.error().to_text();
    EXPECT_EQ(sum->value, (std::vector<float>{11, 22, 33})) << "on " << sum->device;
    seen.insert(device->info().backend);
  }
  EXPECT_TRUE(seen.contains("host"));
}

TEST_F(Kernels, WorkIsNotGivenToADeviceWithoutAFormOfItsKernel) {
  KernelSource source = contract::add_source();
  source.opencl_c.clear();
  source.ptx.clear();
  const Kernel on_host(source);
  for (int i = 0; i < 20; ++i) {
    const auto sum = scheduler->submit(adding(on_host), with(on_host)).get();
    ASSERT_TRUE(sum) << sum.error().to_text();
    EXPECT_EQ(backend_of(sum->device), "host");
  }
  for (const auto& result : scheduler->map(
           std::vector<int>(20), [&](TaskContext& task, int) { return adding(on_host)(task); }, with(on_host)))
    EXPECT_EQ(backend_of(result->device), "host");

  const auto nowhere = scheduler->submit(adding(on_host), with(on_host, {"opencl"})).get();
  EXPECT_EQ(nowhere.error().code, ErrorCode::not_supported) << nowhere.error().to_text();
  const Kernel formless{KernelSource{.entry = "add"}};
  const Error error = scheduler->submit(adding(formless), with(formless)).get().error();
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(error.message, "kernel 'add' has no form");
  EXPECT_EQ(scheduler->run(adding(formless), with(formless)).error().code, ErrorCode::invalid_argument);
}

TEST_F(Kernels, AKernelIsLoadedOncePerDevice) {
  const Kernel add(contract::add_source());
  std::mutex mutex;
  std::map<DeviceId, std::set<const LoadedKernel*>> loaded;
  const auto results = scheduler->map(
      std::vector<int>(200),
      [&](TaskContext& task, int) -> Result<void> {
        const std::shared_ptr<LoadedKernel> kernel = BERTH_TRY(task.load(add));
        const std::lock_guard lock(mutex);
        loaded[task.device().id()].insert(kernel.get());
        return {};
      },
      with(add));
  for (const auto& result : results) ASSERT_TRUE(result) << result.error().to_text();
  for (const auto& [device, kernels] : loaded) EXPECT_EQ(kernels.size(), 1U) << device;
}

TEST_F(Kernels, AKernelThatOneDeviceCannotCompileRunsOnTheOthersAndNothingIsLost) {
  if (devices_of("opencl") == 0) GTEST_SKIP() << "needs an OpenCL device";
  KernelSource source = contract::add_source();
  source.opencl_c = "kernel void add(";
  const Kernel broken(source);
  TaskOptions options = with(broken, {"opencl", "host"});
  for (const auto& device : pool->devices())
    if (device->info().backend == "opencl") options.requirements.prefer.push_back(device->id());
  for (int i = 0; i < 10; ++i) {
    const auto sum = scheduler->submit(adding(broken), options).get();
    ASSERT_TRUE(sum) << sum.error().to_text();
    EXPECT_EQ(backend_of(sum->device), "host");
    const auto inline_sum = scheduler->run(adding(broken), options);
    ASSERT_TRUE(inline_sum) << inline_sum.error().to_text();
  }
  // A kernel that failed to compile is not tried on that device again.
  std::uint64_t tried = 0;
  for (const DeviceStatistics& device : scheduler->statistics().devices)
    if (backend_of(device.device) == "opencl") tried += device.dispatched;
  EXPECT_EQ(tried, devices_of("opencl"));
  const std::vector<Error> errors = scheduler->kernel_errors();
  ASSERT_EQ(errors.size(), devices_of("opencl")) << "they explain why a device gets no work";
  EXPECT_EQ(errors[0].code, ErrorCode::invalid_argument);
  EXPECT_FALSE(errors[0].where.empty());
  EXPECT_TRUE(adds_up(scheduler->statistics()));

  const auto nowhere = scheduler->submit(adding(broken), with(broken, {"opencl"})).get();
  EXPECT_EQ(nowhere.error().code, ErrorCode::no_eligible_device);
  const Kernel again(source);
  const auto first = scheduler->submit(adding(again), with(again, {"opencl"})).get();
  EXPECT_EQ(first.error().code, ErrorCode::invalid_argument) << "the compiler's error";
  EXPECT_NE(first.error().message.find("add"), std::string::npos);
}

TEST(LaunchShape, TakesPlainBracesOfAnyIntegers) {
  const std::size_t width = 640;
  EXPECT_EQ(LaunchShape{width}.global, (std::array<std::uint32_t, 3>{640, 1, 1}));
  EXPECT_EQ(LaunchShape(width, 480).global, (std::array<std::uint32_t, 3>{640, 480, 1}));
  EXPECT_EQ(LaunchShape(1, 2, 3L).global, (std::array<std::uint32_t, 3>{1, 2, 3}));
  EXPECT_EQ(LaunchShape(-1).global[0], 0U) << "every device refuses a size of 0";
  EXPECT_EQ(LaunchShape(std::uint64_t{1} << 33).global[0], 0U);
}

}  // namespace
}  // namespace berth::scheduler
