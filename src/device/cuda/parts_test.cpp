// Partitions of a GPU.
#include "device/cuda/test_gpu.hpp"

#include <algorithm>
#include <set>

namespace berth::cuda {
namespace {

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
    ASSERT_TRUE(works(ordered));
    EXPECT_FALSE(devices.back()->sample()->utilization.has_value()) << "a part has no utilization of its own";
  }
  EXPECT_EQ(gpu->current(), nullptr);
  const auto sent = pattern(5000, 2);
  const Buffer from = filled(*devices[0], *streams[0], sent);
  const Buffer to = filled(*devices[3], *streams[3], std::vector<std::byte>(5000));
  expect_ok(streams[3]->copy(to, 0, from, 0, sent.size()));
  EXPECT_EQ(content(*streams[3], to), sent);
  // A part cannot use a sibling's buffer, although they share memory.
  std::array<std::byte, 8> host{};
  EXPECT_EQ(streams[3]->copy_out(from, 0, host).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(streams[3]->launch(*load(*devices[0], "empty"), {}, {}).error().code, ErrorCode::invalid_argument);
  // Closing one part does not affect the others.
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
    const auto [device, stream] = open_with_stream(*gpu, part.id);
    const auto kernel = device->load({"where", {}, {}, where_kernel});
    ASSERT_TRUE(works(kernel));
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

TEST(Cuda, APartitionThatDoesNotFitIsRefusedWithTheReason) {
  BERTH_NEEDS_GPU(gpu);
  const auto refused = [](const BackendOptions& options) {
    const auto listed = device::make_cuda_backend(options)->list();
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
  EXPECT_TRUE(device::make_cuda_backend(others)->list().has_value()) << "a request for another back end is not ours";
}

}  // namespace
}  // namespace berth::cuda
