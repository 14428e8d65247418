#include "pool/poller.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "berth/fake_clock.hpp"
#include "pool/test_device.hpp"

namespace berth::pool {
namespace {

using namespace std::chrono_literals;
using test::bytes;
using test::eventually;
using test::make_device;
using test::on;
using test::TestDevice;

// A pool that polls on its own, on virtual time that only the test moves.
struct Polled {
  explicit Polled(std::vector<std::shared_ptr<TestDevice>> given, Duration period = 250ms) : devices(std::move(given)) {
    PoolOptions options;
    options.clock = &clock;
    options.poll_period = period;
    Result<Pool> opened = Pool::open({devices.begin(), devices.end()}, options);
    EXPECT_TRUE(opened);
    pool = std::move(*opened);
  }
  // Releases stuck devices, so that no thread is left at the end of the test.
  ~Polled() {
    for (const auto& device : devices) device->let_go();
  }
  DeviceStatus status(std::size_t i) const { return pool->status().at(i); }
  // Whether a sample of the current time has arrived.
  bool is_current(std::size_t i) const { return status(i).age == Duration(0); }
  // Advances the time and waits for the answers of the devices in `answering`.
  void pass(Duration duration, std::vector<std::size_t> answering) {
    clock.advance(duration);
    for (const std::size_t i : answering) EXPECT_TRUE(eventually([&] { return is_current(i); }));
  }

