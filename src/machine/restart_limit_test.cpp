#include "machine/restart_limit.hpp"

#include <gtest/gtest.h>

namespace berth::machine {
namespace {

using std::chrono::seconds;

TEST(RestartLimit, TheDelayDoublesAndThreeRestartsInAMinuteAreTheLimit) {
  RestartLimit limit;
  TimePoint now{};
  for (const int delay : {1, 2, 4}) {
    EXPECT_EQ(limit.next_delay(now), Duration(seconds(delay)));
    now += seconds(delay);
  }
  EXPECT_EQ(limit.next_delay(now), std::nullopt);
}

TEST(RestartLimit, TheLimitUsesASlidingWindow) {
  RestartLimit limit;
  TimePoint now{};
  // One failure every 25 seconds: never more than three in a minute.
  for (int i = 0; i < 100; ++i, now += seconds(25)) EXPECT_TRUE(limit.next_delay(now)) << i;
  // Old failures do not increase the delay.
  EXPECT_EQ(limit.next_delay(now + seconds(120)), Duration(seconds(1)));
}

}  // namespace
}  // namespace berth::machine
