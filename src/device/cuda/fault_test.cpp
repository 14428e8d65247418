// Faults of kernels. Each runs in a separate process, which the fault makes unusable.
#include "device/cuda/test_gpu.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace berth::cuda {
namespace {

using namespace std::chrono_literals;

// Runs in a separate process. Writes failures to stderr and exits with 1, or with 0.
[[noreturn]] void fault_and_report() {
  alarm(60);  // a hang is a failure
  int wrong = 0;
  const auto expect = [&](bool good, const std::string& what) {
    if (good) return;
    ++wrong;
    std::fprintf(stderr, "failed: %s\n", what.c_str());
  };
  const auto expect_lost = [&](const auto& result, const char* what) {
    expect(!result && result.error().code == ErrorCode::device_lost &&
               result.error().advice.find("restart the process") != std::string::npos,
           std::string(what) + (result ? " succeeded" : ": " + result.error().to_text()));
  };
  Result<Gpu> gpu = first_gpu();
  const DeviceId id = gpu->info.id;
  {
    const auto [device, stream] = open_with_stream(*gpu);
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
  std::fprintf(stderr, wrong == 0 ? "all calls answer device_lost\n" : "%d checks failed\n", wrong);
  std::fflush(stderr);
  std::_Exit(wrong == 0 ? 0 : 1);
}

TEST(CudaDeathTest, FaultIsReportedInTimeAndLosesTheDeviceForTheProcess) {
  BERTH_NEEDS_GPU(gpu);
  // A fresh process: CUDA does not survive a fork.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fault_and_report(), testing::ExitedWithCode(0), "all calls answer device_lost");
  // This process is another fault domain and continues.
  EXPECT_TRUE(gpu->open()->allocate(64).has_value());
}

// The same with the GPU in parts: the fault of one is the loss of all.
[[noreturn]] void fault_in_one_part_and_report() {
  alarm(60);
  int wrong = 0;
  const auto expect = [&](bool good, const std::string& what) {
    if (good) return;
    ++wrong;
    std::fprintf(stderr, "failed: %s\n", what.c_str());
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
    // Work of the siblings is running when the fault occurs.
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
  const auto whole = device::make_cuda_backend({})->open(gpu->info.id);
  expect(!whole && whole.error().code == ErrorCode::device_lost, "opening the whole GPU");
  std::fprintf(stderr, wrong == 0 ? "every part is lost\n" : "%d checks failed\n", wrong);
  std::fflush(stderr);
  std::_Exit(wrong == 0 ? 0 : 1);
}

TEST(CudaDeathTest, FaultInOnePartLosesItsSiblingsAndNothingHangs) {
  BERTH_NEEDS_CUT_GPU(gpu, 64, 32, 16, 16);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fault_in_one_part_and_report(), testing::ExitedWithCode(0), "every part is lost");
}

}  // namespace
}  // namespace berth::cuda
