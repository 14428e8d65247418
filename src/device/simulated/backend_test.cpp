#include "device/simulated/backend.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "berth/fake_clock.hpp"
#include "device/simulated/test_simulated.hpp"
#include "device/test_results.hpp"
#ifdef BERTH_HAS_RAPIDCHECK
#include <rapidcheck.h>
#endif

namespace berth::simulated {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::code_of;

TEST(Simulated, WorkIsDoneWhenTheClockReachesItsFinish) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.speed = 2.0;
  spec.launch_time = microseconds(100);
  const auto [device, stream] = open_with_stream(spec, clock);
  const auto before = event_on(*stream);
  const auto event = event_after_work(*stream, 10.0);
  EXPECT_FALSE(*event->done());
  clock.advance(microseconds(5099));
  EXPECT_FALSE(*event->done());
  clock.advance(microseconds(1));
  EXPECT_TRUE(*event->done());
  EXPECT_EQ(*event->since(*before), microseconds(5100)) << "10 units at speed 2 are 5 ms, and the launch";
}

TEST(Simulated, TimesAreInverselyProportionalToTheSpeed) {
  FakeClock clock;
  SimulatedSpec slow = spec_called("slow"), fast = spec_called("fast");
  fast.speed = 4.0;
  slow.launch_time = fast.launch_time = Duration::zero();
  slow.item_ns = fast.item_ns = 0.5;
  KernelSource source;
  source.entry = "nothing";
  source.ptx = ".version 6.0";
  const auto time_on = [&](const SimulatedSpec& spec) {
    const auto [device, stream] = open_with_stream(spec, clock);
    const auto before = event_on(*stream);
    const auto kernel = device->load(source);
    EXPECT_TRUE(kernel.has_value()) << "a simulated device understands every language";
    EXPECT_TRUE(stream->launch(**kernel, {{1000, 8, 1}, {}}, {}).has_value());
    const auto event = event_on(*stream);
    EXPECT_TRUE(event->wait().has_value());
    return *event->since(*before);
  };
  EXPECT_EQ(time_on(slow), microseconds(4));
  EXPECT_EQ(time_on(fast), microseconds(1));
}

TEST(Simulated, StreamsShareTheEnginesOfADevice) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.launch_time = Duration::zero();
  spec.concurrency = 2;
  const auto device = make_simulated_device(spec, clock);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::shared_ptr<Event>> events;
  for (int i = 0; i < 4; ++i) {
    streams.push_back(stream_on(*device));
    ASSERT_TRUE(simulated_work(*streams.back(), 1.0).has_value());
    events.push_back(event_on(*streams.back()));
  }
  EXPECT_EQ(device->sample()->queue_depth, 4U);
  EXPECT_EQ(device->sample()->active_streams, 4U);
  EXPECT_EQ(device->sample()->utilization, 1.0);
  clock.advance(milliseconds(1));
  EXPECT_TRUE(*events[0]->done() && *events[1]->done());
  EXPECT_FALSE(*events[2]->done() || *events[3]->done());
  EXPECT_EQ(device->sample()->queue_depth, 2U);
  clock.advance(milliseconds(1));
  EXPECT_TRUE(*events[2]->done() && *events[3]->done());
  EXPECT_EQ(device->sample()->queue_depth, 0U);
  EXPECT_EQ(device->sample()->utilization, 0.0);
}

TEST(Simulated, CopiesMoveBytesAndTakeTheTimeOfTheLink) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.copy_bytes_per_second = 1e9;
  const auto [device, stream] = open_with_stream(spec, clock);
  const auto buffer = device->allocate(1000);
  ASSERT_TRUE(buffer.has_value());
  const std::vector<std::byte> sent(1000, std::byte{7});
  std::vector<std::byte> received(1000);
  const auto before = event_on(*stream);
  ASSERT_TRUE(stream->copy_in(*buffer, 0, sent).has_value());
  ASSERT_TRUE(stream->copy_out(*buffer, 0, received).has_value());
  const auto event = event_on(*stream);
  ASSERT_TRUE(event->wait().has_value());
  EXPECT_EQ(*event->since(*before), microseconds(2));
  EXPECT_EQ(received, sent);
}

