// What Berth learns from the management library, on scripted machines.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "berth/fake_clock.hpp"
#include "berth/pool.hpp"
#include "device/cuda/nvml.hpp"
#include "device/test_process.hpp"
#include "driver_double/fixture.hpp"
#include "driver_double/machine.hpp"
#include "world/test_units.hpp"

namespace berth::test {
namespace {

using world::gib;

using namespace std::chrono_literals;

constexpr const char* two_gpus = "gpus 2 memory=80GiB\n";

DeviceEvent of(DeviceEvent::Kind kind, std::uint32_t code = 0) { return {kind, code, {}}; }

std::vector<DeviceEvent> without_times(std::vector<DeviceEvent> events) {
  for (DeviceEvent& event : events) event.at = {};
  return events;
}

std::vector<DeviceEvent> events_of(nvml::Watch& watch) {
  Result<LoadSample> sample = watch.sample();
  EXPECT_TRUE(works(sample));
  return sample ? without_times(std::move(sample->events)) : std::vector<DeviceEvent>();
}

std::uint64_t sum(const MemoryUse& use) {
  return use.own.value_or(0) + use.berth.value_or(0) + use.foreign.value_or(0) + use.unattributed.value_or(0);
}

TEST(Telemetry, EveryGaugeIsReadAndObservingMakesNoContext) {
  const Machine m(std::string(two_gpus) +
                  "set 0 utilization=97 memory_utilization=61 power_mw=655500 power_limit_mw=700000 temperature=71 "
                  "memory_temperature=84 clock_mhz=1755 memory_clock_mhz=2619 throttle=0x44 ecc_corrected=7 "
                  "ecc_uncorrected=2 rows_corrected=1 rows_uncorrected=3\n");
  const TimePoint before = real_clock().now();
  const Telemetry seen = m.observe(0);
  EXPECT_GE(seen.sampled_at, before);
  EXPECT_LE(seen.sampled_at, real_clock().now());
  EXPECT_EQ(seen.load.utilization, 0.97);
  EXPECT_EQ(seen.memory_utilization, 0.61);
  EXPECT_EQ(seen.power_watts, 655.5);
  EXPECT_EQ(seen.power_limit_watts, 700);
  EXPECT_EQ(seen.temperature_celsius, 71);
  EXPECT_EQ(seen.memory_temperature_celsius, 84);
  EXPECT_EQ(seen.clock_mhz, 1755U);
  EXPECT_EQ(seen.memory_clock_mhz, 2619U);
  EXPECT_EQ(seen.throttle_reasons, (std::vector<std::string>{"power cap", "temperature, by the hardware"}));
  EXPECT_EQ(seen.ecc_corrected, 7U);
  EXPECT_EQ(seen.ecc_uncorrected, 2U);
  EXPECT_EQ(seen.remapped_rows, 4U);
  EXPECT_EQ(seen.recovery_action, RecoveryAction::none);
  EXPECT_EQ(seen.load.memory_bytes_total, 80 * gib) << "what programs can have";
  EXPECT_EQ(seen.load.memory_bytes_free, 80 * gib);
  EXPECT_EQ(m.observe(1).throttle_reasons, std::vector<std::string>()) << "idle";
  EXPECT_EQ(count("contexts"), 0);
}

TEST(Telemetry, WhatTheDriverDoesNotKnowIsAbsent) {
  const Machine m(
      "gpu memory=80GiB\nerror nvmlDeviceGetP* code=3 times=always\nerror nvmlDeviceGetT* code=3 times=always\n"
      "error nvmlDeviceGetC* code=3 times=always\nerror nvmlDeviceGetG* code=3 times=always\n"
      "error nvmlDeviceGetR* code=3 times=always\nerror nvmlDeviceGetF* code=3 times=always\n"
      "error nvmlDeviceGetS* code=3 times=always\nerror nvmlDeviceGetUtil* code=3 times=always\n"
      "error nvmlDeviceGetMemory* code=3 times=always\n");
  const Telemetry seen = m.observe(0);
  EXPECT_FALSE(seen.power_watts || seen.temperature_celsius || seen.clock_mhz || seen.ecc_corrected);
  EXPECT_FALSE(seen.remapped_rows || seen.recovery_action || seen.memory_utilization || seen.load.utilization);
  EXPECT_FALSE(seen.processes || seen.throttle_reasons || seen.memory_temperature_celsius);
  EXPECT_FALSE(seen.load.memory_bytes_free || seen.load.memory_bytes_total);
  EXPECT_EQ(seen.memory_use, MemoryUse{});
}

TEST(Telemetry, AnOlderLibrarysMemoryCountsTheDriversShareAsUnattributed) {
  const Machine m("gpu memory=80GiB reserved=1GiB\nerror nvmlDeviceGetMemoryInfo_v2 code=25 times=always\n");
  const Telemetry seen = m.observe(0);
  EXPECT_EQ(seen.load.memory_bytes_total, 81 * gib);
  EXPECT_EQ(seen.load.memory_bytes_free, 80 * gib);
  EXPECT_EQ(seen.memory_use.unattributed, gib);
}

TEST(Telemetry, MemoryIsAttributedToProcessesAndAddsUp) {
  ChildProcess other({"sleep", "60"});
  const std::string pid = std::to_string(other.pid());
  Machine m(
      std::string(two_gpus) + "process gpu=0 pid=" + pid +
      " bytes=30GiB both\nprocess gpu=0 pid=4194305 bytes=2GiB graphics\nprocess gpu=0 pid=4194306 bytes=5GiB hidden\n"
      "process gpu=0 pid=4194307 bytes=3GiB unsaid\n");
  const auto device = m.backend->open(m.id(0));
  ASSERT_TRUE(works(device));
  const auto buffer = (*device)->allocate(gib);
  ASSERT_TRUE(works(buffer));
  const Telemetry seen = m.observe(0);
  ASSERT_TRUE(seen.processes);
  ASSERT_EQ(seen.processes->size(), 4U) << "computing and drawing is one process";
  for (const DeviceProcess& process : *seen.processes) {
    if (process.pid == static_cast<std::uint32_t>(getpid())) {
      EXPECT_EQ(process.kind, ProcessKind::own);
      EXPECT_GE(process.memory_bytes, gib);
    } else if (process.pid == static_cast<std::uint32_t>(other.pid())) {
      EXPECT_EQ(process.kind, ProcessKind::foreign);
      EXPECT_EQ(process.name, "sleep");
    } else {
      EXPECT_FALSE(process.name);
      EXPECT_EQ(process.memory_bytes, process.pid == 4194305 ? std::optional(2 * gib) : std::nullopt);
    }
  }
  EXPECT_EQ(seen.memory_use.berth, 0U);
  EXPECT_GE(seen.memory_use.own, gib);
  EXPECT_EQ(seen.memory_use.foreign, 32 * gib);
  EXPECT_EQ(seen.memory_use.unattributed, 8 * gib);
  EXPECT_EQ(sum(seen.memory_use), *seen.load.memory_bytes_total - *seen.load.memory_bytes_free);
  other.end();
  also("process gpu=0 pid=" + pid + " bytes=0\n");
  EXPECT_EQ(m.observe(0).memory_use.foreign, 2 * gib) << "gone with its process";
}

// A process frees 18 of its 20 GiB while the GPU is being read. Counted with 20,
// it would have bytes that are free as well.
TEST(Telemetry, MemoryThatIsFreedBetweenTwoCallsIsNotCountedTwice) {
  const std::string first = std::string(two_gpus) + "process gpu=0 pid=4194305 bytes=20GiB\n";
  const Machine m(first + "process gpu=0 pid=4194305 bytes=2GiB at=1 when=nvmlDeviceGetMemoryInfo_v2\n");
  const Telemetry seen = m.observe(0);
  ASSERT_EQ(seen.processes->size(), 1U);
  EXPECT_EQ(seen.processes->front().memory_bytes, 2 * gib);
  EXPECT_EQ(seen.memory_use.foreign, 2 * gib);
  EXPECT_EQ(sum(seen.memory_use), *seen.load.memory_bytes_total - *seen.load.memory_bytes_free);
}

TEST(Telemetry, MemoryThatIsTakenAfterTheFreeMemoryWasReadIsNotCountedYet) {
  const Machine m(std::string(two_gpus) +
                  "process gpu=0 pid=4194305 bytes=2GiB\nprocess gpu=0 pid=4194306 bytes=40GiB\n"
                  "process gpu=0 pid=4194305 bytes=20GiB when=nvmlDeviceGetUtilizationRates at=2\n");
  const Telemetry seen = m.observe(0);
  ASSERT_EQ(seen.processes->size(), 2U);
  EXPECT_EQ(seen.processes->front().memory_bytes, 2 * gib);
  EXPECT_EQ(seen.load.memory_bytes_free, 38 * gib);
}

TEST(Telemetry, AProcessThatComesWhileTheGpuIsReadIsListedWithoutMemory) {
  const Machine m(
      std::string(two_gpus) +
      "process gpu=0 pid=4194305 bytes=2GiB\nprocess gpu=0 pid=4194305 bytes=0 "
      "when=nvmlDeviceGetMemoryInfo_v2\nprocess gpu=0 pid=4194306 bytes=3GiB when=nvmlDeviceGetMemoryInfo_v2\n");
  const Telemetry seen = m.observe(0);
  ASSERT_EQ(seen.processes->size(), 1U) << "the one that ended is not listed";
  EXPECT_EQ(seen.processes->front().pid, 4194306U);
  EXPECT_EQ(seen.processes->front().memory_bytes, 0U);
  EXPECT_EQ(seen.memory_use.unattributed, 3 * gib);
}

TEST(Telemetry, ProcessesHaveTheirUserAndWhetherTheyOnlyDraw) {
  ChildProcess other({"sleep", "60"});
  const std::string pid = std::to_string(other.pid());
  const Machine m(
      std::string(two_gpus) + "process gpu=0 pid=" + pid +
      " bytes=1GiB graphics\nprocess gpu=0 pid=4194305 bytes=1GiB both\nprocess gpu=0 pid=4194306 bytes=1GiB\n");
  const Telemetry seen = m.observe(0);
  ASSERT_EQ(seen.processes->size(), 3U);
  for (const DeviceProcess& process : *seen.processes) {
    const bool is_child = process.pid == static_cast<std::uint32_t>(other.pid());
    EXPECT_EQ(process.user, is_child ? std::optional<std::uint32_t>(getuid()) : std::nullopt);
    EXPECT_EQ(process.graphics, is_child) << process.pid;
  }
}

TEST(Telemetry, ManyProcessesAreAllListed) {
  std::string script = two_gpus;
  for (int i = 0; i < 100; ++i) script += "process gpu=0 pid=" + std::to_string(4194305 + i) + " bytes=1MiB\n";
  EXPECT_EQ(Machine(script).observe(0).processes->size(), 100U);
}

TEST(Telemetry, WhereNumbersAreAnotherNamespacesOwnIsUnknownAndNobodyIsNamed) {
  Machine m(std::string(two_gpus) + "driver own_pid=1\nprocess gpu=0 pid=4194305 bytes=1GiB\n");
  const auto device = m.backend->open(m.id(0));
  ASSERT_TRUE(works(device));
  const Telemetry seen = m.observe(0);
  ASSERT_EQ(seen.processes->size(), 2U);
  for (const DeviceProcess& process : *seen.processes) {
    EXPECT_EQ(process.kind, ProcessKind::foreign);
    EXPECT_FALSE(process.name);
  }
  EXPECT_FALSE(seen.memory_use.own);
  EXPECT_EQ(sum(seen.memory_use), *seen.load.memory_bytes_total - *seen.load.memory_bytes_free);
}

TEST(Telemetry, APartHasTheValuesOfItsGpu) {
  start("gpu memory=80GiB\nset 0 temperature=66 utilization=50\n");
  BackendOptions options;
  options.partitions = {{"cuda:0", {64, 32}}};
  const auto backend = device::make_cuda_backend(options);
  const auto listed = backend->list();
  ASSERT_TRUE(works(listed));
  ASSERT_EQ(listed->size(), 2U);
  const auto seen = backend->observe(listed->front().id);
  ASSERT_TRUE(works(seen));
  EXPECT_EQ(seen->temperature_celsius, 66);
  EXPECT_EQ(seen->load.memory_bytes_total, 80 * gib);
  const auto links = backend->links();
  ASSERT_TRUE(works(links));
  ASSERT_EQ(links->size(), 1U);
  EXPECT_EQ(links->front().kind, LinkKind::same_device);
  EXPECT_EQ(links->front().peer_access, true);
}

TEST(Telemetry, EveryWatcherIsToldEachEventOnce) {
  const Machine m(two_gpus);
  const long long sets = count("event_sets");
  nvml::Watch first(m.id(0), real_clock()), second(m.id(0), real_clock()), other(m.id(1), real_clock());
  for (nvml::Watch* watch : {&first, &second, &other}) EXPECT_TRUE(events_of(*watch).empty());
  also("event gpu=0 kind=xid code=31\nevent gpu=0 kind=ecc\n");
  const std::vector<DeviceEvent> wanted{of(DeviceEvent::Kind::xid, 31), of(DeviceEvent::Kind::ecc_error)};
  EXPECT_EQ(events_of(first), wanted);
  EXPECT_TRUE(events_of(first).empty());
  nvml::Watch late(m.id(0), real_clock());
  EXPECT_TRUE(events_of(late).empty()) << "it reports only later events";
  also("event gpu=0 kind=xid code=48\n");
  EXPECT_EQ(events_of(late), std::vector{of(DeviceEvent::Kind::xid, 48)});
  EXPECT_EQ(events_of(second), (std::vector{wanted[0], wanted[1], of(DeviceEvent::Kind::xid, 48)}));
  EXPECT_TRUE(events_of(other).empty());
  EXPECT_EQ(count("event_sets") - sets, 2) << "one for each GPU";
}

TEST(Telemetry, AFloodOfEventsIsBounded) {
  const Machine m(two_gpus);
  nvml::Watch watch(m.id(0), real_clock());
  EXPECT_TRUE(events_of(watch).empty());
  std::string flood;
  for (int i = 0; i < 1000; ++i) flood += "event gpu=0 kind=xid code=13\n";
  also(flood);
  std::size_t total = 0;
  for (int i = 0; i < 4; ++i) {
    const std::size_t now = events_of(watch).size();
    EXPECT_LE(now, 256U);
    total += now;
  }
  EXPECT_EQ(total, 1000U);
}

TEST(Telemetry, WhatTheDriverWantsDoneIsToldAtFirstAndWhenItChanges) {
  const Machine m(std::string(two_gpus) + "set 0 recovery_action=1\n");
  nvml::Watch watch(m.id(0), real_clock());
  const auto action = [](RecoveryAction wanted) {
    return std::vector{of(DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(wanted))};
  };
  EXPECT_EQ(events_of(watch), action(RecoveryAction::reset));
  EXPECT_TRUE(events_of(watch).empty());
  also("set 0 recovery_action=4\n");
  EXPECT_EQ(events_of(watch), action(RecoveryAction::drain_and_reset));
  EXPECT_EQ(m.observe(0).recovery_action, RecoveryAction::drain_and_reset);
  also("set 0 recovery_action=0\n");
  EXPECT_EQ(events_of(watch), action(RecoveryAction::none));
  nvml::Watch unaware(m.id(1), real_clock());
  EXPECT_TRUE(events_of(unaware).empty()) << "no action is not an event";
}

TEST(Telemetry, AGpuThatIsGoneIsLostWithWhatToDo) {
  const Machine m(two_gpus);
  nvml::Watch watch(m.id(0), real_clock());
  EXPECT_TRUE(works(watch.sample()));
  const auto device = m.backend->open(m.id(0));
  ASSERT_TRUE(works(device));
  also("lost gpu=0\n");
  const auto sampled = watch.sample();
  ASSERT_TRUE(fails_with(sampled, ErrorCode::device_lost));
  EXPECT_NE(sampled.error().advice.find("nvidia-smi --gpu-reset -i " + m.id(0).text()), std::string::npos);
  EXPECT_TRUE(fails_with(m.backend->observe(m.id(0)), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with((*device)->sample(), ErrorCode::device_lost));
  EXPECT_TRUE(works(m.backend->observe(m.id(1)))) << "the other GPU still works";
}

TEST(Telemetry, AGpuThatIsHealthyAgainIsFoundAgain) {
  const Machine m(two_gpus);
  FakeClock clock;
  nvml::Watch watch(m.id(0), clock), other(m.id(1), clock);
  EXPECT_TRUE(works(watch.observe()));
  EXPECT_TRUE(works(other.observe()));
  const std::string fault = testing::TempDir() + "berth-lost-" + std::to_string(getpid());
  std::ofstream(fault) << "lost";
  also("lost nvmlDeviceGetMemoryInfo* gpu=0 file=" + fault + " times=always\n");
  for (int asked = 0; asked < 3; ++asked, clock.advance(std::chrono::seconds(6)))
    EXPECT_TRUE(fails_with(watch.observe(), ErrorCode::device_lost));
  std::filesystem::remove(fault);
  EXPECT_TRUE(fails_with(watch.observe(), ErrorCode::device_lost)) << "the library has not been started since";
  EXPECT_TRUE(works(watch.observe()));
  EXPECT_TRUE(works(other.observe())) << "with a handle of the new start";
}

TEST(Telemetry, AGpuThatMustBeResetIsLostToo) {
  const Machine m(std::string(two_gpus) + "error nvmlDeviceGetUtilizationRates code=16 times=always\n");
  EXPECT_TRUE(fails_with(m.backend->observe(m.id(0)), ErrorCode::device_lost));
}

TEST(Telemetry, ADeviceThatTheDriverForgotIsLost) {
  Machine m("gpu\nslice gpu=0\nslice gpu=0\n");
  nvml::Watch watch(m.id(0), real_clock());
  EXPECT_TRUE(works(watch.sample()));
  start("gpu\n");
  const auto sampled = watch.sample();
  ASSERT_TRUE(fails_with(sampled, ErrorCode::device_lost));
  EXPECT_NE(sampled.error().message.find("no longer exists"), std::string::npos);
}

TEST(Telemetry, APassingFaultOfTheLibraryLeavesWhatTheContextKnows) {
  const Machine m(two_gpus);
  const auto device = m.backend->open(m.id(0));
  ASSERT_TRUE(works(device));
  also("error nvmlDeviceGetMemoryInfo* code=999 times=always gpu=0\n");
  EXPECT_EQ(m.backend->observe(m.id(0)).error().code, ErrorCode::unavailable);
  const auto sampled = (*device)->sample();
  ASSERT_TRUE(works(sampled));
  EXPECT_GT(sampled->memory_bytes_free.value_or(0), 70 * gib);
}

// Every call of a sample, stuck on one GPU.
class Stuck : public testing::TestWithParam<const char*> {};

TEST_P(Stuck, HoldsUpNobodyWhoWatchesAnotherGpu) {
  const Machine m(two_gpus);
  nvml::Watch healthy(m.id(1), real_clock());
  EXPECT_TRUE(works(healthy.sample()));
  also(std::string("hang ") + GetParam() + (std::string(GetParam()).starts_with("nvmlEventSet") ? "" : " gpu=0") +
       " times=1\n");
  nvml::Watch stuck(m.id(0), real_clock());
  std::atomic<bool> came_back{false};
  std::thread asker([&] {
    EXPECT_TRUE(works(stuck.sample()));
    came_back = true;
  });
  while (count("hung") == 0 && !came_back) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(works(healthy.sample()));
    EXPECT_TRUE(works(m.backend->observe(m.id(1))));
    nvml::Watch newcomer(m.id(1), real_clock());
    EXPECT_TRUE(works(newcomer.sample()));
  }
  EXPECT_FALSE(came_back) << "the call must be stuck";
  release();
  asker.join();
}

INSTANTIATE_TEST_SUITE_P(Call, Stuck,
                         testing::Values("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetMemoryInfo_v2",
                                         "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetFieldValues",
                                         "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents",
                                         "nvmlEventSetCreate", "nvmlEventSetWait_v2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Telemetry, AStuckGpuDoesNotHoldUpThePool) {
  const Machine m(two_gpus);
  std::vector<std::shared_ptr<Device>> devices = open_all(*m.backend);
  ASSERT_EQ(devices.size(), 2U);
  also("hang nvmlDeviceGetMemoryInfo_v2 gpu=0 times=always\n");
  PoolOptions options;
  options.poll_period = 1ms;
  options.poll_deadline = 5ms;
  options.stale_after = 10ms;
  {
    const auto pool = Pool::open(devices, options);
    ASSERT_TRUE(works(pool));
    const auto deadline = soon();
    const auto state = [&](std::size_t i) { return pool->status().at(i).view.sample; };
    while ((state(0) != SampleState::stale || state(1) != SampleState::fresh) && !deadline.passed(real_clock().now()))
      std::this_thread::yield();
    EXPECT_EQ(state(0), SampleState::stale);
    EXPECT_EQ(state(1), SampleState::fresh);
    EXPECT_EQ(count("hung"), 1) << "one question at a time";
    release();
  }
  also("set 0 utilization=1\n");
  release();
}

TEST(Telemetry, AnXidTakesAGpuOutOfThePoolWithinOnePoll) {
  const Machine m(two_gpus);
  std::vector<std::shared_ptr<Device>> devices = open_all(*m.backend);
  ASSERT_EQ(devices.size(), 2U);
  PoolOptions options;
  options.poll = false;
  const auto pool = Pool::open(devices, options);
  ASSERT_TRUE(works(pool));
  pool->poll_now();
  also("event gpu=0 kind=xid code=31\n");
  pool->poll_now();
  EXPECT_EQ(pool->status()[0].view.health, Health::healthy) << "the fault of a task";
  also("event gpu=0 kind=xid code=95\n");
  pool->poll_now();
  const DeviceStatus status = pool->status()[0];
  EXPECT_EQ(status.view.health, Health::quarantined);
  ASSERT_TRUE(status.error);
  EXPECT_NE(status.error->message.find("Xid 95"), std::string::npos);
  EXPECT_EQ(pool->acquire()->id(), m.id(1));
  also("lost gpu=0\n");
  pool->poll_now();
  EXPECT_EQ(pool->status()[0].view.health, Health::lost);
}

TEST(Slices, AnEventCountsForTheSliceItNames) {
  const Machine m("gpu\nslice gpu=0\nslice gpu=0\n");
  nvml::Watch first(m.id(0), real_clock()), second(m.id(1), real_clock());
  nvml::Watch whole(*m.devices[0].parent, real_clock());
  for (nvml::Watch* watch : {&first, &second, &whole}) EXPECT_TRUE(events_of(*watch).empty());
  also("event gpu=0 kind=xid code=94 slice=1\nevent gpu=0 kind=xid code=79\n");
  const DeviceEvent contained = of(DeviceEvent::Kind::xid, 94), gone = of(DeviceEvent::Kind::xid, 79);
  EXPECT_EQ(events_of(first), std::vector{gone});
  EXPECT_EQ(events_of(second), (std::vector{contained, gone}));
  EXPECT_EQ(events_of(whole), (std::vector{contained, gone}));
}

// In a process of its own, since a library is started once.
[[noreturn]] void use_gpus_without_telemetry(int code, const char* advice) {
  start(std::string(two_gpus) + "error nvmlInit_v2 times=always code=" + std::to_string(code) + "\n");
  int wrong = 0;
  const auto expect = [&](bool good, const char* what) {
    if (!good) std::fprintf(stderr, "not as promised: %s\n", what), ++wrong;
  };
  const auto library = nvml::Library::load();
  expect(!library && library.error().code == ErrorCode::not_initialized, "the code");
  expect(!library && library.error().advice.find(advice) != std::string::npos, "the advice");
  const auto backend = device::make_cuda_backend({});
  const auto listed = backend->list();
  expect(listed && listed->size() == 2, "the list");
  const auto device = backend->open(listed->front().id);
  const auto sample = device ? (*device)->sample() : device.error();
  expect(sample && sample->memory_bytes_free.value_or(0) > 0, "the free memory of an open device");
  const auto seen = backend->observe(listed->front().id);
  expect(seen && seen->load.memory_bytes_free && !seen->temperature_celsius, "what is observed");
  const auto links = backend->links();
  expect(links && links->empty(), "the links");
  std::fprintf(stderr, wrong == 0 ? "as promised\n" : "%d wrong\n", wrong);
  std::_Exit(wrong);
}

TEST(TelemetryDeathTest, WithoutALibraryThatStartsGpusWorkAndTheReasonIsPlain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(use_gpus_without_telemetry(nvml::version_mismatch, "reboot"), testing::ExitedWithCode(0), "as promised");
  EXPECT_EXIT(use_gpus_without_telemetry(nvml::driver_not_loaded, "modprobe nvidia"), testing::ExitedWithCode(0),
              "as promised");
  EXPECT_EXIT(use_gpus_without_telemetry(nvml::no_permission, "/dev/nvidiactl"), testing::ExitedWithCode(0),
              "as promised");
  EXPECT_EXIT(use_gpus_without_telemetry(999, "nvidia-smi"), testing::ExitedWithCode(0), "as promised");
}

}  // namespace
}  // namespace berth::test
