// What is observed of a real GPU, and of another process on it. Without a GPU
// every test here is skipped and says why.
#include <gtest/gtest.h>

#include <algorithm>

#include "berth/device.hpp"
#include "device/test_process.hpp"

namespace berth {
namespace {

using namespace std::chrono_literals;

struct Gpu {
  std::unique_ptr<Backend> backend;
  DeviceInfo info;

  Telemetry observe() const {
    Result<Telemetry> seen = backend->observe(info.id);
    EXPECT_TRUE(seen) << (seen ? "" : seen.error().to_text());
    return seen ? *std::move(seen) : Telemetry{};
  }
};

Result<Gpu> first_gpu() {
  Result<std::unique_ptr<Backend>> backend = make_backend("cuda");
  if (!backend) return std::move(backend).error();
  Result<std::vector<DeviceInfo>> found = (*backend)->list();
  if (!found) return std::move(found).error();
  if (found->empty()) return Error{ErrorCode::no_device, "the CUDA driver finds no GPU"};
  return Gpu{*std::move(backend), found->front()};
}

#define BERTH_NEEDS_GPU(gpu)     \
  Result<Gpu> gpu = first_gpu(); \
  if (!gpu) GTEST_SKIP() << "this test needs an NVIDIA GPU: " << gpu.error().to_text()

void expect_sum(const Telemetry& seen) {
  const MemoryUse& use = seen.memory_use;
  ASSERT_TRUE(seen.load.memory_bytes_total && seen.load.memory_bytes_free);
  EXPECT_EQ(use.own.value_or(0) + use.berth.value_or(0) + use.foreign.value_or(0) + use.unattributed.value_or(0),
            *seen.load.memory_bytes_total - *seen.load.memory_bytes_free);
}

TEST(CudaTelemetry, WhatARealGpuSaysIsPlausible) {
  BERTH_NEEDS_GPU(gpu);
  const Telemetry seen = gpu->observe();
  const auto within = [](const auto& value, double low, double high) {
    return value.has_value() && static_cast<double>(*value) >= low && static_cast<double>(*value) <= high;
  };
  EXPECT_TRUE(within(seen.power_watts, 5, 2000));
  EXPECT_TRUE(within(seen.power_limit_watts, 30, 2000));
  EXPECT_TRUE(within(seen.temperature_celsius, 5, 110));
  EXPECT_TRUE(within(seen.clock_mhz, 50, 5000));
  EXPECT_TRUE(within(seen.memory_clock_mhz, 50, 20000));
  EXPECT_TRUE(within(seen.load.utilization, 0, 1));
  EXPECT_TRUE(within(seen.memory_utilization, 0, 1));
  EXPECT_TRUE(seen.throttle_reasons.has_value());
  EXPECT_TRUE(seen.processes.has_value());
  ASSERT_TRUE(gpu->info.memory_bytes_total && seen.load.memory_bytes_total);
  // The driver keeps a little to itself, and the two libraries count it differently.
  EXPECT_NEAR(static_cast<double>(*seen.load.memory_bytes_total), static_cast<double>(*gpu->info.memory_bytes_total),
              0.02 * static_cast<double>(*gpu->info.memory_bytes_total));
  expect_sum(seen);
}

TEST(CudaTelemetry, OwnMemoryIsOwn) {
  BERTH_NEEDS_GPU(gpu);
  constexpr std::uint64_t bytes = 1ULL << 30;
  const auto device = gpu->backend->open(gpu->info.id);
  ASSERT_TRUE(device) << device.error().to_text();
  const auto buffer = (*device)->allocate(bytes);
  ASSERT_TRUE(buffer) << buffer.error().to_text();
  const Telemetry seen = gpu->observe();
  ASSERT_TRUE(seen.memory_use.own) << "this process is not in the driver's list: another PID namespace?";
  EXPECT_GE(*seen.memory_use.own, bytes);
  expect_sum(seen);
}

TEST(CudaTelemetry, AnotherProcesssMemoryIsSeenInOneLookWithItsNameAndKindAndSoIsItsEnd) {
  BERTH_NEEDS_GPU(gpu);
  if (getenv("BERTH_DOUBLE")) GTEST_SKIP() << "processes do not share a GPU of the driver double";
  const auto device = gpu->backend->open(gpu->info.id);
  ASSERT_TRUE(device) << device.error().to_text();
  const std::uint64_t bytes = std::min<std::uint64_t>(30'000'000'000, gpu->info.memory_bytes_total.value_or(0) / 2);
  const auto find = [](const Telemetry& seen, pid_t pid) -> const DeviceProcess* {
    for (const DeviceProcess& process : *seen.processes) {
      if (process.pid == static_cast<std::uint32_t>(pid)) return &process;
    }
    return nullptr;
  };
  for (const auto& [way, kind] : {std::pair("berth", ProcessKind::berth), std::pair("driver", ProcessKind::foreign)}) {
    SCOPED_TRACE(way);
    const auto free_bytes = [&] { return (*device)->sample().value_or(LoadSample{}).memory_bytes_free.value_or(0); };
    const std::uint64_t before = free_bytes();
    test::ChildProcess other({BERTH_HOLD_MEMORY, way, std::to_string(bytes)});
    ASSERT_EQ(other.line(), "holding");
    EXPECT_LE(free_bytes() + bytes, before);
    const Telemetry seen = gpu->observe();
    ASSERT_TRUE(seen.processes.has_value());
    const DeviceProcess* found = find(seen, other.pid());
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->kind, kind);
    EXPECT_EQ(found->name, "hold_memory");
    EXPECT_GE(found->memory_bytes.value_or(0), bytes);
    const auto share = kind == ProcessKind::berth ? seen.memory_use.berth : seen.memory_use.foreign;
    EXPECT_GE(share.value_or(0), bytes);
    expect_sum(seen);

    const pid_t pid = other.pid();
    other.end();
    const Deadline soon = Deadline::after(real_clock(), 10s);
    while (find(gpu->observe(), pid) != nullptr && !soon.passed(real_clock().now())) {
    }
    EXPECT_EQ(find(gpu->observe(), pid), nullptr);
    constexpr std::uint64_t slack = 64ULL << 20;  // bookkeeping of the driver
    EXPECT_GE(free_bytes() + slack, before);
  }
}

}  // namespace
}  // namespace berth
