// Scripted faults of simulated devices: errors, hangs, losses, and what ends them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "berth/fake_clock.hpp"
#include "device/simulated/test_simulated.hpp"
#include "device/test_results.hpp"

namespace berth::simulated {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::code_of;

TEST(Simulated, ALostDeviceLosesItsWholeFaultDomain) {
  FakeClock clock;
  auto specs = cut_gpu();
  specs[0].faults.push_back(fault_at(Kind::lost, Trigger::launch, 1));
  const auto backend = make_simulated_backend(specs, clock);
  const auto first = *backend->open(DeviceId("gpu/sm64.0")), second = *backend->open(DeviceId("gpu/sm64.1"));
  const auto other = *backend->open(DeviceId("other"));
  const auto on_first = stream_on(*first), on_second = stream_on(*second), on_other = stream_on(*other);
  ASSERT_TRUE(simulated_work(*on_second, 5));
  const auto pending = event_on(*on_second);
  EXPECT_EQ(code_of(simulated_work(*on_first, 1)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(pending->done()), ErrorCode::device_lost);
  EXPECT_EQ(code_of(second->allocate(1)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(second->sample()), ErrorCode::device_lost);
  EXPECT_TRUE(simulated_work(*on_other, 1));
  EXPECT_TRUE(backend->open(DeviceId("gpu/sm64.1"))) << "it may be opened again";

  ASSERT_TRUE(lose_simulated_device(*other));
  EXPECT_EQ(code_of(other->sample()), ErrorCode::device_lost);
}

TEST(Simulated, ALossByTimeAffectsTheDomainWhileItLasts) {
  FakeClock clock;
  auto specs = cut_gpu();
  SimulatedFault fault = fault_at(Kind::lost, Trigger::time, 1);
  fault.at_time = seconds(2);
  fault.lasting = seconds(1);
  specs[1].faults.push_back(fault);
  const auto backend = make_simulated_backend(specs, clock);
  const auto first = *backend->open(DeviceId("gpu/sm64.0"));
  const auto stream = stream_on(*first);
  ASSERT_TRUE(simulated_work(*stream, 60'000));
  const auto event = event_on(*stream);
  EXPECT_EQ(code_of(event->wait(Deadline::never())), ErrorCode::device_lost);
  EXPECT_EQ(clock.now().time_since_epoch(), seconds(2)) << "the waiter is woken by the loss";
  EXPECT_EQ(code_of(backend->open(DeviceId("gpu/sm64.0"))), ErrorCode::device_lost);
  EXPECT_EQ(code_of(backend->observe(DeviceId("gpu/sm64.0"))), ErrorCode::device_lost);
  EXPECT_TRUE(backend->open(DeviceId("other")));
  clock.advance(seconds(1));
  EXPECT_TRUE(backend->open(DeviceId("gpu/sm64.0")));
}

TEST(Simulated, ScriptedSampleFaultsApplyToObserve) {
  FakeClock clock;
  SimulatedSpec silent = spec_called("silent"), stuck = spec_called("stuck");
  SimulatedFault fault = fault_at(Kind::sample_silent, Trigger::time, 1);
  silent.faults.push_back(fault);
  fault.kind = Kind::sample_hang;
  stuck.faults.push_back(fault);
  const auto backend = make_simulated_backend({silent, stuck}, clock);
  EXPECT_EQ(code_of(backend->observe(DeviceId("silent"))), ErrorCode::unavailable);
  EXPECT_EQ(code_of(backend->observe(DeviceId("stuck"))), ErrorCode::timeout);
  EXPECT_EQ(clock.now().time_since_epoch(), simulated_wait_limit);

  SimulatedSpec third = spec_called("third");
  third.faults.push_back(fault_at(Kind::sample_silent, Trigger::sample, 3));
  const auto counted = make_simulated_backend({third}, clock);
  const auto device = *counted->open(DeviceId("third"));
  EXPECT_TRUE(counted->observe(DeviceId("third")));
  EXPECT_TRUE(device->sample());
  EXPECT_EQ(code_of(counted->observe(DeviceId("third"))), ErrorCode::unavailable) << "it counts as a sample";
}

TEST(Simulated, AScriptedErrorFailsThatEventAndNoLaterOne) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.faults = {fault_at(Kind::error, Trigger::launch, 2)};
  const auto [device, stream] = open_with_stream(spec, clock);
  std::vector<std::shared_ptr<Event>> events;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(simulated_work(*stream, 1.0).has_value());
    events.push_back(event_on(*stream));
  }
  EXPECT_TRUE(events[0]->wait().has_value());
  EXPECT_FALSE(*events[1]->done()) << "a failure takes its time like a success";
  ASSERT_EQ(code_of(events[1]->wait()), ErrorCode::work_failed);
  EXPECT_EQ(events[1]->wait().error().where, "a");
  EXPECT_TRUE(events[2]->wait().has_value());
}

TEST(Simulated, AHangTimesOutAtTheDeadlineOrTheLimit) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.faults = {fault_at(Kind::hang, Trigger::launch, 1)};
  const auto [device, stream] = open_with_stream(spec, clock);
  const auto event = event_after_work(*stream, 1.0);
  const TimePoint before = clock.now();
  EXPECT_EQ(code_of(event->wait(Deadline::after(clock, seconds(2)))), ErrorCode::timeout);
  EXPECT_EQ(clock.now() - before, seconds(2));
  EXPECT_EQ(code_of(event->wait()), ErrorCode::timeout);
  EXPECT_EQ(clock.now() - before, seconds(2) + simulated_wait_limit);
  ASSERT_TRUE(simulated_work(*stream, 1.0).has_value()) << "enqueueing behind a hang does not hang";
  EXPECT_EQ(code_of(stream->wait(Deadline::after(clock, seconds(2)))), ErrorCode::timeout);
  device->close();
  EXPECT_EQ(code_of(event->wait()), ErrorCode::device_lost) << "closing resolves it";
}

// The real clock, which also records that a thread waits and whether it was notified.
class WaitClock final : public Clock {
 public:
  TimePoint now() const noexcept override { return real_clock().now(); }
  void sleep_until(TimePoint) override { ADD_FAILURE() << "a simulated device does not sleep"; }
  bool wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, TimePoint when) override {
    waiting_ = true;
    waiting_.notify_all();
    notified_ = real_clock().wait_until(condition, lock, std::min(when, now() + seconds(10)));
    return notified_;
  }
  // Returns when a thread is about to wait. It holds the mutex of the device until it
  // waits, so that a close() after this call has to wake it.
  void await_waiter() const { waiting_.wait(false); }
  bool notified() const { return notified_; }

 private:
  std::atomic<bool> waiting_{false};
  std::atomic<bool> notified_{false};
};

// `blocking` waits on another thread until the device is closed.
template <class Blocking>
void expect_woken_by_closing(Device& device, const WaitClock& clock, Blocking blocking) {
  std::optional<ErrorCode> code;
  std::thread waiter([&] { code = blocking(); });
  clock.await_waiter();
  device.close();
  waiter.join();
  EXPECT_TRUE(clock.notified());
  EXPECT_EQ(code, ErrorCode::device_lost);
}

TEST(Simulated, ClosingWakesAWaiterOnAnotherThread) {
  WaitClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.faults = {fault_at(Kind::hang, Trigger::launch, 1)};
  const auto [device, stream] = open_with_stream(spec, clock);
  const auto event = event_after_work(*stream, 1.0);
  expect_woken_by_closing(*device, clock, [&] { return code_of(event->wait()); });
}

TEST(Simulated, EveryCallOnALostDeviceIsDeviceLost) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.faults = {fault_at(Kind::lost, Trigger::launch, 2)};
  const auto [device, stream] = open_with_stream(spec, clock);
  const auto buffer = device->allocate(64);
  ASSERT_TRUE(buffer.has_value());
  const auto finished = event_on(*stream);
  const auto pending = event_after_work(*stream, 1.0);
  EXPECT_EQ(code_of(simulated_work(*stream, 1.0)), ErrorCode::device_lost);

