#include "pool/board.hpp"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "pool/test_board.hpp"
#include "pool/test_device.hpp"

namespace berth::pool {
namespace {

using namespace std::chrono_literals;
using test::bytes;
using test::make_device;
using test::on;
using test::policy;

TEST(Board, S0_2_LoadIsPlainDataThatCanBeCopied) {
  static_assert(std::is_trivially_copyable_v<DeviceView>);
  static_assert(std::is_copy_constructible_v<LoadSample>);
  BoardFixture f(1);
  LoadSample sample;
  sample.memory_bytes_free = 7;
  sample.active_streams = 3;
  sample.queue_depth = 5;
  ASSERT_TRUE(f.board.apply_sample(0, 99, sample, f.clock.now()));
  const DeviceView copy = f.view(0);
  EXPECT_EQ(*copy.memory_bytes_free, 7U);
  EXPECT_EQ(*copy.active_streams, 3U);
  EXPECT_EQ(*copy.queue_depth, 5U);
  EXPECT_EQ(copy.info->memory_bytes_total, 1000U);
  EXPECT_EQ(copy.info->capability, (Capability{8, 0}));
}

TEST(Board, S0_16_BeforeTheFirstSampleLoadIsUnknownAndNotZero) {
  // The reference starts with zeros, which look ideal (S0-F2); ours says unknown.
  Board board;
  ASSERT_TRUE(board.join(make_device("a")));
  const DeviceView view = board.entries().at(0).view;
  EXPECT_EQ(view.sample, SampleState::unknown);
  EXPECT_FALSE(view.memory_bytes_free);
  EXPECT_FALSE(view.active_streams);
  EXPECT_FALSE(view.queue_depth);
  EXPECT_FALSE(view.memory_bytes_available());
}

TEST(Board, S0_19_AnUpdateReplacesTheSampleOfItsDeviceOnlyAndAnUnknownSlotIsIgnored) {
  BoardFixture f(2);
  f.sample(0, 10);
  f.sample(1, 30);
  f.sample(0, 20);
  EXPECT_EQ(*f.view(0).memory_bytes_free, 20U);
  EXPECT_EQ(*f.view(1).memory_bytes_free, 30U);
  EXPECT_FALSE(f.board.apply_sample(2, 100, {}, f.clock.now()));
  EXPECT_FALSE(f.board.apply_sample(99999, 100, {}, f.clock.now()));
  EXPECT_EQ(*f.view(0).memory_bytes_free, 20U);
  EXPECT_EQ(*f.view(1).memory_bytes_free, 30U);
}

TEST(Board, S0_F9_OlderAnswersAreDropped) {
  BoardFixture f(1);
  LoadSample newer, older;
  newer.memory_bytes_free = 20;
  older.memory_bytes_free = 10;
  EXPECT_TRUE(f.board.apply_sample(0, 12, newer, f.clock.now()));
  EXPECT_FALSE(f.board.apply_sample(0, 11, older, f.clock.now()));
  EXPECT_FALSE(f.board.apply_sample(0, 12, older, f.clock.now()));
  EXPECT_EQ(*f.view(0).memory_bytes_free, 20U);
  f.board.give_up_poll(0, 13);
  EXPECT_FALSE(f.board.apply_sample(0, 13, older, f.clock.now())) << "the poll was given up, so its answer is ignored";
}

TEST(Board, S0_21_NobodyEligibleIsAnAnswerAlsoWithoutDevices) {
  Board empty;
  const Result<Lease> none = empty.acquire(policy("least_loaded"), {});
  ASSERT_FALSE(none);
  // The reference calls it unrecoverable; ours can be waited for (S0-F12).
  EXPECT_EQ(none.error().code, ErrorCode::no_eligible_device);
  EXPECT_EQ(none.error().reaction(), Reaction::wait);
  EXPECT_FALSE(none.error().message.empty());
}

TEST(Board, S0_24_BeforeTheFirstSampleOnlyRequestsForBytesAreRefused) {
  Board board;
  ASSERT_TRUE(board.join(make_device("a")));
  ASSERT_TRUE(board.join(make_device("b")));
  {
    const Result<Lease> any = board.acquire(policy("least_loaded"), {});
    ASSERT_TRUE(any);
    EXPECT_EQ(any->id().text(), "a");
  }
  // Capability is known at once: the reference refuses it before the first poll, ours does not.
  Requirements capable;
  capable.capability_min = Capability{8, 0};
  EXPECT_TRUE(board.acquire(policy("least_loaded"), capable));
  const Result<Lease> some = board.acquire(policy("least_loaded"), bytes(1));
  ASSERT_FALSE(some);
  EXPECT_EQ(some.error().code, ErrorCode::no_eligible_device);
  EXPECT_NE(some.error().message.find("memory"), std::string::npos) << some.error().message;
}

TEST(Board, S0_25_ConcurrentPicksBehaveAsIfOneAfterTheOther) {
  BoardFixture f(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) f.take({}, "round_robin").settle(success);
    });
  for (std::thread& thread : threads) thread.join();
  // Every pick drew one ticket of its own: exact shares.
  for (const DeviceStatistics& device : f.board.statistics().devices) EXPECT_EQ(device.completed, 500U);
}

