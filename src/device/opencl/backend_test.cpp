// On the OpenCL devices of this machine; some tests replace single functions of the
// driver. PoCL's two `basic` devices come from POCL_DEVICES="basic basic pthread".
#include "device/opencl/backend.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <thread>

#include "berth/fake_clock.hpp"
#include "device/backends.hpp"

namespace berth::opencl {
namespace {

using namespace std::chrono_literals;

// Read by PoCL when it starts, which is after this.
[[maybe_unused]] const int pocl_devices = setenv("POCL_DEVICES", "basic basic pthread", /*overwrite=*/0);

KernelSource add_one_source() {
  KernelSource source;
  source.entry = "add_one";
  source.opencl_c =
      "kernel void add_one(global int* values, int count) {"
      "  int i = get_global_id(0); if (i < count) values[i] += 1; }";
  return source;
}

std::vector<int> read_back(Stream& stream, const Buffer& buffer) {
  std::vector<int> values(buffer.bytes() / sizeof(int));
  EXPECT_TRUE(stream.copy_out(buffer, 0, std::as_writable_bytes(std::span(values))));
  EXPECT_TRUE(stream.wait());
  return values;
}

class Opencl : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const Api*> found = system_api();
    if (!found) GTEST_SKIP() << "no OpenCL library: " << found.error().to_text();
    api_ = **found;
    backend_ = make_backend(api_, {});
    const auto list = backend_->list();
    ASSERT_TRUE(list) << list.error().to_text();
    if (list->empty()) GTEST_SKIP() << "the OpenCL library finds no device";
    infos_ = *list;
  }

  std::shared_ptr<Device> open(std::size_t i = 0) { return backend_->open(infos_[i].id).value(); }
  testing::AssertionResult kernels_overlap();
  // A stream on the first device through a changed table of functions.
  std::unique_ptr<Stream> open_changed(const Api& changed, const BackendOptions& options = {}) {
    return make_backend(changed, options)->open(infos_[0].id).value()->open_stream().value();
  }
  Result<std::shared_ptr<Event>> launch_empty(Stream& stream) {
    KernelSource source;
    source.entry = "empty";
    source.opencl_c = "kernel void empty() {}";
    const auto kernel = stream.device().load(source);
    if (!kernel) return kernel.error();
    if (auto launched = stream.launch(**kernel, {}, {}); !launched) return launched.error();
    return stream.record();
  }

  Api api_;
  std::unique_ptr<Backend> backend_;
  std::vector<DeviceInfo> infos_;
};

