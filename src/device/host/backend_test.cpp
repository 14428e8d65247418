#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "berth/device.hpp"
#include "device/host/cores.hpp"
#include "device/host/limits.hpp"
#include "device/test_results.hpp"

namespace berth::device {
namespace {

using test::code_of;

std::unique_ptr<Backend> host_backend(unsigned devices = 1, std::vector<PartitionRequest> partitions = {}) {
  BackendOptions options;
  options.host_devices = devices;
  options.partitions = std::move(partitions);
  return std::move(make_backend("host", options)).value();
}

KernelSource kernel_of(decltype(KernelSource::host) host) {
  KernelSource source;
  source.entry = "kernel";
  source.host = std::move(host);
  return source;
}

TEST(Host, E1_AlwaysExistsAndIsAFallback) {
  const auto listed = host_backend()->list();
  ASSERT_TRUE(listed.has_value());
  ASSERT_EQ(listed->size(), 1U);
  EXPECT_EQ(listed->front().id, DeviceId("host"));
  EXPECT_TRUE(listed->front().is_fallback);
  EXPECT_EQ(listed->front().compute_units, read_host_limits().cores);
  EXPECT_EQ(listed->front().concurrency, read_host_limits().cores);
  EXPECT_EQ(listed->front().memory_bytes_total, read_host_limits().memory_bytes_total);
}

TEST(Host, SeveralDevicesSplitTheCoresAndShareTheMemory) {
  const HostLimits limits = read_host_limits();
  const auto listed = host_backend(limits.cores)->list();
  ASSERT_TRUE(listed.has_value());
  unsigned cores = 0;
  for (const DeviceInfo& info : *listed) {
    cores += info.concurrency;
    EXPECT_EQ(info.compute_units, info.concurrency);
    EXPECT_EQ(info.memory_bytes_total, limits.memory_bytes_total);
    EXPECT_EQ(info.memory_domain, "host");
    EXPECT_EQ(info.fault_domain, "host") << "they fail together";
  }
  EXPECT_EQ(cores, limits.cores);
}

TEST(Host, MoreDevicesThanCoresStillHaveOneEach) {
  const auto listed = host_backend(read_host_limits().cores + 3)->list();
  ASSERT_TRUE(listed.has_value());
  for (const DeviceInfo& info : *listed) EXPECT_GE(info.concurrency, 1U);
}

TEST(Host, AnInvalidNumberOfDevicesIsRefused) {
  for (const unsigned count : {0U, ~0U}) {
    const auto listed = host_backend(count)->list();
    ASSERT_FALSE(listed.has_value());
    EXPECT_EQ(code_of(listed), ErrorCode::invalid_argument);
    EXPECT_FALSE(host_backend(count)->open(DeviceId("host")).has_value());
  }
}

TEST(Host, TwoWaysToSplitTheHostAreRefused) {
  EXPECT_TRUE(host_backend(1, {{"host:0", {1}}})->list());
  const auto twice = host_backend(2, {{"host:0", {1}}})->list();
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ErrorCode::invalid_argument);
}

// A device of two parts with a core each, or of one on a machine with one core.
class HostParts : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::uint32_t> units(std::min(2U, read_host_limits().cores), 1);
    backend_ = host_backend(1, {{"host:0", units}});
    const auto listed = backend_->list();
    ASSERT_TRUE(listed);
    for (const DeviceInfo& info : *listed) {
      devices_.push_back(*backend_->open(info.id));
      streams_.push_back(*devices_.back()->open_stream());
    }
  }
  // The cores on which a launch and a closure of a stream ran.
  static std::set<std::vector<unsigned>> cores_of(Stream& stream) {
    std::set<std::vector<unsigned>> seen;
    const auto kernel = *stream.device().load(kernel_of(
        [&](const LaunchShape&, std::uint32_t, std::uint32_t, const HostArguments&) { seen.insert(allowed_cores()); }));
    EXPECT_TRUE(stream.launch(*kernel, {}, {}));
    EXPECT_TRUE(stream.run([&](Stream& inner) -> Result<void> {
      seen.insert(allowed_cores());
      Result<void> launched = inner.launch(*kernel, {}, {});
      seen.insert(allowed_cores());
      return launched;
    }));
    return seen;
  }
  std::unique_ptr<Backend> backend_;
  std::vector<std::shared_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

TEST_F(HostParts, WorkRunsOnlyOnTheCoresOfItsPart) {
  std::set<unsigned> all;
  for (const auto& stream : streams_) {
    const auto seen = cores_of(*stream);
    ASSERT_EQ(seen.size(), 1U) << "always on the same cores";
    ASSERT_EQ(seen.begin()->size(), 1U);
    EXPECT_TRUE(all.insert(seen.begin()->front()).second) << "a separate core";
  }
  for (const unsigned core : all) {
    const auto allowed = allowed_cores();
    EXPECT_NE(std::find(allowed.begin(), allowed.end(), core), allowed.end());
  }
}

