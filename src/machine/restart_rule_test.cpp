#include "machine/restart_rule.hpp"

#include <gtest/gtest.h>

namespace berth::machine {
namespace {

using namespace std::chrono_literals;

const std::vector<DeviceId> broken{DeviceId("GPU-a")};

CommandExit with_status(int status) {
  CommandExit ended;
  ended.status = status;
  return ended;
}

TEST(RestartRule, AFaultIsFollowedByAStartElsewhereUntilTheLimit) {
  RestartRule rule(true);
  const TimePoint now{};
  for (const Duration pause : {1s, 2s, 4s}) {
    const RestartRule::Decision decision = rule.decide(with_status(1), broken, now);
    EXPECT_EQ(decision.pause, pause);
    EXPECT_EQ(rule.failed(), broken);
  }
  const RestartRule::Decision last = rule.decide(with_status(1), broken, now);
  EXPECT_EQ(last.pause, std::nullopt);
  EXPECT_TRUE(last.is_fault);
  EXPECT_EQ(last.text,
            "ended with status 1 while its device reported an error; not restarting it: it was restarted 3 times "
            "within a minute");
}

TEST(RestartRule, RetriesAreForEveryFailureAndForNoSuccess) {
  RestartRule rule(false, 2);
  const TimePoint now{};
  EXPECT_EQ(rule.decide(with_status(0), std::nullopt, now).pause, std::nullopt);
  EXPECT_EQ(rule.decide(with_status(7), std::nullopt, now).text, "ended with status 7; restarting it in 1 s");
  EXPECT_EQ(rule.decide(with_status(7), std::nullopt, now).pause, 2s);
  EXPECT_EQ(rule.decide(with_status(7), std::nullopt, now).text, "ended with status 7");
  EXPECT_TRUE(rule.failed().empty());
}

TEST(RestartRule, RetriesAreLeftWhenTheLimitOfFaultsIsReached) {
  RestartRule rule(true, 1);
  const TimePoint now{};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(rule.decide(with_status(1), broken, now).pause);
  EXPECT_EQ(rule.decide(with_status(1), broken, now).pause, 1s) << "the retry";
  EXPECT_EQ(rule.decide(with_status(1), broken, now).pause, std::nullopt);
}

TEST(RestartRule, RetriesAreAtMostAMinuteApart) {
  RestartRule rule(false, 100);
  Duration pause{};
  for (int i = 0; i < 100; ++i) pause = rule.decide(with_status(1), std::nullopt, TimePoint{}).pause.value();
  EXPECT_EQ(pause, 1min);
}

}  // namespace
}  // namespace berth::machine
