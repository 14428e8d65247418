// Requests that wait for a device, and the order in which they are served.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "pool/board.hpp"
#include "pool/test_board.hpp"
#include "pool/test_device.hpp"

namespace berth::pool {
namespace {

using namespace std::chrono_literals;
using test::bytes;
using test::eventually;
using test::make_device;
using test::on;
using test::policy;

TEST(Board, X_F4_WaitingEndsAtTheDeadlineOfTheClockGiven) {
  BoardFixture f(1, 100);
  const Lease all = f.take(bytes(100));
  Result<Lease> late = Lease();
  std::thread waiter([&] { late = f.board.acquire(policy("least_loaded"), bytes(10), Deadline::after(f.clock, 5s)); });
  EXPECT_TRUE(eventually([&] { return f.board.waiting() == 1; }));
  f.clock.advance(4s);
  EXPECT_EQ(f.board.waiting(), 1U);
  f.clock.advance(1s);
  waiter.join();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::timeout);
  EXPECT_NE(late.error().message.find("d0"), std::string::npos) << late.error().message;
  EXPECT_EQ(f.board.waiting(), 0U);
  // A lease that is held does not expire, however late it is.
  f.clock.advance(1000h);
  f.board.tick(f.clock.now());
  EXPECT_EQ(f.view(0).memory_bytes_promised, 100U);
}

TEST(Board, AWaiterThatAnExceptionEndsLeavesTheLine) {
  struct ThrowingClock final : Clock {
    TimePoint now() const noexcept override { return {}; }
    void sleep_until(TimePoint) override {}
    bool wait_until(std::condition_variable&, std::unique_lock<std::mutex>&, TimePoint) override {
      throw std::bad_alloc();
    }
  } clock;
  PoolOptions options;
  options.clock = &clock;
  Board board(options);
  EXPECT_THROW(static_cast<void>(board.acquire(policy("least_loaded"), {}, Deadline::never())), std::bad_alloc);
  EXPECT_EQ(board.waiting(), 0U);
}

TEST(Board, S0_23_WhatAnAskerThatGaveUpWasPromisedIsGivenBack) {
  BoardFixture f(1, 100);
  {
    const Result<Lease> dropped = f.board.acquire(policy("least_loaded"), bytes(100));
  }
  EXPECT_EQ(f.view(0).memory_bytes_promised, 0U);
  // Waiters that run out of time while others release: nothing is lost.
  std::vector<std::thread> threads;
  std::atomic<int> granted = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto lease = f.board.acquire(policy("least_loaded"), bytes(80), Deadline::after(f.clock, 1ms));
        granted += lease.has_value();
        f.clock.advance(100us);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(granted, 0);
  EXPECT_EQ(f.view(0).memory_bytes_promised, 0U);
  EXPECT_EQ(f.view(0).in_flight, 0U);
  EXPECT_EQ(f.board.waiting(), 0U);
}

TEST(Board, S0_F5_WaitersAreServedByPriorityThenInOrderOfArrival) {
  BoardFixture f(1, 100);
  Lease all = f.take(bytes(100));
  std::mutex mutex;
  std::string order;
  std::vector<std::thread> threads;
  const std::vector<std::pair<char, Priority>> asked = {
      {'l', Priority::low}, {'1', Priority::normal}, {'2', Priority::normal}, {'h', Priority::high}};
  for (std::size_t i = 0; i < asked.size(); ++i) {
    threads.emplace_back([&, i] {
      Requirements requirements = bytes(100);
      requirements.priority = asked[i].second;
      const Result<Lease> lease = f.board.acquire(policy("least_loaded"), requirements, Deadline::never());
      EXPECT_TRUE(lease);
      const std::lock_guard lock(mutex);
      order += asked[i].first;
    });
    EXPECT_TRUE(eventually([&] { return f.board.waiting() == i + 1; }));
  }
  all.release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, "h12l");
}

TEST(Board, AWaiterIsWokenByEverythingThatCanHelpIt) {
  BoardFixture f(1, 10);
  HealthRules rules;
  const auto wait_for = [&](const Requirements& requirements, const std::function<void()>& help) {
    bool got = false;
    std::thread waiter(
        [&] { got = f.board.acquire(policy("least_loaded"), requirements, Deadline::after(f.clock, 1h)).has_value(); });
    EXPECT_TRUE(eventually([&] { return f.board.waiting() == 1; }));
    help();
    waiter.join();
    return got;
  };
  EXPECT_TRUE(wait_for(bytes(50), [&] { f.sample(0, 100); }));
  EXPECT_TRUE(wait_for(on("new"), [&] { EXPECT_TRUE(f.board.join(make_device("new"))); }));
  ASSERT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::cordoned));
  EXPECT_TRUE(wait_for(on("d0"), [&] { EXPECT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::in_service)); }));
  for (std::uint32_t i = 0; i < rules.quarantine_after; ++i) f.take(on("d0")).settle(failure(ErrorCode::work_failed));
  ASSERT_EQ(f.view(0).health, Health::quarantined);
  EXPECT_TRUE(wait_for(on("d0"), [&] { f.clock.advance(rules.pause); })) << "the pause ended, without any poll";
}

TEST(Board, ARequestThatDoesNotFitYetHoldsUpNobodyBehindIt) {
  BoardFixture f(1, 100);
  Lease most = f.take(bytes(60)), some = f.take(bytes(30));
  std::thread large([&] { EXPECT_TRUE(f.board.acquire(policy("least_loaded"), bytes(100), Deadline::never())); });
  EXPECT_TRUE(eventually([&] { return f.board.waiting() == 1; }));
  std::thread small([&] { EXPECT_TRUE(f.board.acquire(policy("least_loaded"), bytes(40), Deadline::never())); });
  EXPECT_TRUE(eventually([&] { return f.board.waiting() == 2; }));
  some.release();
  small.join();
  most.release();
  large.join();
}

}  // namespace
}  // namespace berth::pool
