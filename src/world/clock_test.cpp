#include <gtest/gtest.h>

#include <thread>

#include "berth/fake_clock.hpp"
#include "berth/random.hpp"

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(FakeClock, MovesOnlyByAdvance) {
  FakeClock clock;
  const TimePoint start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(seconds(3));
  EXPECT_EQ(clock.now() - start, seconds(3));
  clock.advance_to(start);
  EXPECT_EQ(clock.now() - start, seconds(3)) << "time never goes back";
}

TEST(FakeClock, ASleepAdvancesTimeInASingleThread) {
  FakeClock clock;
  clock.sleep_for(seconds(10));
  EXPECT_EQ(clock.now().time_since_epoch(), seconds(10));
}

TEST(FakeClock, ABlockedSleeperWakesWhenTimeIsAdvanced) {
  FakeClock clock(FakeClock::Sleepers::block);
  const TimePoint wake = clock.now() + seconds(5);
  std::thread sleeper([&] { clock.sleep_until(wake); });
  for (int i = 0; i < 5; ++i) clock.advance(seconds(1));
  sleeper.join();
  EXPECT_GE(clock.now().time_since_epoch(), seconds(5));
}

TEST(FakeClock, WaitingEndsAtTheDeadlineInVirtualTime) {
  FakeClock clock;
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock lock(mutex);
  EXPECT_FALSE(clock.wait_until(condition, lock, clock.now() + seconds(60)));
  EXPECT_EQ(clock.now().time_since_epoch(), seconds(60));
}

TEST(FakeClock, BlockedWaitsWakeUpPeriodically) {
  // A notification between two waits is lost; the waiting thread must still wake up.
  FakeClock clock(FakeClock::Sleepers::block);
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock lock(mutex);
  condition.notify_all();
  EXPECT_TRUE(clock.wait_until(condition, lock, TimePoint::max()));
  EXPECT_EQ(clock.now(), TimePoint{});
}

TEST(Deadline, NeverDoesNotPassAndDoesNotOverflow) {
  FakeClock clock;
  EXPECT_FALSE(Deadline::never().passed(clock.now()));
  EXPECT_EQ(Deadline::after(clock, Duration::max()).at, TimePoint::max());
  EXPECT_TRUE(Deadline::after(clock, milliseconds(0)).passed(clock.now()));
}

TEST(RealClock, IsMonotonicAndSleeps) {
  Clock& clock = real_clock();
  const TimePoint before = clock.now();
  clock.sleep_for(milliseconds(2));
  EXPECT_GE(clock.now() - before, milliseconds(2));
}

TEST(SeededRandom, TheSameSeedGivesTheSameSequence) {
  SeededRandom a(42), b(42), c(43);
  const std::uint64_t first = a.next();
  EXPECT_EQ(first, b.next());
  EXPECT_NE(first, c.next());
  // Published vector of splitmix64 for seed 0.
  EXPECT_EQ(SeededRandom(0).next(), 0xe220a8397b1dcdafULL);
}

TEST(Random, BelowStaysBelow) {
  SeededRandom random(7);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(random.below(10), 10U);
}

}  // namespace
}  // namespace berth