// By their own intervals, on the first two devices with a thread each.
testing::AssertionResult Opencl::kernels_overlap() {
  KernelSource source;
  source.entry = "burn";
  source.opencl_c =
      "kernel void burn(global uint* out, uint rounds) {"
      "  uint x = out[0] + 1; for (uint i = 0; i < rounds; ++i) x = x * 1664525u + 1013904223u; out[0] = x; }";
  constexpr int launches = 8;
  std::array<std::vector<Interval>, 2> ran;
  std::barrier together(2);
  const auto work = [&](std::size_t i) {
    const auto device = open(i);
    const auto stream = device->open_stream().value();
    const auto kernel = device->load(source).value();
    const Buffer out = device->allocate(sizeof(cl_uint)).value();
    const Argument warm_up[] = {out, cl_uint{1}};
    const Argument long_work[] = {out, cl_uint{20'000'000}};
    ASSERT_TRUE(stream->launch(*kernel, {}, warm_up));  // compiles
    ASSERT_TRUE(stream->wait());
    together.arrive_and_wait();
    for (int n = 0; n < launches; ++n) {
      ASSERT_TRUE(stream->launch(*kernel, {}, long_work));
      const auto event = stream->record().value();
      ASSERT_TRUE(event->wait());
      ran[i].push_back(interval_of(*event).value());
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  if (ran[0].size() + ran[1].size() != 2U * launches) return testing::AssertionFailure() << "not all of them ran";
  int overlaps = 0;
  for (const Interval& a : ran[0]) {
    if (a.begin_ns >= a.end_ns) return testing::AssertionFailure() << "an interval that ends before it begins";
    for (const Interval& b : ran[1]) overlaps += a.begin_ns < b.end_ns && b.begin_ns < a.end_ns;
  }
  // A thread that loses its core runs alone for a while; most kernels overlap.
  if (overlaps >= launches / 2) return testing::AssertionSuccess();
  return testing::AssertionFailure() << overlaps << " of " << launches << " kernels overlap";
}

class OpenclBasic : public Opencl {
 protected:
  void SetUp() override {
    Opencl::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    // `basic` is called cpu-minimal since PoCL 4.
    std::erase_if(infos_, [](const DeviceInfo& info) {
      return !info.name.starts_with("basic") && !info.name.starts_with("cpu-minimal");
    });
    if (infos_.size() < 2) GTEST_SKIP() << "needs PoCL and POCL_DEVICES=\"basic basic pthread\"";
  }
};

TEST_F(Opencl, IdsAreUniqueAndPrinted) {
  std::set<DeviceId> ids;
  for (const DeviceInfo& info : infos_) {
    EXPECT_FALSE(info.id.empty());
    EXPECT_TRUE(ids.insert(info.id).second) << info.id;
    std::cout << "id: " << info.id << "\n";
  }
}

TEST_F(OpenclBasic, TwoEqualDevicesHaveDifferentStableIds) {
  ASSERT_EQ(infos_.size(), 2U);
  EXPECT_TRUE(infos_[0].id.text().starts_with("opencl/pocl/")) << infos_[0].id;
  EXPECT_TRUE(infos_[0].id.text().ends_with(".0")) << infos_[0].id;
  EXPECT_TRUE(infos_[1].id.text().ends_with(".1")) << infos_[1].id;
  EXPECT_EQ(infos_[0].concurrency, 1U);
  EXPECT_TRUE(infos_[0].is_fallback);
  EXPECT_EQ(infos_[0].memory_domain, "host");
  EXPECT_GE(infos_[0].capability, (Capability{1, 2}));
}

TEST_F(OpenclBasic, AFreshProcessFindsTheSameIds) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  ASSERT_GT(length, 0);
  self[length] = '\0';
  const std::string command = "'" + std::string(self) + "' --gtest_filter=Opencl.IdsAreUniqueAndPrinted";
  FILE* other = popen(command.c_str(), "r");
  ASSERT_NE(other, nullptr);
  std::vector<std::string> theirs;
  char line[512];
  while (std::fgets(line, sizeof line, other)) {
    std::string text = line;
    if (text.starts_with("id: ")) theirs.push_back(text.substr(4, text.size() - 5));
  }
  EXPECT_EQ(pclose(other), 0);
  for (const DeviceInfo& info : infos_) {
    EXPECT_NE(std::find(theirs.begin(), theirs.end(), info.id.text()), theirs.end()) << info.id;
  }
}

TEST_F(OpenclBasic, KernelsOnTwoDevicesOverlapInTime) {
  // `basic` computes inside the enqueue. Were there a lock common to two devices,
  // no kernel of one could begin before the other's running one ends.
  EXPECT_TRUE(kernels_overlap());
}

// The first device of this machine that can be cut by counts, as two parts.
class OpenclParts : public Opencl {
 protected:
  void SetUp() override {
    Opencl::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    for (const DeviceInfo& info : infos_) {
      BackendOptions options;
      options.partitions = {{"opencl:" + info.id.text(), {1, 1}}};
      auto cut = make_backend(api_, options);
      const auto list = cut->list();
      if (!list) continue;
      backend_ = std::move(cut);
      whole_ = info;
      infos_ = *list;
      std::erase_if(infos_, [](const DeviceInfo& part) { return !part.parent; });
      return;
    }
    GTEST_SKIP() << "needs a device with two compute units that can be cut, as PoCL's pthread";
  }
  DeviceInfo whole_;
};

TEST_F(OpenclParts, AreSubDevicesOfTheRequestedSize) {
  ASSERT_EQ(infos_.size(), 2U);
  EXPECT_EQ(infos_[0].id.text(), whole_.id.text() + "/cu1.0");
  EXPECT_EQ(infos_[1].id.text(), whole_.id.text() + "/cu1.1");
  for (std::size_t i = 0; i < 2; ++i) {
    const auto device = open(i);
    cl_uint units = 0;
    const auto native = static_cast<cl_device_id>(device->native().device);
    ASSERT_EQ(api_.clGetDeviceInfo(native, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, nullptr), CL_SUCCESS);
    EXPECT_EQ(units, 1U);
  }
  const auto first = open(0), second = open(1);
  EXPECT_NE(first->native().device, second->native().device);
  EXPECT_EQ(first->native().context, second->native().context) << "so that buffers can be copied between them";
}

TEST_F(OpenclParts, KernelsOnTwoPartsOverlapInTime) { EXPECT_TRUE(kernels_overlap()); }

TEST_F(OpenclParts, AllocationsOfOnePartReduceTheFreeMemoryOfAll) {
  const auto first = open(0), second = open(1);
  const std::uint64_t piece = std::uint64_t{256} << 20;
  std::vector<Buffer> held;
  for (std::uint64_t left = *infos_[0].memory_bytes_total; left >= piece; left -= piece) {
    held.push_back(first->allocate(piece).value());
  }
  EXPECT_EQ(second->allocate(piece).error().code, ErrorCode::out_of_memory);
  held.pop_back();
  EXPECT_TRUE(second->allocate(piece));
}

TEST_F(OpenclParts, ATerminatedContextIsNotReusedForTheNextPart) {
  Api changed = api_;
  changed.clCreateCommandQueue = [](cl_context, cl_device_id, cl_command_queue_properties, cl_int* code) {
    *code = CL_CONTEXT_TERMINATED_KHR;
    return cl_command_queue(nullptr);
  };
  changed.clCreateCommandQueueWithProperties = nullptr;
  BackendOptions options;
  options.partitions = {{"opencl:" + whole_.id.text(), {1, 1}}};
  const auto backend = make_backend(changed, options);
  const auto lost = backend->open(infos_[0].id).value();
  const auto before = backend->open(infos_[1].id).value();
  EXPECT_EQ(lost->native().context, before->native().context);
  EXPECT_EQ(lost->open_stream().error().code, ErrorCode::device_lost);
  const auto after = backend->open(infos_[1].id).value();
  EXPECT_NE(after->native().context, before->native().context);
}

TEST_F(OpenclBasic, ADeviceThatCannotBeCutIsNotSupported) {
  BackendOptions options;
  options.partitions = {{"opencl:" + infos_[0].id.text(), {1}}};
  const auto list = make_backend(api_, options)->list();
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().code, ErrorCode::not_supported);
  EXPECT_EQ(list.error().where, infos_[0].id.text());
  EXPECT_NE(list.error().message.find("cannot be cut"), std::string::npos);
  EXPECT_NE(list.error().advice.find("pthread"), std::string::npos);
}

