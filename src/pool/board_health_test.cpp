// What takes a device out of service, and what brings it back.
#include <gtest/gtest.h>

#include <thread>

#include "pool/board.hpp"
#include "pool/test_board.hpp"
#include "pool/test_device.hpp"

namespace berth::pool {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using test::make_device;
using test::on;
using test::policy;

TEST(Board, RecoveryNeverUndoesACordon) {
  BoardFixture f(3);
  ASSERT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::cordoned));
  Lease none;
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), on("d0")));
  f.board.apply_failure(0, {ErrorCode::unavailable, "busy", {}, "d0"});
  f.sample(0, 500);
  f.board.tick(f.clock.now());
  EXPECT_EQ(f.view(0).intent, Intent::cordoned);
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), on("d0")));
  ASSERT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::in_service));
  EXPECT_TRUE(f.board.acquire(policy("least_loaded"), on("d0")));
}

TEST(Board, X_F6_FailuresTakeADeviceOutAndSuccessBringsItBack) {
  HealthRules rules;
  BoardFixture f(4, 1000, rules);
  for (std::uint32_t i = 0; i < rules.suspect_after; ++i) f.take(on("d0")).settle(failure(ErrorCode::work_failed));
  EXPECT_EQ(f.view(0).health, Health::suspect);
  for (std::uint32_t i = rules.suspect_after; i < rules.quarantine_after; ++i)
    f.take(on("d0")).settle(failure(ErrorCode::work_failed));
  EXPECT_EQ(f.view(0).health, Health::quarantined);
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), on("d0")));
  EXPECT_TRUE(f.board.acquire(policy("least_loaded"), {})) << "the other devices still get work";

  f.clock.advance(rules.pause);
  Lease probe = f.take(on("d0"));  // the pause is over: one piece of work at a time
  EXPECT_EQ(f.view(0).health, Health::probation);
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), on("d0")));
  probe.settle(success);
  for (std::uint32_t i = 1; i < rules.probation_successes; ++i) {
    EXPECT_EQ(f.view(0).health, Health::probation);
    f.take(on("d0")).settle(success);
  }
  EXPECT_EQ(f.view(0).health, Health::healthy);
  // Errors that are the caller's fault never count against the device.
  for (int i = 0; i < 20; ++i) f.take(on("d0")).settle(failure(ErrorCode::invalid_argument));
  EXPECT_EQ(f.view(0).health, Health::healthy);
}

TEST(Board, AtMostHalfOfTheDevicesAreOutBecauseOfErrors) {
  BoardFixture f(4);
  for (int round = 0; round < 10; ++round)
    for (const char* id : {"d0", "d1", "d2", "d3"}) {
      Result<Lease> lease = f.board.acquire(policy("least_loaded"), on(id));
      if (lease) lease->settle(failure(ErrorCode::work_failed));
    }
  int out = 0;
  for (std::size_t slot = 0; slot < 4; ++slot) out += f.view(slot).health == Health::quarantined;
  EXPECT_EQ(out, 2);
  EXPECT_TRUE(f.board.acquire(policy("least_loaded"), {}));
}

TEST(Board, ALostDeviceIsOutAtOnceWithItsReason) {
  BoardFixture f(1);
  f.take().settle(failure(ErrorCode::device_lost));
  EXPECT_EQ(f.view(0).health, Health::lost);
  ASSERT_TRUE(f.board.entries().at(0).error);
  EXPECT_EQ(f.board.entries()[0].error->code, ErrorCode::device_lost);
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), {}));
}