  std::vector<std::byte> bytes(64);
  EXPECT_EQ(code_of(stream->copy_in(*buffer, 0, bytes)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(stream->copy_out(*buffer, 0, bytes)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(stream->record()), ErrorCode::device_lost);
  EXPECT_EQ(code_of(stream->wait()), ErrorCode::device_lost);
  EXPECT_EQ(code_of(stream->run([](Stream&) { return Result<void>(); })), ErrorCode::device_lost);
  EXPECT_EQ(code_of(device->allocate(64)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(device->open_stream()), ErrorCode::device_lost);
  EXPECT_EQ(code_of(device->sample()), ErrorCode::device_lost);
  EXPECT_EQ(code_of(pending->wait()), ErrorCode::device_lost);
  EXPECT_TRUE(finished->wait().has_value()) << "what was done before stays done";
  clock.advance(seconds(1));
  EXPECT_EQ(code_of(pending->done()), ErrorCode::device_lost) << "and what was lost stays lost";
}

TEST(Simulated, AReopenedDeviceHasANewGenerationAndOldHandlesAreStale) {
  FakeClock clock;
  const auto backend = make_simulated_backend({spec_called("a")}, clock);
  auto first = *backend->open(DeviceId("a"));
  const auto buffer = first->allocate(64);
  ASSERT_TRUE(buffer.has_value());
  KernelSource source;
  source.entry = "nothing";
  source.host = [](const LaunchShape&, std::uint32_t, std::uint32_t, const HostArguments&) {};
  const auto kernel = first->load(source);
  ASSERT_TRUE(kernel.has_value());
  ASSERT_TRUE(lose_simulated_device(*first).has_value());

  const auto second = *backend->open(DeviceId("a"));
  EXPECT_NE(second->generation(), first->generation());
  const auto stream = stream_on(*second);
  std::vector<std::byte> bytes(64);
  EXPECT_EQ(code_of(stream->copy_in(*buffer, 0, bytes)), ErrorCode::stale_handle);
  EXPECT_EQ(code_of(stream->launch(**kernel, {}, {})), ErrorCode::stale_handle);
  const auto fresh = second->load(source);
  ASSERT_TRUE(fresh.has_value());
  const Argument stale[] = {*buffer};
  EXPECT_EQ(code_of(stream->launch(**fresh, {}, stale)), ErrorCode::stale_handle);
  first.reset();
  EXPECT_EQ(code_of(stream->copy_in(*buffer, 0, bytes)), ErrorCode::stale_handle);
}

TEST(Simulated, ALossByTimeKeepsFinishedWorkAndEndsWithItsWindow) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.launch_time = Duration::zero();
  SimulatedFault loss;
  loss.kind = Kind::lost;
  loss.trigger = Trigger::time;
  loss.at_time = milliseconds(10);
  loss.lasting = milliseconds(5);
  spec.faults = {loss};
  const auto backend = make_simulated_backend({spec}, clock);
  const auto device = *backend->open(DeviceId("a"));
  const auto stream = stream_on(*device);
  const auto in_time = event_after_work(*stream, 9.0);
  const auto too_late = event_after_work(*stream, 9.0);
  EXPECT_EQ(code_of(too_late->wait()), ErrorCode::device_lost);
  EXPECT_EQ(clock.now().time_since_epoch(), milliseconds(10)) << "the waiter is woken by the loss";
  EXPECT_TRUE(in_time->wait().has_value());
  EXPECT_EQ(code_of(backend->open(DeviceId("a"))), ErrorCode::device_lost);
  clock.advance(milliseconds(5));
  const auto again = backend->open(DeviceId("a"));
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(simulated_work(*stream_on(**again), 1.0).has_value());
  EXPECT_EQ(code_of(device->sample()), ErrorCode::device_lost);
}

TEST(Simulated, AScriptedOutOfMemoryIsTemporary) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  SimulatedFault fault = fault_at(Kind::out_of_memory, Trigger::allocation, 2);
  fault.times = 2;
  spec.faults = {fault, fault_at(Kind::out_of_memory, Trigger::launch, 1)};
  const auto device = make_simulated_device(spec, clock);
  EXPECT_TRUE(device->allocate(1).has_value());
  EXPECT_EQ(code_of(device->allocate(1)), ErrorCode::out_of_memory);
  EXPECT_EQ(code_of(device->allocate(1)), ErrorCode::out_of_memory);
  EXPECT_TRUE(device->allocate(1).has_value());
  const auto stream = stream_on(*device);
  EXPECT_EQ(code_of(simulated_work(*stream, 1.0)), ErrorCode::out_of_memory);
  EXPECT_TRUE(simulated_work(*stream, 1.0).has_value());
}

TEST(Simulated, ClosingWakesAHangingSample) {
  WaitClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.faults = {fault_at(Kind::sample_silent, Trigger::sample, 1), fault_at(Kind::sample_hang, Trigger::sample, 2)};
  const auto device = make_simulated_device(spec, clock);
  EXPECT_EQ(code_of(device->sample()), ErrorCode::unavailable);
  expect_woken_by_closing(*device, clock, [&] { return code_of(device->sample()); });
}

TEST(Simulated, AHangingSampleTimesOutAtTheLimit) {
  FakeClock clock;
  SimulatedSpec spec = spec_called("a");
  spec.faults = {fault_at(Kind::sample_hang, Trigger::sample, 1)};
  const auto device = make_simulated_device(spec, clock);
  EXPECT_EQ(code_of(device->sample()), ErrorCode::timeout);
  EXPECT_EQ(clock.now().time_since_epoch(), simulated_wait_limit);
  EXPECT_TRUE(device->sample().has_value());
}

// The reference's tests re-implement the logic they mean to test. Here a script
// drives the code itself through every outcome that a launch has.
TEST(Simulated, S4_F10_EveryOutcomeOfALaunchCanBeScripted) {
  FakeClock clock;
  const std::pair<Kind, ErrorCode> outcomes[] = {{Kind::error, ErrorCode::work_failed},
                                                 {Kind::lost, ErrorCode::device_lost},
                                                 {Kind::hang, ErrorCode::timeout},
                                                 {Kind::out_of_memory, ErrorCode::out_of_memory}};
  for (const auto& [kind, code] : outcomes) {
    SimulatedSpec spec = spec_called("a");
    spec.faults = {fault_at(kind, Trigger::launch, 2)};
    const auto [device, stream] = open_with_stream(spec, clock);
    const auto attempt = [&] {
      Result<void> enqueued = stream->run([](Stream&) { return Result<void>(); });
      return enqueued ? stream->wait(Deadline::after(clock, seconds(1))) : enqueued;
    };
    EXPECT_TRUE(attempt().has_value());
    const Result<void> second = attempt();
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, code);
    EXPECT_EQ(second.error().where, "a");
  }
}

}  // namespace
}  // namespace berth::simulated
