// Devices that join and leave a board.
#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <thread>

#include "pool/board.hpp"
#include "pool/test_board.hpp"
#include "pool/test_device.hpp"

namespace berth::pool {
namespace {

using test::make_device;
using test::on;
using test::policy;

TEST(Board, ACandidateHasTheSlotOfItsDeviceAlsoWhereOneIsPreferred) {
  BoardFixture f(3);
  Policy recording = policy("least_loaded");
  std::set<std::pair<std::string, std::size_t>> seen;
  recording.choose = [&](const Candidates& all) {
    for (std::size_t i = 0; i < all.size(); ++i) seen.insert({all[i].info().id.text(), all[i].slot()});
    return std::size_t{0};
  };
  Requirements preferring;
  preferring.prefer = {DeviceId("d2")};
  EXPECT_TRUE(f.board.acquire(recording, preferring));
  EXPECT_TRUE(f.board.acquire(recording, {}));
  EXPECT_EQ(seen, (std::set<std::pair<std::string, std::size_t>>{{"d0", 0}, {"d1", 1}, {"d2", 2}}));
}

TEST(Board, ADeviceThatLeavesWhileItsLastLeaseEndsIsFreed) {
  Board board;
  std::atomic<int> round = 0, released = 0;
  Lease lease;
  // Each thread runs on its own core and spins for a while before it yields, so that both run at
  // the same time.
  const auto run_on_core = [](int number) {
    cpu_set_t all, single;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&single);
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &all) && number-- == 0) CPU_SET(core, &single);
    sched_setaffinity(0, sizeof single, &single);  // fails, and changes nothing, where there is one core
  };
  const auto await = [](const std::atomic<int>& value, int expected) {
    for (int spins = 0; value < expected; ++spins)
      if (spins > 10'000) std::this_thread::yield();
  };
  constexpr int rounds = 5000, steps_max = 500;
  std::thread releases([&] {
    run_on_core(0);
    for (int i = 1; i <= rounds; ++i) {
      await(round, i);
      // Releases a little later in every round, until it happens after the device has left.
      for (int step = 0; step < i % steps_max; ++step) std::atomic_signal_fence(std::memory_order_seq_cst);
      lease.release();
      released = i;
    }
  });
  std::thread leaves([&] {
    run_on_core(1);
    for (int i = 1; i <= rounds; ++i) {
      auto device = make_device("d");
      const std::weak_ptr<Device> alive = device;
      EXPECT_TRUE(board.join(std::move(device)));
      lease = board.try_acquire(policy("least_loaded"), {});
      round = i;
      EXPECT_TRUE(board.leave(DeviceId("d")));
      await(released, i);
      EXPECT_TRUE(alive.expired()) << "round " << i;
    }
  });
  releases.join();
  leaves.join();
}

TEST(Board, LimitsHoldWhileADeviceIsReplacedByAnotherOfItsName) {
  Board board;
  const auto labelled = [](const char* color) {
    auto device = make_device("d");
    device->describe().labels = {{"color", color}};
    return device;
  };
  ASSERT_TRUE(board.join(labelled("red")));
  bool first = true;
  Policy slow = policy("least_loaded");
  slow.choose = [&](const Candidates&) {
    if (std::exchange(first, false)) {
      EXPECT_TRUE(board.leave(DeviceId("d")));
      EXPECT_TRUE(board.join(labelled("blue")));
    }
    return std::size_t{0};
  };
  Requirements red;
  red.labels = {{"color", "red"}};
  EXPECT_FALSE(board.try_acquire(slow, red)) << "it was chosen by the labels of the earlier device";
  EXPECT_FALSE(first);
  EXPECT_EQ(board.statistics().total().in_flight, 0U);
}