  FakeClock clock{FakeClock::Sleepers::block};
  std::vector<std::shared_ptr<TestDevice>> devices;
  std::optional<Pool> pool;
};

TEST(Poller, S0_17_TheFirstPollRunsAtOnce) {
  // The reference waits one period first; ours does not (S0-F2).
  Polled p({make_device("x"), make_device("y")});
  EXPECT_TRUE(eventually([&] { return p.is_current(0) && p.is_current(1); }));
  EXPECT_EQ(p.clock.now(), TimePoint{});
}

TEST(Poller, S0_F2_UnknownAndFreshAreToldApartAndReadyTellsWhen) {
  auto slow = make_device("slow");
  slow->hold();
  Polled p({make_device("quick"), slow});
  EXPECT_TRUE(eventually([&] { return p.is_current(0); }));
  EXPECT_EQ(p.status(0).view.sample, SampleState::fresh);
  EXPECT_EQ(p.status(1).view.sample, SampleState::unknown);
  EXPECT_FALSE(p.status(1).age);
  EXPECT_FALSE(p.pool->ready());
  EXPECT_FALSE(p.pool->wait_ready(Deadline{p.clock.now()}));
  slow->let_go();
  EXPECT_TRUE(p.pool->wait_ready(Deadline::never()));
  EXPECT_TRUE(p.pool->ready());
  EXPECT_TRUE(p.status(1).age);
}

TEST(Poller, S0_18_EveryPeriodAsksEveryDeviceWithoutWaitingForTheSlowest) {
  auto stuck = make_device("stuck", 30), x = make_device("x", 10), y = make_device("y", 20);
  Polled p({stuck, x, y});
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  stuck->hold();
  y->fail({ErrorCode::unavailable, "busy", {}, "y"});
  int periods = 0;
  // A device is not asked again while its last answer is outstanding.
  for (; periods < 3 || (y->questions() < 4 && periods < 100); ++periods) p.pass(250ms, {1});
  EXPECT_EQ(x->questions(), periods + 1);
  EXPECT_GE(y->questions(), 4);
  for (const std::size_t silent : {0, 2}) {
    EXPECT_EQ(*p.status(silent).view.memory_bytes_free, silent == 0 ? 30U : 20U) << "the last answer stays";
    EXPECT_EQ(*p.status(silent).age, periods * 250ms);
  }
}

TEST(Poller, S0_F3_ASilentDeviceGetsNoNewWorkAndIsProbedBackIn) {
  auto silent = make_device("a");
  Polled p({silent, make_device("b")});
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  EXPECT_EQ(p.pool->acquire()->id().text(), "a");
  silent->hold();
  for (int i = 0; i < 9; ++i) p.pass(250ms, {1});
  EXPECT_TRUE(eventually([&] { return p.status(0).view.sample == SampleState::stale; }));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(p.pool->acquire()->id().text(), "b");
  EXPECT_FALSE(p.pool->acquire(on("a")));
  EXPECT_GT(*p.status(0).age, 2s);

  silent->let_go();
  EXPECT_TRUE(eventually([&] {
    p.clock.advance(250ms);
    return p.status(0).view.sample == SampleState::fresh;
  }));
  EXPECT_TRUE(p.pool->acquire(on("a")));
}

TEST(Poller, ADeviceThatNeverAnswersGetsNoWorkAfterAWhile) {
  auto dead = make_device("a");
  dead->hold();
  Polled p({dead, make_device("b")});
  EXPECT_TRUE(eventually([&] { return p.is_current(1); }));
  EXPECT_TRUE(p.pool->acquire(on("a"))) << "the request needs no bytes, and a is not silent for long";
  for (int i = 0; i < 9; ++i) p.pass(250ms, {1});
  EXPECT_TRUE(eventually([&] { return p.status(0).view.sample == SampleState::stale; }));
  EXPECT_TRUE(p.pool->ready()) << "giving up on a device counts as an answer";
  EXPECT_FALSE(p.pool->acquire(on("a")));
}

TEST(Poller, S0_F6_ThePeriodIsAnOption) {
  auto x = make_device("x"), often = make_device("often");
  Polled p({x}, 10s);
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  // A second pool on the same clock shows that the time has passed for pollers too.
  PoolOptions options;
  options.clock = &p.clock;
  options.poll_period = 1s;
  const auto second = Pool::open({often}, options);
  ASSERT_TRUE(second);
  for (int asked = 1; asked < 10; ++asked) {
    EXPECT_TRUE(eventually([&] { return often->questions() == asked; }));
    p.clock.advance(1s);
  }
  EXPECT_TRUE(eventually([&] { return often->questions() == 10; }));
  EXPECT_EQ(x->questions(), 1);
  p.pass(1s, {0});
  EXPECT_EQ(x->questions(), 2);
}

TEST(Poller, S0_F6_ADeviceOnWhichWorkFailedIsAskedAtOnce) {
  auto x = make_device("x"), y = make_device("y");
  Polled p({x, y}, 1h);
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  LoadSample sample;
  sample.events = {{DeviceEvent::Kind::xid, 95, {}}};
  x->answer_next(sample);
  p.pool->acquire(on("x"))->settle({ErrorCode::invalid_argument, {}});
  p.pool->acquire(on("x"))->settle({});
  EXPECT_EQ(x->questions(), 1) << "neither success nor a caller's mistake causes a poll";
  p.pool->acquire(on("x"))->settle({ErrorCode::work_failed, {}});
  EXPECT_TRUE(eventually([&] { return p.status(0).view.health == Health::quarantined; }))
      << "one failure would not have been enough, and the next poll is an hour away";
  EXPECT_EQ(p.clock.now(), TimePoint{});
  EXPECT_EQ(x->questions(), 2);
  EXPECT_EQ(y->questions(), 1);
}

TEST(Poller, S0_F6_NewsDuringAQuestionAreAskedForAfterIt) {
  auto x = make_device("x");
  Polled p({x, make_device("y")}, 1h);
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  x->hold();
  for (int i = 0; i < 3; ++i) p.pool->acquire(on("x"))->settle({ErrorCode::work_failed, {}});
  EXPECT_TRUE(eventually([&] { return x->questions() == 2; }));
  p.pool->acquire(on("x"))->settle({ErrorCode::work_failed, {}});
  EXPECT_EQ(x->most_at_once(), 1);
  LoadSample sample;
  x->answer_next(sample);
  sample.memory_bytes_free = 77;
  x->answer(sample);
  x->let_go();
  EXPECT_TRUE(eventually([&] { return p.status(0).view.memory_bytes_free == OptionalU64(77); }));
  EXPECT_EQ(x->questions(), 3);
}

TEST(Poller, S0_F7_ExtraPollsDoNotMultiplyTheTimer) {
  auto x = make_device("x");
  Polled p({x});
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  for (int i = 0; i < 10; ++i) p.pool->poll_now();
  const int before = x->questions();
  for (int i = 0; i < 3; ++i) p.pass(250ms, {0});
  p.pool.reset();
  EXPECT_EQ(x->questions(), before + 3);
}

TEST(Poller, S0_F8_AStuckDeviceHasOneQuestionOutstandingAndHoldsUpNobody) {
  auto stuck = make_device("stuck");
  auto other = make_device("other");
  Polled p({stuck, other});
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  stuck->hold();
  const int before = other->questions();
  for (int i = 0; i < 20; ++i) p.pass(250ms, {1});
  EXPECT_EQ(other->questions(), before + 20);
  ASSERT_EQ(stuck->questions(), 2) << "the first question, and the one that is stuck";
  ASSERT_EQ(stuck->most_at_once(), 1);
  p.pool->poll_now();  // ends, although the device does not
  EXPECT_EQ(stuck->most_at_once(), 1);
}

TEST(Poller, AnAnswerAfterTheDeadlineIsDropped) {
  auto x = make_device("x", 10);
  Polled p({x}, 1h);
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  LoadSample late;
  late.memory_bytes_free = 99;
  x->answer_next(late);
  x->answer_next(Error{ErrorCode::unavailable, "busy", {}, "x"});
  x->hold();
  std::thread poll([&] { p.pool->poll_now(); });
  EXPECT_TRUE(eventually([&] { return x->questions() == 2; }));
  p.clock.advance(1s);  // the deadline of that question
  poll.join();
  x->let_go();
  EXPECT_TRUE(eventually([&] {
    p.pool->poll_now();
    return x->questions() > 2;
  }));
  EXPECT_EQ(*p.status(0).view.memory_bytes_free, 10U);
  EXPECT_EQ(*p.status(0).age, 1s);
}

TEST(Poller, AFirstPollThatIsStuckIsGivenUpAtTheDeadline) {
  auto stuck = make_device("stuck");
  stuck->hold();
  Polled p({stuck}, 1h);
  EXPECT_TRUE(eventually([&] { return stuck->questions() == 1; }));
  p.clock.advance(999ms);
  EXPECT_FALSE(p.pool->wait_ready(Deadline{p.clock.now()}));
  p.clock.advance(1ms);
  EXPECT_TRUE(p.pool->wait_ready(Deadline::never()));
}

TEST(Poller, ADeviceThatSaysItIsGoneIsLost) {
  auto x = make_device("x");
  Polled p({x, make_device("y")});
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  x->fail({ErrorCode::device_lost, "the device fell off the bus", {}, "x", DriverError{79, "Xid"}});
  p.clock.advance(250ms);
  EXPECT_TRUE(eventually([&] { return p.status(0).view.health == Health::lost; }));
  EXPECT_EQ(p.status(0).error->message, "the device fell off the bus");
  EXPECT_EQ(p.pool->acquire()->id().text(), "y");
}

TEST(Poller, AnXidTakesTheDeviceOutOfServiceWithinOnePoll) {
  auto x = make_device("x");
  Polled p({x, make_device("y")});
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  LoadSample sample;
  sample.memory_bytes_free = 1000;
  sample.events = {{DeviceEvent::Kind::xid, 95, {}}};
  x->answer_next(sample);
  p.pass(250ms, {0, 1});
  EXPECT_EQ(p.status(0).view.health, Health::quarantined);
  ASSERT_TRUE(p.status(0).error);
  EXPECT_NE(p.status(0).error->message.find("Xid 95"), std::string::npos);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(p.pool->acquire()->id().text(), "y");
}

TEST(Poller, WhatTheDriverReportedCountsAlsoInALateAnswer) {
  auto x = make_device("x", 10);
  Polled p({x, make_device("y")}, 1h);
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  LoadSample late;
  late.memory_bytes_free = 99;
  late.events = {{DeviceEvent::Kind::xid, 95, {}}};
  x->answer_next(late);
  x->hold();
  std::thread poll([&] { p.pool->poll_now(); });
  EXPECT_TRUE(eventually([&] { return x->questions() == 2; }));
  p.clock.advance(1s);  // the deadline of that question
  poll.join();
  EXPECT_EQ(p.status(0).view.health, Health::healthy);
  x->let_go();
  EXPECT_TRUE(eventually([&] { return p.status(0).view.health == Health::quarantined; }));
  EXPECT_EQ(*p.status(0).view.memory_bytes_free, 10U);
}

TEST(Poller, ADeviceThatJoinsIsAskedAtOnceAlsoWhenItWasHereBefore) {
  auto late = make_device("late", 500);
  Polled p({make_device("x")}, 1h);
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(p.pool->join(late));
    Requirements requirements = on("late");
    requirements.memory_bytes_min = 400;
    EXPECT_TRUE(p.pool->acquire(requirements)) << "waits for the first answer";
    ASSERT_TRUE(p.pool->leave(late->id()));
  }
  EXPECT_EQ(late->questions(), 2);
}

TEST(Poller, AnAcquireBeforeTheFirstAnswerWaitsForIt) {
  auto slow = make_device("slow", 100);
  slow->hold();
  Polled p({slow});
  std::atomic<bool> has_declined = false;
  Policy needs_a_sample;
  needs_a_sample.choose = [&](const Candidates& all) -> std::size_t {
    if (all[0].memory_bytes_available()) return 0;
    has_declined = true;
    return Policy::declined;
  };
  Result<Lease> lease = Lease();
  std::thread caller([&] { lease = p.pool->acquire({}, needs_a_sample); });
  EXPECT_TRUE(eventually([&] { return has_declined.load(); })) << "the first answer must come after the first choice";
  slow->let_go();
  caller.join();
  ASSERT_TRUE(lease);
  lease->release();
}

TEST(Poller, AStuckDeviceDoesNotHoldUpTheEndOfThePool) {
  auto stuck = make_device("stuck");
  std::weak_ptr<TestDevice> watch = stuck;
  stuck->hold();
  PoolOptions options;
  options.poll_deadline = 1ms;
  {
    const auto pool = Pool::open({stuck}, options);
    ASSERT_TRUE(pool);
    EXPECT_TRUE(eventually([&] { return stuck->questions() == 1; }));
  }
  stuck->let_go();  // the thread left behind ends, and with it the last use of the device
  stuck.reset();
  EXPECT_TRUE(eventually([&] { return watch.expired(); }));
}

TEST(Poller, ARejoinedDeviceIsNotConfusedWithTheStuckOneBefore) {
  auto old = make_device("x", 10);
  Polled p({old}, 1h);
  ASSERT_TRUE(p.pool->wait_ready(Deadline::never()));
  old->hold();
  std::thread poll([&] { p.pool->poll_now(); });
  EXPECT_TRUE(eventually([&] { return old->questions() == 2; }));
  ASSERT_TRUE(p.pool->leave(DeviceId("x")));
  auto fresh = make_device("x", 20);
  ASSERT_TRUE(p.pool->join(fresh));
  EXPECT_TRUE(eventually([&] { return p.status(0).view.memory_bytes_free == OptionalU64(20); }));
  old->answer_free(10);
  old->let_go();
  poll.join();
  EXPECT_TRUE(p.pool->wait_ready(Deadline::never()));
  EXPECT_EQ(*p.status(0).view.memory_bytes_free, 20U);
}

}  // namespace
}  // namespace berth::pool