TEST(Board, AReportOfTheDriverTakesADeviceOutWithItsWordsAndSuccessesBringItBack) {
  BoardFixture f(2);
  ASSERT_TRUE(f.board.set_intent(DeviceId("d1"), Intent::cordoned));
  report(f.board, 0, {DeviceEvent::Kind::xid, 48, {}});
  EXPECT_EQ(f.view(0).health, Health::quarantined);
  ASSERT_TRUE(f.board.entries()[0].error);
  EXPECT_NE(f.board.entries()[0].error->message.find("Xid 48"), std::string::npos);
  report(f.board, 1, {DeviceEvent::Kind::xid, 9999, {}});
  EXPECT_EQ(f.view(1).health, Health::suspect);
  EXPECT_EQ(f.view(1).intent, Intent::cordoned) << "the operator's intent stays";
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), {}));

  f.clock.advance(HealthRules().pause);
  f.sample(0, 1000);
  f.board.tick(f.clock.now());
  for (int i = 0; i < 2; ++i) {
    f.take(on("d0")).settle(success);
    EXPECT_EQ(f.view(0).health, Health::probation);
    EXPECT_TRUE(f.board.entries()[0].error);
  }
  f.take(on("d0")).settle(success);
  EXPECT_EQ(f.view(0).health, Health::healthy);
  EXPECT_FALSE(f.board.entries()[0].error);
}

TEST(Board, ATasksFaultReportedByTheDriverLeavesNoTrace) {
  BoardFixture f(2);
  report(f.board, 0, {DeviceEvent::Kind::xid, 31, {}});
  EXPECT_EQ(f.view(0).health, Health::healthy);
  EXPECT_FALSE(f.board.entries()[0].error);
}

TEST(Board, AWaiterSleepsWhileTheDriverWantsTheOnlyDeviceReset) {
  BoardFixture f(2);
  ASSERT_TRUE(f.board.set_intent(DeviceId("d1"), Intent::cordoned));
  const DeviceEvent reset{DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(RecoveryAction::reset), {}};
  report(f.board, 0, reset);
  f.clock.advance(1h);
  f.board.tick(f.clock.now());
  EXPECT_EQ(f.view(0).health, Health::quarantined);
  Result<Lease> lease = Lease();
  std::thread waiter([&] { lease = f.board.acquire(policy("least_loaded"), {}, Deadline::never()); });
  EXPECT_TRUE(eventually([&] { return f.board.waiting() == 1; }));
  report(f.board, 0, {DeviceEvent::Kind::recovery_action, 0, {}});
  f.clock.advance(HealthRules().pause);
  f.sample(0, 1000);
  f.board.tick(f.clock.now());
  waiter.join();
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->id().text(), "d0");
  lease->release();
}

TEST(Board, ADomainNeedsRecoveryAsLongAsOneOfItsPartsReportsIt) {
  BoardFixture f(1);  // another fault domain, so that one may be out
  for (const std::string id : {"p1", "p2", "p3"}) {
    const auto part = make_device(id);
    part->describe().fault_domain = "gpu";
    ASSERT_TRUE(f.board.join(part));
  }
  const auto action = [&](std::size_t slot, RecoveryAction what) {
    report(f.board, slot, {DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(what), {}});
  };
  const auto health_after_pause = [&] {
    f.clock.advance(HealthRules().pause);
    f.board.tick(f.clock.now());
    return f.view_of(DeviceId("p3")).health;
  };
  action(1, RecoveryAction::reset);
  action(2, RecoveryAction::reset);
  EXPECT_EQ(health_after_pause(), Health::quarantined);
  action(1, RecoveryAction::none);
  EXPECT_EQ(health_after_pause(), Health::quarantined) << "p2 still reports it";
  EXPECT_TRUE(f.board.leave(DeviceId("p1")));
  EXPECT_EQ(health_after_pause(), Health::quarantined) << "p2 still reports it";
  EXPECT_TRUE(f.board.leave(DeviceId("p2")));
  EXPECT_EQ(f.view_of(DeviceId("p3")).health, Health::quarantined) << "for the usual pause";
  EXPECT_EQ(health_after_pause(), Health::probation) << "no part in the pool reports it";
}

}  // namespace
}  // namespace berth::pool