TEST(Simulated, CopiesBetweenBuffersTakeTheTimeOfTheLinkToo) {
  FakeClock clock;
  SimulatedSpec slow = spec_called("slow"), fast = spec_called("fast");
  slow.copy_bytes_per_second = 1e6;
  const auto backend = make_simulated_backend({slow, fast}, clock);
  const auto device = *backend->open(DeviceId("slow")), other = *backend->open(DeviceId("fast"));
  const Buffer to = *device->allocate(1000), from = *device->allocate(1000), theirs = *other->allocate(1000);
  const auto stream = stream_on(*device);
  ASSERT_TRUE(stream->copy(to, 0, from, 0, 1000));
  auto event = event_on(*stream);
  clock.advance(microseconds(999));
  EXPECT_FALSE(*event->done());
  clock.advance(microseconds(1));
  EXPECT_TRUE(*event->done());
  ASSERT_TRUE(stream->copy(to, 0, theirs, 0, 500));
  event = event_on(*stream);
  clock.advance(microseconds(499));
  EXPECT_FALSE(*event->done());
  clock.advance(microseconds(1));
  EXPECT_TRUE(*event->done());
}

TEST(Simulated, PartsHaveTheDomainsOfTheirParentByDefault) {
  FakeClock clock;
  auto specs = cut_gpu();
  specs[1].fault_domain = "rack";
  const auto listed = *make_simulated_backend(specs, clock)->list();
  EXPECT_EQ(listed[0].parent, std::optional(DeviceId("gpu")));
  EXPECT_EQ(listed[0].memory_domain, "gpu");
  EXPECT_EQ(listed[0].fault_domain, "gpu");
  EXPECT_EQ(listed[1].memory_domain, "gpu");
  EXPECT_EQ(listed[1].fault_domain, "rack");
  EXPECT_FALSE(listed[2].parent);
  EXPECT_EQ(listed[2].memory_domain, "other");
}

TEST(Simulated, DevicesOfOneMemoryDomainShareItsBytes) {
  FakeClock clock;
  const auto backend = make_simulated_backend(cut_gpu(), clock);
  const auto first = *backend->open(DeviceId("gpu/sm64.0")), second = *backend->open(DeviceId("gpu/sm64.1"));
  const auto other = *backend->open(DeviceId("other"));
  const Buffer held = *first->allocate(1 << 19);
  EXPECT_EQ(second->sample()->memory_bytes_free, std::optional<std::uint64_t>(1 << 19));
  EXPECT_EQ(code_of(second->allocate((1 << 19) + 1)), ErrorCode::out_of_memory);
  EXPECT_TRUE(second->allocate(1 << 19));
  EXPECT_EQ(other->sample()->memory_bytes_free, std::optional<std::uint64_t>(1 << 20));
}

TEST(Simulated, ObservationsReportTheScriptedValues) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.memory_bytes_total = 1000;
  spec.memory_bytes_foreign = 300;
  spec.utilization = 0.25;
  spec.temperature_celsius = 83;
  spec.power_watts = 412.5;
  spec.power_limit_watts = 700;
  spec.processes = {{{17, ProcessKind::foreign, "trainer", 200}}};
  const auto backend = make_simulated_backend({spec, spec_called("quiet")}, clock);
  clock.advance(seconds(7));
  const auto seen = backend->observe(DeviceId("a"));
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->sampled_at.time_since_epoch(), seconds(7));
  EXPECT_EQ(seen->load.utilization, std::optional(0.25));
  EXPECT_EQ(seen->load.memory_bytes_free, std::optional<std::uint64_t>(700));
  EXPECT_EQ(seen->temperature_celsius, std::optional(83));
  EXPECT_EQ(seen->power_watts, std::optional(412.5));
  EXPECT_EQ(seen->power_limit_watts, std::optional(700.0));
  ASSERT_TRUE(seen->processes);
  ASSERT_EQ(seen->processes->size(), 1U);
  EXPECT_EQ(seen->processes->front().name, std::optional<std::string>("trainer"));
  EXPECT_FALSE(seen->recovery_action);
  EXPECT_EQ(seen->memory_use, (MemoryUse{0, 0, 200, 100}));
  const auto device = *backend->open(DeviceId("a"));
  const Buffer held = *device->allocate(100);
  const auto later = *backend->observe(DeviceId("a"));
  EXPECT_EQ(later.processes->size(), 2U) << "and this process";
  EXPECT_EQ(later.memory_use, (MemoryUse{100, 0, 200, 100}));

  const auto quiet = backend->observe(DeviceId("quiet"));
  ASSERT_TRUE(quiet);
  EXPECT_FALSE(quiet->temperature_celsius);
  EXPECT_FALSE(quiet->power_watts);
  EXPECT_FALSE(quiet->processes);
  EXPECT_EQ(quiet->load.utilization, std::optional(0.0)) << "no work runs on it";
}

