#include "worker/death_limit.hpp"

#include <gtest/gtest.h>

namespace berth::worker {
namespace {

TimePoint at(int seconds) { return TimePoint(std::chrono::seconds(1000 + seconds)); }

TEST(DeathLimit, TheFourthDeathInAMinuteIsOneTooMany) {
  DeathLimit limit;
  for (const int second : {0, 20, 40}) {
    limit.add(at(second));
    EXPECT_FALSE(limit.exceeded_until(at(second)));
  }
  limit.add(at(59));
  EXPECT_EQ(limit.exceeded_until(at(59)), at(60)) << "then the first death is a minute ago";
  EXPECT_FALSE(limit.exceeded_until(at(60)));
}

TEST(DeathLimit, DeathsOfMoreThanAMinuteAgoDoNotCount) {
  DeathLimit limit;
  for (int second = 0; second < 6000; second += 20) {
    limit.add(at(second));
    EXPECT_FALSE(limit.exceeded_until(at(second))) << "one death every twenty seconds, forever";
  }
}

TEST(DeathLimit, ADeathThatIsForgivenDoesNotCount) {
  DeathLimit limit;
  const std::uint64_t forgiven = limit.add(at(0));
  limit.add(at(1));
  limit.add(at(2));
  limit.forgive(forgiven);
  limit.add(at(3));
  EXPECT_FALSE(limit.exceeded_until(at(3)));
  limit.forgive(12345);
  limit.add(at(4));
  EXPECT_EQ(limit.exceeded_until(at(4)), at(61));
}

TEST(DeathLimit, ATaskThatWasAloneInTwoWorkersThatDiedIsGuiltyOfBoth) {
  DeathLimit limit;
  for (int second = 0; second < 30; ++second) limit.add(at(second), {.task = "bad"});
  EXPECT_FALSE(limit.exceeded_until(at(29)));
  for (int second = 30; second < 34; ++second) limit.add(at(second), {.task = "other" + std::to_string(second)});
  EXPECT_EQ(limit.exceeded_until(at(33)), at(90)) << "four unrelated tasks";
}

TEST(DeathLimit, ADeathCountsWhenItIsClearThatNoTaskIsGuilty) {
  DeathLimit limit;
  for (int second = 0; second < 3; ++second) limit.add(at(second));
  const std::uint64_t unclear = limit.add(at(3), {.unclear = true});
  EXPECT_FALSE(limit.exceeded_until(at(3)));
  limit.confirm(unclear);
  EXPECT_EQ(limit.exceeded_until(at(3)), at(60));
  limit.forgive(unclear);
  EXPECT_FALSE(limit.exceeded_until(at(3)));
}

}  // namespace
}  // namespace berth::worker
