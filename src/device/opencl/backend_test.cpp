#include "device/opencl/backend.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "berth/fake_clock.hpp"
#include "device/opencl/test_opencl.hpp"

namespace berth::opencl {
namespace {

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
  EXPECT_EQ(infos_[0].id, DeviceId("cpu-opencl-0"));
  EXPECT_EQ(infos_[1].id, DeviceId("cpu-opencl-1"));
  ASSERT_TRUE(infos_[0].former_id && infos_[1].former_id);
  EXPECT_TRUE(infos_[0].former_id->text().starts_with("opencl/pocl/")) << *infos_[0].former_id;
  EXPECT_TRUE(infos_[0].former_id->text().ends_with(".0")) << *infos_[0].former_id;
  EXPECT_TRUE(infos_[1].former_id->text().ends_with(".1")) << *infos_[1].former_id;
  EXPECT_EQ(backend_->open(*infos_[1].former_id).value()->id(), infos_[1].id);
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
  // `basic` computes inside the enqueue. If two devices shared a lock, no kernel of
  // one could begin while the other runs a kernel.
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
  // The machine's other platform still works.
  for (const DeviceInfo& info : list.value_or(std::vector<DeviceInfo>{}))
    EXPECT_EQ(info.id.text().find("pocl"), std::string::npos) << info.id;
  if (!list) {
    EXPECT_EQ(list.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(list.error().message.find("'bsaic'"), std::string::npos) << list.error().message;
  }
  EXPECT_TRUE(make_backend(api_, {})->list());
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

TEST_F(Opencl, ATerminatedContextClosesTheDevice) {
  const Api terminated = with_event_status<CL_CONTEXT_TERMINATED_KHR>(api_);
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

}  // namespace
}  // namespace berth::opencl
