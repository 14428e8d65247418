// Streams, events and copies on a GPU.
#include "device/cuda/test_gpu.hpp"

#include <algorithm>
#include <array>

namespace berth::cuda {
namespace {

using namespace std::chrono_literals;

TEST(Cuda, S3_F14_EventsMeasureTheKernelNotItsSubmission) {
  BERTH_NEEDS_GPU(gpu);
  const auto [device, stream] = open_with_stream(*gpu);
  const auto kernel = load(*device, "spin");
  expect_ok(spin(*stream, *kernel, 1us));  // loads the code
  expect_ok(stream->wait(soon()));
  Result<std::shared_ptr<Event>> begin = stream->record();
  expect_ok(spin(*stream, *kernel, 100ms));
  Result<std::shared_ptr<Event>> end = stream->record();
  ASSERT_TRUE(begin.has_value() && end.has_value());
  // Submission is over and the kernel still runs: wall time would prove nothing.
  Result<bool> done = (*end)->done();
  ASSERT_TRUE(done.has_value());
  EXPECT_FALSE(*done);
  expect_ok((*end)->wait(soon()));
  Result<Duration> took = (*end)->since(**begin);
  ASSERT_TRUE(works(took));
  EXPECT_GE(*took, 99ms);
  EXPECT_LE(*took, 150ms);
}

TEST(Cuda, WaitTimesOutAtItsDeadlineAndTheWorkContinues) {
  BERTH_NEEDS_GPU(gpu);
  const auto [device, stream] = open_with_stream(*gpu);
  const auto kernel = load(*device, "spin");
  expect_ok(spin(*stream, *kernel, 300ms));
  Result<std::shared_ptr<Event>> event = stream->record();
  ASSERT_TRUE(event.has_value());
  const Result<void> early = (*event)->wait(Deadline::after(real_clock(), 5ms));
  ASSERT_TRUE(fails_with(early, ErrorCode::timeout));
  expect_ok((*event)->wait(soon()));
}

TEST(Cuda, AnEventPendingAtCloseIsDeviceLost) {
  BERTH_NEEDS_GPU(gpu);
  const auto [device, stream] = open_with_stream(*gpu);
  const auto kernel = load(*device, "spin");
  expect_ok(spin(*stream, *kernel, 300ms));
  Result<std::shared_ptr<Event>> event = stream->record();
  ASSERT_TRUE(event.has_value());
  device->close();
  const Result<void> waited = (*event)->wait(soon());
  ASSERT_TRUE(fails_with(waited, ErrorCode::device_lost));
}

TEST(Cuda, PrioritiesBecomeStreamPriorities) {
  BERTH_NEEDS_GPU(gpu);
  const auto device = gpu->open();
  const auto priority_of = gpu->driver->find<Code(StreamHandle, int*)>("cuStreamGetPriority");
  ASSERT_NE(priority_of, nullptr);
  std::array<int, 3> level{};
  for (const Priority priority : {Priority::low, Priority::normal, Priority::high}) {
    const auto stream = open_stream(*device, priority);
    EXPECT_EQ(stream->priority(), priority);
    expect_ok(stream->run([&](Stream& inside) -> Result<void> {
      EXPECT_EQ(priority_of(static_cast<StreamHandle>(inside.native()), &level.at(static_cast<int>(priority))), 0);
      return {};
    }));
  }
  // Lower numbers are more urgent.
  EXPECT_GT(level[0], level[1]);
  EXPECT_GT(level[1], level[2]);
}

TEST(Cuda, CopyWithinTheDeviceChangesOnlyItsRange) {
  BERTH_NEEDS_GPU(gpu);
  const auto [device, stream] = open_with_stream(*gpu);
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
  EXPECT_EQ(content(*near_stream, here), sent) << "a refused copy changes nothing";
}

TEST(Cuda, ClosingWaitsForEnqueuedCopies) {
  BERTH_NEEDS_GPU(gpu);
  const auto [device, stream] = open_with_stream(*gpu);
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
      << "the copy was finished when close() returned";
}

}  // namespace
}  // namespace berth::cuda