TEST_F(OpenclBasic, AMisspeltPoclDeviceIsAnError) {
  const std::string before = std::getenv("POCL_DEVICES");
  setenv("POCL_DEVICES", "basic bsaic", /*overwrite=*/1);
  const auto list = make_backend(api_, {})->list();
  setenv("POCL_DEVICES", before.c_str(), /*overwrite=*/1);
  // Another platform of the machine goes on alone.
  for (const DeviceInfo& info : list.value_or(std::vector<DeviceInfo>{}))
    EXPECT_EQ(info.id.text().find("pocl"), std::string::npos) << info.id;
  if (!list) {
    EXPECT_EQ(list.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(list.error().message.find("'bsaic'"), std::string::npos) << list.error().message;
  }
  EXPECT_TRUE(make_backend(api_, {})->list());
}

TEST_F(Opencl, ABuildErrorHasTheCompilersLog) {
  const auto device = open();
  KernelSource source;
  source.entry = "broken";
  source.opencl_c = "kernel void broken() { no_such_name; }";
  const auto kernel = device->load(source);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(kernel.error().message.find("no_such_name"), std::string::npos) << kernel.error().message;
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

TEST_F(Opencl, ABufferLargerThanTheDeviceIsOutOfMemory) {
  const auto device = open();
  const auto before = device->sample().value();
  for (const std::uint64_t bytes : {*infos_[0].memory_bytes_total + 1, std::uint64_t{1} << 60}) {
    const auto buffer = device->allocate(bytes);
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().code, ErrorCode::out_of_memory) << buffer.error().to_text();
    EXPECT_EQ(buffer.error().where, device->id().text());
  }
  EXPECT_TRUE(device->allocate(1024));
  EXPECT_EQ(device->sample().value().memory_bytes_total, before.memory_bytes_total);
}

TEST_F(Opencl, TheDriversAllocationFailureIsOutOfMemory) {
  Api full = api_;
  full.clCreateBuffer = [](cl_context, cl_mem_flags, std::size_t, void*, cl_int* code) -> cl_mem {
    *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return nullptr;
  };
  const auto backend = make_backend(full, {});
  const auto buffer = backend->open(infos_[0].id).value()->allocate(64);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(buffer.error().driver, (DriverError{-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"}));
}

TEST_F(OpenclBasic, AllocatedMemoryIsNotFree) {
  const auto device = open();
  const std::uint64_t total = *infos_[0].memory_bytes_total;
  ASSERT_LE(device->sample().value().memory_bytes_free.value(), total);
  const std::uint64_t piece = std::min<std::uint64_t>(total / 4, 256ULL << 20);
  std::vector<Buffer> held;
  for (std::uint64_t used = 0; used + piece <= total; used += piece) {
    held.push_back(device->allocate(piece).value());
    EXPECT_LE(device->sample().value().memory_bytes_free.value(), total - used - piece);
  }
  EXPECT_EQ(device->allocate(piece).error().code, ErrorCode::out_of_memory);
  held.clear();
  EXPECT_TRUE(device->allocate(piece));
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
  Api stuck = api_;
  stuck.clGetEventInfo = [](cl_event, cl_event_info, std::size_t, void* to, std::size_t*) -> cl_int {
    *static_cast<cl_int*>(to) = CL_SUBMITTED;
    return CL_SUCCESS;
  };
  const auto stream = open_changed(stuck);
  const auto event = launch_empty(*stream).value();
  EXPECT_FALSE(event->done().value());
  const auto waited = event->wait(Deadline::after(real_clock(), 5ms));
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, ErrorCode::timeout);
  EXPECT_EQ(waited.error().where, infos_[0].id.text());
}

TEST_F(Opencl, DeadlinesUseTheGivenClock) {
  Api stuck = api_;
  stuck.clGetEventInfo = [](cl_event, cl_event_info, std::size_t, void* to, std::size_t*) -> cl_int {
    *static_cast<cl_int*>(to) = CL_SUBMITTED;
    return CL_SUCCESS;
  };
  FakeClock clock;
  BackendOptions options;
  options.clock = &clock;
  const auto stream = open_changed(stuck, options);
  const auto event = launch_empty(*stream).value();
  const Deadline deadline = Deadline::after(clock, 1h);
  clock.advance(2h);
  EXPECT_EQ(event->wait(deadline).error().code, ErrorCode::timeout);
}

// Virtual time passes while close() waits, so that its time-out takes no real time.
TEST_F(Opencl, ClosingADeviceThatHangsReleasesAWaiter) {
  static std::atomic<int> polls;
  polls = 0;
  Api stuck = api_;
  stuck.clGetEventInfo = [](cl_event, cl_event_info, std::size_t, void* to, std::size_t*) -> cl_int {
    ++polls;
    *static_cast<cl_int*>(to) = CL_RUNNING;
    return CL_SUCCESS;
  };
  FakeClock clock;
  BackendOptions options;
  options.clock = &clock;
  const auto stream = open_changed(stuck, options);
  const auto event = launch_empty(*stream).value();
  const int before = polls;
  Result<void> waited;
  std::thread waiter([&] { waited = event->wait(); });
  while (polls < before + 3) std::this_thread::yield();  // the waiter is polling
  stream->device().close();
  waiter.join();
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, ErrorCode::device_lost);
}

// A copy that still runs when its event completes would write into memory that the
// caller has freed.
TEST_F(Opencl, ClosingWaitsForEnqueuedCopies) {
  static std::atomic<int> asked;
  asked = 0;
  Api slow = api_;
  slow.clGetEventInfo = [](cl_event, cl_event_info, std::size_t, void* to, std::size_t*) -> cl_int {
    *static_cast<cl_int*>(to) = ++asked < 20 ? CL_RUNNING : CL_COMPLETE;
    return CL_SUCCESS;
  };
  const auto stream = open_changed(slow);
  const Buffer buffer = stream->device().allocate(64).value();
  std::vector<std::byte> bytes(64);
  ASSERT_TRUE(stream->copy_out(buffer, 0, bytes));
  const auto event = stream->record().value();
  stream->device().close();
  EXPECT_GE(asked, 20);
  EXPECT_TRUE(event->done().value()) << "it was done when closing returned";
  EXPECT_EQ(stream->copy_out(buffer, 0, bytes).error().code, ErrorCode::device_lost);
}

TEST_F(Opencl, ANegativeStatusIsTheErrorOfTheEvent) {
  Api failing = api_;
  failing.clGetEventInfo = [](cl_event, cl_event_info, std::size_t, void* to, std::size_t*) -> cl_int {
    *static_cast<cl_int*>(to) = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    return CL_SUCCESS;
  };
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

TEST_F(Opencl, ATerminatedContextClosesTheDevice) {
  Api terminated = api_;
  terminated.clGetEventInfo = [](cl_event, cl_event_info, std::size_t, void* to, std::size_t*) -> cl_int {
    *static_cast<cl_int*>(to) = CL_CONTEXT_TERMINATED_KHR;
    return CL_SUCCESS;
  };
  const auto stream = open_changed(terminated);
  const auto event = launch_empty(*stream).value();
  EXPECT_EQ(event->wait().error().code, ErrorCode::device_lost);
  EXPECT_EQ(stream->device().allocate(64).error().code, ErrorCode::device_lost);
  EXPECT_EQ(stream->record().error().code, ErrorCode::device_lost);
}

TEST_F(Opencl, HandlesOfAnEarlierOpeningAreStale) {
  auto device = open();
  const Buffer old_buffer = device->allocate(64).value();
  const auto old_kernel = device->load(add_one_source()).value();
  device->close();
  device = open();
  const auto stream = device->open_stream().value();
  const std::vector<std::byte> bytes(64);
  EXPECT_EQ(stream->copy_in(old_buffer, 0, bytes).error().code, ErrorCode::stale_handle);
  const Argument arguments[] = {old_buffer, cl_int{1}};
  EXPECT_EQ(stream->launch(*old_kernel, {}, arguments).error().code, ErrorCode::stale_handle);
}

TEST_F(OpenclBasic, HandlesOfTheOtherDeviceAreRefused) {
  const auto mine = open(0), other = open(1);
  const auto stream = mine->open_stream().value();
  const Buffer foreign = other->allocate(64).value();
  const std::vector<std::byte> bytes(64);
  const auto copied = stream->copy_in(foreign, 0, bytes);
  ASSERT_FALSE(copied);
  EXPECT_EQ(copied.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(copied.error().message.find(other->id().text()), std::string::npos);
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