TEST(Board, S0_26_APickReservesWhatItWasGranted) {
  // In the reference a pick changes nothing, so picks pile up (S0-F4).
  BoardFixture f(1);
  {
    const Lease lease = f.take(bytes(300));
    EXPECT_EQ(f.view(0).memory_bytes_promised, 300U);
    EXPECT_EQ(*f.view(0).memory_bytes_available(), 700U);
    EXPECT_EQ(f.view(0).in_flight, 1U);
  }
  EXPECT_EQ(f.view(0).memory_bytes_promised, 0U);
  EXPECT_EQ(f.view(0).in_flight, 0U);
}

TEST(Board, ATurnIsAmongThoseWithRoomAsSoonAsSomebodyHasNone) {
  BoardFixture f(3, 100);
  const Lease first = f.take(bytes(60), "round_robin");
  EXPECT_EQ(first.id().text(), "d0");
  // The second turn of two: d0 has 40 left.
  EXPECT_EQ(f.take(bytes(50), "round_robin").id().text(), "d2");
}

TEST(Board, SpeedsCountAsSoonAsAllWithRoomHaveOne) {
  BoardFixture f(3, 100);
  f.take(on("d0")).settle({{}, 1000us});
  f.take(on("d1")).settle({{}, 1us});
  Requirements on_the_last = on("d2");
  on_the_last.memory_bytes_min = 60;
  const Lease lease = f.take(on_the_last);
  EXPECT_EQ(f.take(bytes(50)).id().text(), "d1");
}

TEST(Board, S0_F4_PicksBetweenTwoSamplesDoNotHerd) {
  BoardFixture f(4);
  std::vector<Lease> leases;
  for (int i = 0; i < 8; ++i) leases.push_back(f.take());
  for (std::size_t slot = 0; slot < 4; ++slot) EXPECT_EQ(f.view(slot).in_flight, 2U);
}

TEST(Board, S0_F11_TheSameIdTwiceIsRefused) {
  BoardFixture f(2);
  const Result<std::size_t> again = f.board.join(make_device("d1"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::already_exists);
  EXPECT_EQ(again.error().where, "d1");
}

TEST(Board, S0_F16_AChargeThatLosesTheRaceDecidesAgain) {
  BoardFixture f(2);
  // Another request takes d0 while this decision is being made.
  int calls = 0;
  Lease intruder;
  Policy slow = policy("least_loaded");
  slow.choose = [&](const Candidates& all) {
    if (calls++ == 0) intruder = f.take(on("d0"));
    return policy("least_loaded").choose(all);
  };
  const Result<Lease> lease = f.board.acquire(slow, {});
  ASSERT_TRUE(lease);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(intruder.id().text(), "d0");
  EXPECT_EQ(lease->id().text(), "d1") << "the second look saw the intruder's charge";
}

TEST(Board, BytesThatVanishDuringTheDecisionAreNotPromised) {
  BoardFixture f(2, 100);
  bool first = true;
  Policy slow = policy("least_loaded");
  slow.choose = [&](const Candidates&) {
    if (std::exchange(first, false)) f.sample(0, 10);
    return std::size_t{0};
  };
  const Result<Lease> lease = f.board.acquire(slow, bytes(50));
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->id().text(), "d1");
  EXPECT_EQ(f.view(0).memory_bytes_promised, 0U);
}

