// Kernels, streams and events of OpenCL devices.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "berth/fake_clock.hpp"
#include "device/opencl/test_opencl.hpp"

namespace berth::opencl {
namespace {

using namespace std::chrono_literals;

TEST_F(Opencl, ABuildErrorHasTheCompilersLog) {
  const auto device = open();
  KernelSource source;
  source.entry = "broken";
  source.opencl_c = "kernel void broken() { no_such_name; }";
  const auto kernel = device->load(source);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(kernel.error().message.find("no_such_name"), std::string::npos) << kernel.error().message;
  EXPECT_EQ(kernel.error().advice, "correct the source");
  EXPECT_EQ(kernel.error().where, device->id().text());
  ASSERT_TRUE(kernel.error().driver);
  EXPECT_EQ(kernel.error().driver->name, "CL_BUILD_PROGRAM_FAILURE");
}

TEST_F(Opencl, AnEntryThatIsNotInTheSourceIsNotFound) {
  KernelSource source = add_one_source();
  source.entry = "add_two";
  const auto kernel = open()->load(source);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code, ErrorCode::not_found);
  EXPECT_NE(kernel.error().message.find("'add_two'"), std::string::npos);
}

TEST_F(Opencl, WrongArgumentsAreRefusedBeforeTheDriverIsCalled) {
  const auto device = open();
  const auto stream = device->open_stream().value();
  const auto kernel = device->load(add_one_source()).value();
  const Buffer buffer = device->allocate(64).value();
  const std::uint64_t address = 4096;
  const std::vector<std::vector<Argument>> wrong = {
      {buffer},                          // too few
      {buffer, cl_int{16}, cl_int{16}},  // too many
      {address, cl_int{16}},             // a number where a buffer belongs
      {buffer, buffer},                  // a buffer where a number belongs
      {buffer, std::uint64_t{16}},       // a number of the wrong size
      {Buffer(), cl_int{16}},            // no buffer at all
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    const auto launched = stream->launch(*kernel, {}, wrong[i]);
    ASSERT_FALSE(launched) << "case " << i;
    EXPECT_EQ(launched.error().code, ErrorCode::invalid_argument) << i << ": " << launched.error().to_text();
  }
}

TEST_F(Opencl, SizesThatAreNotMultiplesOfTheGroupComputeEveryItem) {
  const auto device = open();
  const auto stream = device->open_stream().value();
  const auto kernel = device->load(add_one_source()).value();
  constexpr int count = 37;
  const Buffer buffer = device->allocate(count * sizeof(int)).value();
  const std::vector<int> zeros(count, 0);
  ASSERT_TRUE(stream->copy_in(buffer, 0, std::as_bytes(std::span(zeros))));
  const Argument arguments[] = {buffer, cl_int{count}};
  ASSERT_TRUE(stream->launch(*kernel, {{count, 1, 1}, {0, 0, 0}}, arguments));
  ASSERT_TRUE(stream->launch(*kernel, {{count, 1, 1}, {16, 1, 1}}, arguments));
  ASSERT_TRUE(stream->launch(*kernel, {{count, 1, 1}, {8, 0, 0}}, arguments));
  EXPECT_EQ(read_back(*stream, buffer), std::vector<int>(count, 3));
}

TEST_F(Opencl, AnImpossibleGroupIsRefusedAndTheStreamStaysUsable) {
  const auto device = open();
  const auto stream = device->open_stream().value();
  const auto kernel = device->load(add_one_source()).value();
  const Buffer buffer = device->allocate(sizeof(int)).value();
  const Argument arguments[] = {buffer, cl_int{1}};
  const auto refused = stream->launch(*kernel, {{1U << 30, 1, 1}, {1U << 30, 1, 1}}, arguments);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument) << refused.error().to_text();
  EXPECT_TRUE(stream->launch(*kernel, {}, arguments));
  EXPECT_TRUE(stream->wait());
}

// Arguments live in the cl_kernel: without one each, the threads would launch
// with each other's buffers.
TEST_F(Opencl, StreamsOnTwoThreadsShareAKernelWithoutMixingArguments) {
  const auto device = open();
  const auto kernel = device->load(add_one_source()).value();
  constexpr int rounds = 200;
  std::array<std::vector<int>, 2> result;
  const auto work = [&](std::size_t i) {
    const auto stream = device->open_stream().value();
    const int count = i == 0 ? 8 : 24;
    const Buffer buffer = device->allocate(static_cast<std::uint64_t>(count) * sizeof(int)).value();
    const std::vector<int> zeros(static_cast<std::size_t>(count), 0);
    ASSERT_TRUE(stream->copy_in(buffer, 0, std::as_bytes(std::span(zeros))));
    const Argument arguments[] = {buffer, cl_int{count}};
    for (int n = 0; n < rounds; ++n) {
      ASSERT_TRUE(stream->launch(*kernel, {{static_cast<std::uint32_t>(count), 1, 1}, {}}, arguments));
    }
    result[i] = read_back(*stream, buffer);
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_EQ(result[0], std::vector<int>(8, rounds));
  EXPECT_EQ(result[1], std::vector<int>(24, rounds));
}

TEST_F(Opencl, OpenStreamsAreCountedInTheSample) {
  const auto device = open();
  EXPECT_EQ(device->sample().value().active_streams, 0U);
  const auto a = device->open_stream().value();
  auto b = device->open_stream(Priority::high).value();
  EXPECT_EQ(device->sample().value().active_streams, 2U);
  b.reset();
  EXPECT_EQ(device->sample().value().active_streams, 1U);
}

TEST_F(Opencl, AnEventThatNeverCompletesEndsInATimeout) {
  const Api stuck = with_event_status<CL_SUBMITTED>(api_);
  const auto stream = open_changed(stuck);
  const auto event = launch_empty(*stream).value();
  EXPECT_FALSE(event->done().value());
  const auto waited = event->wait(Deadline::after(real_clock(), 5ms));
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, ErrorCode::timeout);
  EXPECT_EQ(waited.error().where, infos_[0].id.text());
}