TEST_F(HostParts, TheAffinityOfTheCallingThreadIsRestored) {
  const auto before = allowed_cores();
  cores_of(*streams_.front());
  EXPECT_EQ(allowed_cores(), before);
  EXPECT_FALSE(streams_.front()->run([](Stream&) -> Result<void> { throw std::runtime_error("failed"); }));
  EXPECT_EQ(allowed_cores(), before);
}

TEST_F(HostParts, AClosureOfOnePartMayWorkOnAnother) {
  ASSERT_TRUE(streams_.front()->run([&](Stream&) -> Result<void> {
    const auto mine = allowed_cores();
    const auto theirs = cores_of(*streams_.back());
    EXPECT_EQ(theirs.size(), 1U);
    EXPECT_EQ(*theirs.begin() == mine, streams_.size() == 1);
    EXPECT_EQ(allowed_cores(), mine);
    return {};
  }));
}

TEST_F(HostParts, AllocationsOfOnePartReduceTheFreeMemoryOfAll) {
  const std::uint64_t total = *devices_.front()->info().memory_bytes_total;
  const std::uint64_t piece = std::uint64_t{64} << 20;
  std::vector<Buffer> held;
  for (std::uint64_t left = total; left >= piece; left -= piece) held.push_back(*devices_.front()->allocate(piece));
  EXPECT_EQ(code_of(devices_.back()->allocate(piece)), ErrorCode::out_of_memory);
  EXPECT_LT(*devices_.back()->sample()->memory_bytes_free, piece);
  held.clear();
  EXPECT_TRUE(devices_.back()->allocate(piece));
}

TEST_F(HostParts, UtilizationIsMeasuredBetweenTwoObservations) {
  const DeviceId id = devices_.front()->id();
  const auto first = backend_->observe(id);
  ASSERT_TRUE(first);
  EXPECT_FALSE(first->load.utilization) << "nothing to compare with yet";
  std::optional<double> seen;
  // Keeps the cores of the part busy until their system time increases.
  const TimePoint give_up = real_clock().now() + std::chrono::seconds(30);
  ASSERT_TRUE(streams_.front()->run([&](Stream&) -> Result<void> {
    while (!seen && real_clock().now() < give_up) seen = backend_->observe(id)->load.utilization;
    return {};
  }));
  ASSERT_TRUE(seen);
  EXPECT_GT(*seen, 0.0);
  EXPECT_LE(*seen, 1.0);
}

TEST(Host, OwnAllocationsCountBeforeTheyAreTouched) {
  const auto device = *host_backend()->open(DeviceId("host"));
  const std::uint64_t total = *device->info().memory_bytes_total;
  EXPECT_EQ(code_of(device->allocate(total + 1)), ErrorCode::out_of_memory);
  // Pieces below the size that is checked against the machine's free memory.
  const std::uint64_t piece = std::uint64_t{64} << 20;
  std::vector<Buffer> held;
  for (std::uint64_t left = total; left >= piece; left -= piece) {
    auto buffer = device->allocate(piece);
    ASSERT_TRUE(buffer.has_value());
    held.push_back(*buffer);
  }
  EXPECT_EQ(code_of(device->allocate(piece)), ErrorCode::out_of_memory);
  EXPECT_LT(*device->sample()->memory_bytes_free, piece);
  held.clear();
  EXPECT_TRUE(device->allocate(piece).has_value());
}

TEST(Host, FreeMemoryIsThatOfTheMachine) {
  const auto device = *host_backend()->open(DeviceId("host"));
  const auto free = device->sample()->memory_bytes_free;
  ASSERT_TRUE(free.has_value());
  EXPECT_GT(*free, 0U);
  EXPECT_LT(*free, *device->info().memory_bytes_total) << "this process uses some";
  EXPECT_EQ(code_of(device->allocate(*device->info().memory_bytes_total)), ErrorCode::out_of_memory);
}

TEST(Host, AThrowingKernelFailsItsEventAndNoLaterOne) {
  const auto device = *host_backend()->open(DeviceId("host"));
  const auto stream = std::move(device->open_stream()).value();
  const auto bad = device->load(kernel_of([](auto&&...) { throw std::runtime_error("divided by zero"); }));
  const auto odd = device->load(kernel_of([](auto&&...) { throw 7; }));
  ASSERT_TRUE(bad.has_value() && odd.has_value());

  ASSERT_TRUE(stream->launch(**bad, {}, {}).has_value()) << "as on a GPU, the failure shows at the event";
  ASSERT_TRUE(stream->launch(**odd, {}, {}).has_value());
  const auto failed = *stream->record();
  const auto later = *stream->record();
  ASSERT_EQ(code_of(failed->wait()), ErrorCode::work_failed);
  EXPECT_EQ(failed->wait().error().message, "the work threw: divided by zero") << "the first failure is the cause";
  EXPECT_EQ(failed->done().error().where, "host");
  EXPECT_TRUE(later->wait().has_value());

  ASSERT_TRUE(stream->launch(**odd, {}, {}).has_value());
  EXPECT_EQ(code_of(stream->wait()), ErrorCode::work_failed);
  EXPECT_TRUE(stream->wait().has_value());
}

