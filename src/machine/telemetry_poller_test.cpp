#include "machine/telemetry_poller.hpp"

#include <gtest/gtest.h>

#include <latch>

#include "device/deadline_call.hpp"

namespace berth::machine {
namespace {

// Two devices; "stuck" does not answer until it is released.
class HangingBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "stubborn"; }
  Result<std::vector<DeviceInfo>> list() override {
    std::vector<DeviceInfo> devices(2);
    devices[0].id = DeviceId("quick");
    devices[1].id = DeviceId("stuck");
    for (DeviceInfo& info : devices) info.backend = "stubborn";
    return devices;
  }
  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    return Error{ErrorCode::not_found, "nothing to open", {}, id.text()};
  }
  Result<Telemetry> observe(const DeviceId& id) override {
    if (id.text() == "stuck" && ++asked > 1) released.wait();
    if (fails) return Error{ErrorCode::device_lost, "gone", {}, id.text()};
    Telemetry seen;
    seen.sampled_at = real_clock().now();
    seen.load.memory_bytes_free = 7;
    // Each is reported once; the second is old.
    if (++answered == 1)
      seen.load.events = {{DeviceEvent::Kind::xid, 31, seen.sampled_at},
                          {DeviceEvent::Kind::xid, 13, seen.sampled_at - 2 * inventory::events_kept_for}};
    return seen;
  }

  std::atomic<bool> fails = false;
  std::atomic<int> asked = 0;
  std::atomic<int> answered = 0;
  std::latch released{1};
};

// Never passes while a thread starts, even on a busy machine.
constexpr Duration patient = std::chrono::seconds(60);
constexpr Duration impatient = std::chrono::milliseconds(20);

TEST(TelemetryPoller, AHangingDeviceDoesNotDelayOthersAndKeepsItsLastValue) {
  const auto backend = std::make_shared<HangingBackend>();
  TelemetryPoller poller({backend}, backend->list().value());
  auto rows = poller.poll(patient);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].seen && rows[1].seen && !rows[0].error && !rows[1].error);
  const TimePoint first = rows[1].seen->sampled_at;

  rows = poller.poll(impatient);  // the second query of "stuck" hangs
  EXPECT_EQ(rows[1].seen->sampled_at, first);
  ASSERT_TRUE(rows[1].error);
  EXPECT_EQ(rows[1].error->code, ErrorCode::timeout);
  EXPECT_EQ(rows[1].error->where, "stuck");

  // It is neither queried again nor waited for.
  rows = poller.poll(patient);
  EXPECT_FALSE(rows[0].error);
  EXPECT_TRUE(rows[1].error);
  EXPECT_EQ(backend->asked, 2);
  EXPECT_GE(device::detached_threads(), 1u);
  backend->released.count_down();
}

TEST(TelemetryPoller, AnErrorIsClearedWhenTheDeviceAnswersAgain) {
  const auto backend = std::make_shared<HangingBackend>();
  backend->released.count_down();
  TelemetryPoller poller({backend}, backend->list().value());
  backend->fails = true;
  auto rows = poller.poll(patient);
  ASSERT_TRUE(rows[0].error);
  EXPECT_EQ(rows[0].error->code, ErrorCode::device_lost);
  EXPECT_FALSE(rows[0].seen);
  backend->fails = false;
  rows = poller.poll(patient);
  EXPECT_FALSE(rows[0].error);
  EXPECT_EQ(rows[0].seen->load.memory_bytes_free, 7u);
}

TEST(TelemetryPoller, AnEventIsKeptForOneMinute) {
  const auto backend = std::make_shared<HangingBackend>();
  std::vector<DeviceInfo> quick = backend->list().value();
  quick.pop_back();
  TelemetryPoller poller({backend}, quick);
  EXPECT_EQ(poller.poll(patient)[0].seen->load.events.size(), 2u);
  const auto later = poller.poll(patient)[0].seen->load.events;
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].code, 31u);
}

TEST(TelemetryPoller, APollerMayBeDestroyedBeforeTheAnswers) {
  const auto backend = std::make_shared<HangingBackend>();
  backend->asked = 1;
  {
    TelemetryPoller({backend}, backend->list().value()).poll(impatient);
  }
  backend->released.count_down();
  EXPECT_TRUE(backend->released.try_wait());
}

}  // namespace
}  // namespace berth::machine