TEST(Board, S0_F14_DevicesJoinAndLeaveWhileLeasesAreOut) {
  BoardFixture f(2);
  auto old = make_device("d2");
  std::weak_ptr<test::TestDevice> watch = old;
  ASSERT_TRUE(f.board.join(old));
  old.reset();
  Lease held = f.take(on("d2"));
  ASSERT_TRUE(f.board.leave(DeviceId("d2")));
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), on("d2"))) << "no new work after it left";
  EXPECT_EQ(f.board.leave(DeviceId("d2")).error().code, ErrorCode::not_found);
  EXPECT_EQ(held.device().id().text(), "d2") << "its lease stays valid";
  EXPECT_FALSE(watch.expired());

  // The same id again gets its slot and statistics back, and a new device.
  auto fresh = make_device("d2");
  ASSERT_EQ(*f.board.join(fresh), 2U);
  Lease second = f.take(on("d2"));
  EXPECT_EQ(&second.device(), fresh.get());
  EXPECT_NE(&held.device(), fresh.get());
  second.settle(success);
  // The loss of the old device does not affect the new one.
  held.settle(failure(ErrorCode::device_lost));
  EXPECT_EQ(f.view(2).health, Health::healthy);
  EXPECT_TRUE(watch.expired()) << "the old device is freed with its last lease";
  EXPECT_EQ(f.board.statistics().devices.at(2).dispatched, 2U);
}

TEST(Board, ADeviceThatLeftIsStillInTheStatisticsIfItEverWorked) {
  BoardFixture f(2);
  f.take(on("d1")).settle(success);
  ASSERT_TRUE(f.board.leave(DeviceId("d0")));
  ASSERT_TRUE(f.board.leave(DeviceId("d1")));
  const Statistics statistics = f.board.statistics();
  ASSERT_EQ(statistics.devices.size(), 1U);
  EXPECT_EQ(statistics.devices[0].device.text(), "d1");
  EXPECT_TRUE(f.board.entries().empty());
}

TEST(Board, IdOrderDoesNotDependOnTheOrderOfJoining) {
  Board board;
  for (const char* id : {"c", "a", "b"}) ASSERT_TRUE(board.join(make_device(id)));
  const auto entries = board.entries();
  EXPECT_EQ(entries[0].view.id_order, 2U);
  EXPECT_EQ(entries[1].view.id_order, 0U);
  EXPECT_EQ(entries[2].view.id_order, 1U);
}

TEST(Board, AFullBoardRefusesOneMoreDeviceButNotAnOldOne) {
  PoolOptions options;
  options.capacity = 2;
  Board board(options);
  ASSERT_TRUE(board.join(make_device("a")));
  ASSERT_TRUE(board.join(make_device("b")));
  EXPECT_EQ(board.join(make_device("c")).error().code, ErrorCode::unavailable);
  ASSERT_TRUE(board.leave(DeviceId("a")));
  EXPECT_TRUE(board.join(make_device("a")));
}

TEST(Board, WhoeverEntersServiceStartsLevelWithTheOthers) {
  BoardFixture f(2);
  for (int i = 0; i < 100; ++i) f.take({}, "weighted_capacity").settle(success);
  ASSERT_TRUE(f.board.join(make_device("d2")));
  int late = 0;
  for (int i = 0; i < 30; ++i) late += f.take({}, "weighted_capacity").id().text() == "d2";
  EXPECT_EQ(late, 10) << "a third from now on, without credit for the time before";
  EXPECT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::cordoned));
  for (int i = 0; i < 40; ++i) f.take({}, "weighted_capacity").settle(success);
  EXPECT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::in_service));
  int back = 0;
  for (int i = 0; i < 30; ++i) back += f.take({}, "weighted_capacity").id().text() == "d0";
  EXPECT_EQ(back, 10);
}

TEST(Board, NothingIsChargedToADeviceThatLeftDuringTheDecision) {
  BoardFixture f(2);
  for (const bool cordon : {true, false}) {
    bool first = true;
    Policy slow = policy("least_loaded");
    slow.choose = [&](const Candidates& all) {
      if (std::exchange(first, false)) {
        EXPECT_TRUE(cordon ? f.board.set_intent(DeviceId("d0"), Intent::draining) : f.board.leave(DeviceId("d0")));
        return std::size_t{0};
      }
      return policy("least_loaded").choose(all);
    };
    const Result<Lease> lease = f.board.acquire(slow, {});
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->id().text(), "d1");
    EXPECT_EQ(f.board.set_intent(DeviceId("d0"), Intent::in_service).has_value(), cordon);
  }
}

TEST(BoardDeathTest, DestroyingTheBoardWithALeaseOutStopsTheProgram) {
  EXPECT_DEATH(
      {
        Lease lease;
        Board board;
        static_cast<void>(board.join(make_device("a")));
        lease = std::move(*board.acquire(policy("least_loaded"), {}));
      },
      "every_lease_is_back");
}

}  // namespace
}  // namespace berth::pool
