// The double of the driver libraries as the back end in this process loads it,
// steered by a test, and the small kernels its tests launch. Every machine that
// a test starts has UUIDs of its own, so what one test did to a GPU says nothing
// about the next.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "device/backends.hpp"
#include "device/contract_kernels.hpp"
#include "device/cuda/driver.hpp"
#include "device/cuda/nvml_api.hpp"
#include "device/test_results.hpp"
#include "double/control.hpp"

namespace berth::test {

class Double {
 public:
  static const Double& of_this_process() {
    static const Double loaded;
    return loaded;
  }
  decltype(&berth_double_reset) reset = find<decltype(&berth_double_reset)>("berth_double_reset");
  decltype(&berth_double_add) add = find<decltype(&berth_double_add)>("berth_double_add");
  decltype(&berth_double_release) release = find<decltype(&berth_double_release)>("berth_double_release");
  decltype(&berth_double_count) count = find<decltype(&berth_double_count)>("berth_double_count");

 private:
  template <class F>
  static F find(const char* symbol) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library == nullptr ? nullptr : reinterpret_cast<F>(dlsym(library, symbol));
  }
};

// Begins a new machine. Handles of the previous one are void.
inline void start(const std::string& script) {
  static std::uint64_t series = 0;
  const char* wrong = Double::of_this_process().reset(("series " + std::to_string(++series) + "\n" + script).c_str());
  ASSERT_EQ(wrong, nullptr) << wrong;
}
inline void also(const std::string& script) {
  const char* wrong = Double::of_this_process().add(script.c_str());
  ASSERT_EQ(wrong, nullptr) << wrong;
}
inline void release() { Double::of_this_process().release(); }
inline long long count(const char* what, int gpu = -1) { return Double::of_this_process().count(what, gpu); }

// What a program must give back, by name and number; empty: nothing is left.
inline std::vector<std::pair<std::string, long long>> left_over(int gpu = -1) {
  std::vector<std::pair<std::string, long long>> left;
  for (const char* what :
       {"contexts", "allocations", "streams", "events", "modules", "greens", "pinned", "registered"}) {
    if (const long long n = count(what, gpu); n != 0) left.emplace_back(what, n);
  }
  if (const long long n = count("abandoned"); n != 0) left.emplace_back("abandoned", n);
  return left;
}
inline const std::vector<std::pair<std::string, long long>> nothing;

inline KernelSource kernel(const char* entry) {
  return {entry, {}, {}, R"(
.version 7.0
.target sm_52
.address_size 64

.visible .entry empty()
{
  ret;
}

// Runs for `duration` nanoseconds.
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

// Writes to `address`.
.visible .entry poke(.param .u64 address)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [address];
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}

.visible .entry trap()
{
  trap;
}
)"};
}

// A variable that is set while this lives.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

// All GPUs of the machine, opened. Fails the test where one cannot be.
inline std::vector<std::shared_ptr<Device>> open_all(Backend& backend) {
  std::vector<std::shared_ptr<Device>> devices;
  const auto listed = backend.list();
  EXPECT_TRUE(works(listed));
  for (const DeviceInfo& info : listed.value_or(std::vector<DeviceInfo>())) {
    auto device = backend.open(info.id);
    EXPECT_TRUE(works(device));
    if (device) devices.push_back(*std::move(device));
  }
  return devices;
}

// Adds vectors on the device and compares: the whole way there and back.
inline Result<void> add_vectors(Device& device, Deadline deadline) {
  constexpr std::uint32_t n = 64;
  std::vector<float> values(n, 1.5F);
  auto stream = device.open_stream();
  if (!stream) return std::move(stream).error();
  auto add = device.load(contract::add_source());
  if (!add) return std::move(add).error();
  auto buffer = device.allocate(n * sizeof(float));
  if (!buffer) return std::move(buffer).error();
  const std::vector<Argument> arguments{*buffer, *buffer, *buffer, n};
  Result<void> done = (*stream)->copy_in(*buffer, 0, std::as_bytes(std::span(values)));
  if (done) done = (*stream)->launch(**add, {{n, 1, 1}, {}}, arguments);
  if (done) done = (*stream)->copy_out(*buffer, 0, std::as_writable_bytes(std::span(values)));
  // The copies use `values`: it must outlive them, whatever went wrong.
  const Result<void> waited = (*stream)->wait(deadline);
  if (!waited && waited.error().code == ErrorCode::timeout) device.close();
  if (done) done = waited;
  if (done && values != std::vector<float>(n, 3.0F))
    return Error{ErrorCode::internal, "the sum is wrong", {}, device.id().text()};
  return done;
}

}  // namespace berth::test