TEST(Host, WorkRunsOnTheCallingThreadOverAllRowsOnce) {
  const auto device = *host_backend()->open(DeviceId("host"));
  const auto stream = std::move(device->open_stream()).value();
  const auto caller = std::this_thread::get_id();
  std::vector<int> rows(5, 0);
  const auto kernel = device->load(
      kernel_of([&](const LaunchShape& shape, std::uint32_t begin, std::uint32_t end, const HostArguments&) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_EQ(shape.outermost(), 1U);
        for (std::uint32_t row = begin; row < end; ++row) ++rows[row];
      }));
  ASSERT_TRUE(stream->launch(**kernel, {{8, 5, 1}, {}}, {}).has_value());
  EXPECT_EQ(rows, std::vector<int>(5, 1));
  EXPECT_TRUE(*(*stream->record())->done());
}

TEST(Host, TheOutermostDimensionIsTheLastThatIsLargerThanOne) {
  EXPECT_EQ((LaunchShape{{1, 1, 1}, {}}.outermost()), 0U);
  EXPECT_EQ((LaunchShape{{9, 1, 1}, {}}.outermost()), 0U);
  EXPECT_EQ((LaunchShape{{9, 4, 1}, {}}.outermost()), 1U);
  EXPECT_EQ((LaunchShape{{1, 1, 2}, {}}.outermost()), 2U);
}

TEST(HostDeathTest, AKernelThatMisreadsItsArgumentsIsAnAssertionFailure) {
  const std::vector<Argument> arguments{std::uint32_t{1}};
  const HostArguments seen(arguments);
  EXPECT_DEATH(static_cast<void>(seen.value<std::uint64_t>(0)), "assertion failed");
  EXPECT_DEATH(static_cast<void>(seen.buffer<int>(0)), "assertion failed");
  EXPECT_DEATH(static_cast<void>(seen.value<std::uint32_t>(1)), "assertion failed");
}

// A machine whose /proc and cgroup files are written by the test.
class HostLimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) /
            ("berth_host_limits_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(root_);
    write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n");
    write("proc/self/cgroup", "1:name=systemd:/legacy\n0::/user/job\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::filesystem::path root_;
};

TEST_F(HostLimitsTest, WithoutControlGroupsTheMachineIsTheLimit) {
  const HostLimits limits = read_host_limits(root_, 8);
  EXPECT_EQ(limits.cores, 8U);
  EXPECT_EQ(limits.memory_bytes_total, 1000U * 1024);
  EXPECT_EQ(limits.memory_bytes_free, 600U * 1024);
}

TEST_F(HostLimitsTest, TheTightestLimitOfAllAncestorGroupsApplies) {
  write("sys/fs/cgroup/user/memory.max", "512000\n");
  write("sys/fs/cgroup/user/memory.current", "300000\n");
  write("sys/fs/cgroup/user/memory.stat", "anon 100000\ninactive_file 50000\n");
  write("sys/fs/cgroup/user/cpu.max", "250000 100000\n");
  write("sys/fs/cgroup/user/job/memory.max", "max\n");
  write("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
  const HostLimits limits = read_host_limits(root_, 8);
  EXPECT_EQ(limits.cores, 3U) << "two and a half cores are used by three threads";
  EXPECT_EQ(limits.memory_bytes_total, 512000U);
  EXPECT_EQ(limits.memory_bytes_free, 262000U) << "inactive file pages are reclaimed on demand";
}

TEST_F(HostLimitsTest, ALooserGroupChangesNothing) {
  write("sys/fs/cgroup/user/job/memory.max", "99999999999\n");
  write("sys/fs/cgroup/user/job/memory.current", "5\n");
  write("sys/fs/cgroup/user/job/cpu.max", "9900000 100000\n");
  const HostLimits limits = read_host_limits(root_, 8);
  EXPECT_EQ(limits.cores, 8U);
  EXPECT_EQ(limits.memory_bytes_total, 1000U * 1024);
  EXPECT_EQ(limits.memory_bytes_free, 600U * 1024);
}

TEST_F(HostLimitsTest, WhatCannotBeReadIsAbsentNotZero) {
  const HostLimits limits = read_host_limits(root_ / "nowhere", 4);
  EXPECT_EQ(limits.cores, 4U);
  EXPECT_FALSE(limits.memory_bytes_total.has_value());
  EXPECT_FALSE(limits.memory_bytes_free.has_value());
}

TEST(HostLimits, TheAffinityMaskLimitsTheCores) {
  unsigned cores = 0;
  std::thread([&] {
    cpu_set_t all, single;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&single);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&single) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &single);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof single, &single), 0);
    cores = read_host_limits().cores;
  }).join();
  EXPECT_EQ(cores, 1U);
}

}  // namespace
}  // namespace berth::device