TEST(Simulated, AnEventIsInOneSampleOfEachOpening) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.events = {{seconds(2), DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(RecoveryAction::reset)},
                 {seconds(1), DeviceEvent::Kind::xid, 63},
                 {seconds(2), DeviceEvent::Kind::xid, 79}};
  const auto backend = make_simulated_backend({spec}, clock);
  const auto first = *backend->open(DeviceId("a")), second = *backend->open(DeviceId("a"));
  EXPECT_TRUE(first->sample()->events.empty());
  EXPECT_FALSE(backend->observe(DeviceId("a"))->recovery_action);
  clock.advance(seconds(1));
  const DeviceEvent early{DeviceEvent::Kind::xid, 63, TimePoint(seconds(1))};
  EXPECT_EQ(first->sample()->events, std::vector{early});
  EXPECT_TRUE(first->sample()->events.empty()) << "once only";
  clock.advance(seconds(5));
  const DeviceEvent action{DeviceEvent::Kind::recovery_action, 1, TimePoint(seconds(2))};
  const DeviceEvent late{DeviceEvent::Kind::xid, 79, TimePoint(seconds(2))};
  EXPECT_EQ(first->sample()->events, (std::vector{action, late}));
  EXPECT_EQ(second->sample()->events, (std::vector{early, action, late}));
  EXPECT_EQ(backend->observe(DeviceId("a"))->recovery_action, std::optional(RecoveryAction::reset));
  EXPECT_TRUE((*backend->open(DeviceId("a")))->sample()->events.empty()) << "all events were before this opening";
}

TEST(Simulated, AClosureCostsOneLaunchUnlessItSetsItsCost) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.launch_time = milliseconds(1);
  const auto [device, stream] = open_with_stream(spec, clock);
  const auto start = event_on(*stream);
  ASSERT_TRUE(stream->run([](Stream&) { return Result<void>(); }).has_value());
  const auto plain = event_on(*stream);
  ASSERT_TRUE(stream->run([](Stream& inner) { return simulated_work(inner, 4.0); }).has_value());
  const auto costly = event_on(*stream);
  ASSERT_TRUE(costly->wait().has_value());
  EXPECT_EQ(*plain->since(*start), milliseconds(1));
  EXPECT_EQ(*costly->since(*plain), milliseconds(5));
}

TEST(Simulated, AnInvalidCostIsRefused) {
  FakeClock clock;
  const auto device = make_simulated_device(spec_called("a"), clock);
  const auto stream = stream_on(*device);
  EXPECT_EQ(code_of(simulated_work(*stream, -1.0)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(simulated_work(*stream, NAN)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(simulated_work(*stream, INFINITY)), ErrorCode::invalid_argument);
}

TEST(Simulated, FreeMemoryIsTotalMinusForeignMinusOwn) {
  // ThreadSanitizer leaves a program only a few GiB of address space in one piece.
#ifdef __SANITIZE_THREAD__
  constexpr std::uint64_t unit = std::uint64_t{1} << 26;
#else
  constexpr std::uint64_t unit = std::uint64_t{1} << 30;
#endif
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.memory_bytes_total = 80 * unit;
  spec.memory_bytes_foreign = 20 * unit;
  const auto device = make_simulated_device(spec, clock);
  EXPECT_EQ(device->sample()->memory_bytes_free, 60 * unit);
  {
    const auto half = device->allocate(40 * unit);
    ASSERT_TRUE(half.has_value()) << "more than this machine has, but never touched";
    EXPECT_EQ(device->sample()->memory_bytes_free, 20 * unit);
    EXPECT_EQ(code_of(device->allocate(20 * unit + 1)), ErrorCode::out_of_memory);
    ASSERT_TRUE(set_simulated_foreign_bytes(*device, 50 * unit).has_value());
    EXPECT_EQ(device->sample()->memory_bytes_free, 0U) << "others took what we hold: never below zero";
  }
  EXPECT_EQ(device->sample()->memory_bytes_free, 30 * unit);
  EXPECT_EQ(device->sample()->memory_bytes_total, 80 * unit);
}

TEST(Simulated, UnknownMemoryIsAbsentNotZero) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.memory_bytes_total.reset();
  const auto device = make_simulated_device(spec, clock);
  EXPECT_FALSE(device->info().memory_bytes_total.has_value());
  EXPECT_FALSE(device->sample()->memory_bytes_free.has_value());
  EXPECT_TRUE(device->allocate(64).has_value());
}

TEST(Simulated, OnTheRealClockWorkWaitsOnATimer) {
  SimulatedSpec spec = spec_called("a");
  spec.launch_time = Duration::zero();
  const auto [device, stream] = open_with_stream(spec, real_clock());
  const TimePoint before = real_clock().now();
  ASSERT_TRUE(simulated_work(*stream, 3.0).has_value());
  ASSERT_TRUE(stream->wait(Deadline::after(real_clock(), seconds(30))).has_value());
  EXPECT_GE(real_clock().now() - before, milliseconds(3));
}

TEST(Simulated, SimulatedWorkIsNotSupportedOnOtherDevices) {
  const auto host = make_backend("host");
  ASSERT_TRUE(host.has_value());
  const auto device = (*host)->open(DeviceId("host"));
  ASSERT_TRUE(device.has_value());
  EXPECT_EQ(code_of(simulated_work(*stream_on(**device), 1.0)), ErrorCode::not_supported);
  EXPECT_EQ(code_of(lose_simulated_device(**device)), ErrorCode::not_supported);
  EXPECT_EQ(code_of(set_simulated_foreign_bytes(**device, 1)), ErrorCode::not_supported);
}

TEST(SimulatedDeathTest, AnInvalidSpecIsAnAssertionFailure) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.speed = 0;
  EXPECT_DEATH(static_cast<void>(make_simulated_device(spec, clock)), "assertion failed");
}

