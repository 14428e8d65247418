// Tests on the OpenCL devices of this machine; some replace single functions of the driver. PoCL's two `basic` devices
// come from POCL_DEVICES="basic basic pthread".
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>

#include "device/opencl/backend.hpp"

namespace berth::opencl {

// Read by PoCL when it starts, which is after this.
[[maybe_unused]] inline const int pocl_devices = setenv("POCL_DEVICES", "basic basic pthread", /*overwrite=*/0);

inline KernelSource add_one_source() {
  KernelSource source;
  source.entry = "add_one";
  source.opencl_c =
      "kernel void add_one(global int* values, int count) {"
      "  int i = get_global_id(0); if (i < count) values[i] += 1; }";
  return source;
}

inline std::vector<int> read_back(Stream& stream, const Buffer& buffer) {
  std::vector<int> values(buffer.bytes() / sizeof(int));
  EXPECT_TRUE(stream.copy_out(buffer, 0, std::as_writable_bytes(std::span(values))));
  EXPECT_TRUE(stream.wait());
  return values;
}

// A driver by which every event has this status.
template <cl_int status>
Api with_event_status(Api api) {
  api.clGetEventInfo = [](cl_event, cl_event_info, std::size_t, void* to, std::size_t*) -> cl_int {
    *static_cast<cl_int*>(to) = status;
    return CL_SUCCESS;
  };
  return api;
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

// Compares the intervals that the kernels of two threads report, one on each of the first two devices.
inline testing::AssertionResult Opencl::kernels_overlap() {
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

}  // namespace berth::opencl