TEST_F(Opencl, DeadlinesUseTheGivenClock) {
  const Api stuck = with_event_status<CL_SUBMITTED>(api_);
  FakeClock clock;
  BackendOptions options;
  options.clock = &clock;
  const auto stream = open_changed(stuck, options);
  const auto event = launch_empty(*stream).value();
  const Deadline deadline = Deadline::after(clock, 1h);
  clock.advance(2h);
  EXPECT_EQ(event->wait(deadline).error().code, ErrorCode::timeout);
}

TEST_F(Opencl, ANegativeStatusIsTheErrorOfTheEvent) {
  const Api failing = with_event_status<CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST>(api_);
  const auto stream = open_changed(failing);
  const auto event = launch_empty(*stream).value();
  const auto waited = event->wait();
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, ErrorCode::work_failed);
  EXPECT_EQ(waited.error().driver->name, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST");
  EXPECT_FALSE(event->done());
  EXPECT_TRUE(stream->device().allocate(64)) << "failed work does not cost the device";
}

// An earlier command fails, the last one does not.
TEST_F(Opencl, AFailureBeforeTheLastCommandIsReported) {
  static std::atomic<int> asked;
  static cl_event first;
  asked = 0;
  Api failing = api_;
  failing.clEnqueueWriteBuffer = [](cl_command_queue queue, cl_mem memory, cl_bool blocking, std::size_t offset,
                                    std::size_t size, const void* from, cl_uint count, const cl_event* after,
                                    cl_event* event) -> cl_int {
    const cl_int code =
        (*system_api())->clEnqueueWriteBuffer(queue, memory, blocking, offset, size, from, count, after, event);
    first = *event;
    return code;
  };
  failing.clGetEventInfo = [](cl_event event, cl_event_info, std::size_t, void* to, std::size_t*) -> cl_int {
    ++asked;
    *static_cast<cl_int*>(to) = event == first ? CL_OUT_OF_RESOURCES : CL_COMPLETE;
    return CL_SUCCESS;
  };
  const auto stream = open_changed(failing);
  const Buffer buffer = stream->device().allocate(64).value();
  const std::vector<std::byte> bytes(64);
  ASSERT_TRUE(stream->copy_in(buffer, 0, bytes));
  const auto event = launch_empty(*stream).value();
  const auto waited = event->wait();
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().driver->name, "CL_OUT_OF_RESOURCES");
  const int until_final = asked;
  EXPECT_FALSE(event->done());
  EXPECT_EQ(asked, until_final) << "a final status is not asked for again";
  EXPECT_TRUE(launch_empty(*stream).value()->wait()) << "the next event is about the work after this one";
}

TEST_F(Opencl, WorkEnqueuedThroughTheNativeQueueIsCoveredByTheNextEvent) {
  static std::atomic<int> markers;
  markers = 0;
  Api counting = api_;
  counting.clEnqueueMarkerWithWaitList = [](cl_command_queue queue, cl_uint count, const cl_event* after,
                                            cl_event* event) -> cl_int {
    ++markers;
    return (*system_api())->clEnqueueMarkerWithWaitList(queue, count, after, event);
  };
  const auto stream = open_changed(counting);
  ASSERT_TRUE(launch_empty(*stream).value()->wait());
  EXPECT_EQ(markers, 0) << "a launch's own event needs no marker";
  ASSERT_TRUE(stream->run([](Stream& inside) -> Result<void> {
    EXPECT_NE(inside.native(), nullptr);
    return {};
  }));
  ASSERT_TRUE(launch_empty(*stream).value()->wait());
  EXPECT_EQ(markers, 1);
}

TEST_F(Opencl, TimeBetweenEventsIsMeasuredOnTheDevice) {
  const auto stream = open()->open_stream().value();
  const auto before = stream->record().value();
  const auto after = launch_empty(*stream).value();
  ASSERT_TRUE(after->wait());
  const auto elapsed = after->since(*before);
  ASSERT_TRUE(elapsed) << elapsed.error().to_text();
  EXPECT_GT(*elapsed, 0ns);
  EXPECT_LT(*elapsed, 1min);
  EXPECT_EQ(before->since(*after).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(after->since(*after).value(), 0ns);
}

TEST_F(Opencl, ManyLaunchesWithoutARecordUseBoundedMemory) {
  static std::atomic<int> alive;
  alive = 0;
  Api counting = api_;
  counting.clEnqueueNDRangeKernel = [](cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                       const std::size_t* offset, const std::size_t* global, const std::size_t* local,
                                       cl_uint count, const cl_event* after, cl_event* event) -> cl_int {
    ++alive;
    return (*system_api())
        ->clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, count, after, event);
  };
  counting.clReleaseEvent = [](cl_event event) -> cl_int {
    --alive;
    return (*system_api())->clReleaseEvent(event);
  };
  const auto stream = open_changed(counting);
  KernelSource source;
  source.entry = "empty";
  source.opencl_c = "kernel void empty() {}";
  const auto kernel = stream->device().load(source).value();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(stream->launch(*kernel, {}, {}));
  EXPECT_LE(alive, 256);
  ASSERT_TRUE(stream->wait());
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace berth::opencl