TEST(Simulated, ADeviceOpenedAgainIsIdle) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.faults = {fault_at(Kind::hang, Trigger::launch, 1)};
  const auto backend = make_simulated_backend({spec}, clock);
  const auto first = *backend->open(DeviceId("a"));
  const auto hung = stream_on(*first);
  ASSERT_TRUE(simulated_work(*hung, 1.0).has_value());
  EXPECT_EQ(first->sample()->active_streams, 1U);
  first->close();
  const auto second = *backend->open(DeviceId("a"));
  EXPECT_EQ(second->sample()->active_streams, 0U);
  EXPECT_EQ(second->sample()->queue_depth, 0U);
  EXPECT_EQ(second->sample()->utilization, 0.0);
  const auto stream = stream_on(*second);
  ASSERT_TRUE(simulated_work(*stream, 1.0).has_value());
  EXPECT_TRUE(stream->wait(Deadline::after(clock, seconds(1))).has_value());
}

#ifdef BERTH_HAS_RAPIDCHECK
TEST(SimulatedLaws, AStreamKeepsItsOrderAndADeviceItsRate) {
  EXPECT_TRUE(rc::check([](const std::vector<std::pair<std::uint8_t, std::uint8_t>>& work) {
    FakeClock clock;
    SimulatedSpec spec = spec_called("a");
    spec.launch_time = Duration::zero();
    spec.concurrency = *rc::gen::inRange<std::uint32_t>(1, 5);
    const auto device = make_simulated_device(spec, clock);
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(stream_on(*device));
    const auto start = event_on(*streams[0]);
    Duration total{}, last{};
    std::vector<std::shared_ptr<Event>> events;
    std::vector<Duration> tails(4);
    for (const auto& [stream, cost] : work) {
      const std::size_t at = stream % 4;
      RC_ASSERT(simulated_work(*streams[at], cost).has_value());
      events.push_back(event_on(*streams[at]));
      total += milliseconds(cost);
    }
    clock.advance(total);
    for (std::size_t i = 0; i < work.size(); ++i) {
      RC_ASSERT(*events[i]->done());  // one engine alone needs no longer than this
      const Duration finish = *events[i]->since(*start);
      Duration& tail = tails[work[i].first % 4];
      RC_ASSERT(finish >= tail + milliseconds(work[i].second));
      tail = finish;
      last = std::max(last, finish);
    }
    RC_ASSERT(last * spec.concurrency >= total);
  }));
}
#else
TEST(SimulatedLaws, NeedRapidcheck) { GTEST_SKIP() << "rapidcheck is not installed"; }
#endif

}  // namespace
}  // namespace berth::simulated
