// Loading and launching kernels on a GPU.
#include "device/cuda/test_gpu.hpp"

#include <array>
#include <numeric>

namespace berth::cuda {
namespace {

TEST(Cuda, S3_F13_AKernelComputesAndItsEventReportsCompletion) {
  BERTH_NEEDS_GPU(gpu);
  const auto [device, stream] = open_with_stream(*gpu);
  const auto kernel = load(*device, "count_up");
  constexpr std::uint32_t count = 100003;  // not a multiple of a group's size
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

TEST(Cuda, TheLogOfTheCompilerIsInTheError) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto bad = device->load({"broken", {}, {}, ".version 7.0\n.target sm_52\n.address_size 64\nnonsense here\n"});
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(bad.error().driver, (DriverError{218, "CUDA_ERROR_INVALID_PTX"}));
  EXPECT_NE(bad.error().message.find("line 4"), std::string::npos) << bad.error().message;
  const auto absent = device->load(source("no_such_kernel"));
  ASSERT_TRUE(fails_with(absent, ErrorCode::not_found));
  EXPECT_EQ(device->load({"x", {}, "kernel void x() {}", {}}).error().code, ErrorCode::not_supported);
}

TEST(Cuda, LaunchWithWrongArgumentsIsRefused) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  if (gpu->driver->cuFuncGetParamInfo == nullptr)
    GTEST_SKIP() << "this driver does not report the parameters of kernels";
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

// The PTX linked into a binary for this GPU; absent if the driver has no linker.
std::optional<std::string> cubin_of(const Gpu& gpu, Stream& stream) {
  using State = void*;
  const auto create = gpu.driver->find<Code(unsigned, int*, void**, State*)>("cuLinkCreate_v2");
  const auto add =
      gpu.driver->find<Code(State, int, void*, std::size_t, const char*, unsigned, int*, void**)>("cuLinkAddData_v2");
  const auto complete = gpu.driver->find<Code(State, void**, std::size_t*)>("cuLinkComplete");
  const auto destroy = gpu.driver->find<Code(State)>("cuLinkDestroy");
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

TEST(Cuda, ABinaryForTheDeviceRuns) {
  BERTH_NEEDS_GPU(gpu);
  const auto [device, stream] = open_with_stream(*gpu);
  const std::optional<std::string> binary = cubin_of(*gpu, *stream);
  if (!binary) GTEST_SKIP() << "this driver has no linker to make a binary with";
  KernelSource form{"count_up", {}, {}, {}};
  form.cubin = *binary;
  form.ptx = "not read";
  const auto kernel = device->load(form);
  ASSERT_TRUE(works(kernel));
  expect_counts_up(*device, *stream, **kernel);
}

TEST(Cuda, PtxIsUsedIfTheDeviceCannotRunTheBinary) {
  BERTH_NEEDS_GPU(gpu);
  const auto [device, stream] = open_with_stream(*gpu);
  KernelSource form = source("count_up");
  form.cubin = "not a binary of any GPU, but long enough to have a header of some unknown format";
  const auto kernel = device->load(form);
  ASSERT_TRUE(works(kernel));
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

TEST(Cuda, CudaCppIsCompiledIfTheCompilerIsInstalled) {
  BERTH_NEEDS_GPU(gpu);
  const auto [device, stream] = open_with_stream(*gpu);
  KernelSource form{"count_up", {}, {}, {}};
  form.cuda_cpp = R"(extern "C" __global__ void count_up(unsigned* out, unsigned count, unsigned first) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = first + i;
  })";
  const auto kernel = device->load(form);
  if (!kernel && kernel.error().message.find("no CUDA run-time compiler") != std::string::npos) {
    GTEST_SKIP() << kernel.error().to_text();
  }
  ASSERT_TRUE(works(kernel));
  expect_counts_up(*device, *stream, **kernel);
  // Without extern "C" the entry has a mangled name.
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

TEST(Cuda, OccupancyIsTheNumberOfGroupsPerUnit) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto kernel = load(*device, "count_up");
  const auto seen = kernel->occupancy(256);
  ASSERT_TRUE(works(seen));
  EXPECT_GE(seen->groups_per_unit, 1u);
  EXPECT_GE(seen->best_group_size, 32u);
  EXPECT_LE(seen->best_group_size, 1024u);
  EXPECT_GT(seen->share, 0.0);
  EXPECT_LE(seen->share, 1.0);
  const auto best = kernel->occupancy(seen->best_group_size);
  ASSERT_TRUE(works(best));
  EXPECT_GE(best->share, seen->share) << "no size fills a unit better than the best";
  EXPECT_EQ(kernel->occupancy(0).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(kernel->occupancy(100000).error().code, ErrorCode::invalid_argument);
  device->close();
  EXPECT_EQ(kernel->occupancy(256).error().code, ErrorCode::device_lost);
}

}  // namespace
}  // namespace berth::cuda