TEST(Board, ADeviceThatHoldsAllThatCanBeCountedIsAFullQueue) {
  BoardFixture f(1);
  std::vector<Lease> leases;
  for (std::uint64_t i = 0; i < detail::Columns::in_flight_max; ++i) leases.push_back(f.take());
  EXPECT_EQ(f.board.acquire(policy("least_loaded"), {}).error().code, ErrorCode::queue_full);
  EXPECT_EQ(f.board.acquire_group(policy("least_loaded"), {}, 1).error().code, ErrorCode::queue_full);
  leases.pop_back();
  EXPECT_TRUE(f.board.acquire(policy("least_loaded"), {}));
}

TEST(Board, AChargeLostAgainAndAgainIsDecidedUnderTheLock) {
  BoardFixture f(1);
  int calls = 0;
  std::vector<Lease> intruders;
  Policy unlucky = policy("least_loaded");
  unlucky.choose = [&](const Candidates&) {
    // Sixteen races are lost; then the board decides under its lock and no other request gets in.
    if (calls++ < 16) intruders.push_back(f.take());
    return std::size_t{0};
  };
  ASSERT_TRUE(f.board.acquire(unlucky, {}));
  EXPECT_EQ(calls, 17);
  EXPECT_EQ(f.board.statistics().total().in_flight, 16U);
}

TEST(Board, S0_F17_AGroupIsAllOrNothingOnDifferentDevices) {
  BoardFixture f(3, 100);
  Result<std::vector<Lease>> group = f.board.acquire_group(policy("least_loaded"), bytes(60), 3);
  ASSERT_TRUE(group);
  std::set<DeviceId> ids;
  for (const Lease& lease : *group) ids.insert(lease.id());
  EXPECT_EQ(ids.size(), 3U);
  group->pop_back();
  // One device has room: a group of two gets nothing, and charges nothing.
  const Statistics before = f.board.statistics();
  const Result<std::vector<Lease>> second = f.board.acquire_group(policy("least_loaded"), bytes(60), 2);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::no_eligible_device);
  EXPECT_NE(second.error().message.find("only 1 of the 2"), std::string::npos) << second.error().message;
  EXPECT_EQ(f.board.statistics().version, before.version);
  EXPECT_FALSE(f.board.acquire_group(policy("least_loaded"), {}, 0));
  EXPECT_FALSE(f.board.acquire_group(policy("least_loaded"), {}, 4));
}

TEST(Board, GroupsThatCompeteDoNotDeadlockAndLeaveNothingBehind) {
  BoardFixture f(3, 100);
  std::atomic<int> granted = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const auto group = f.board.acquire_group(policy("least_loaded"), bytes(60), 2);
        if (!group) continue;
        EXPECT_NE(group->at(0).id(), group->at(1).id());
        ++granted;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(granted, 0);
  for (std::size_t slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(f.view(slot).memory_bytes_promised, 0U);
    EXPECT_EQ(f.view(slot).in_flight, 0U);
  }
}

TEST(Board, MoreDevicesThanFitOnTheStackAreChosenFromToo) {
  Board board;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(board.join(make_device("d" + std::to_string(1000 + i))));
  std::vector<Lease> leases;
  std::set<std::string> ids;
  for (int i = 0; i < 200; ++i) {
    leases.push_back(*board.acquire(policy("least_loaded"), {}));
    ids.insert(leases.back().id().text());
  }
  EXPECT_EQ(ids.size(), 200U);
}

}  // namespace
}  // namespace berth::pool
