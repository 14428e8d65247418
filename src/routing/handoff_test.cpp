#include "routing/handoff.hpp"

#include <gtest/gtest.h>

namespace berth {
namespace {

using State = Handoff::State;

constexpr std::uint64_t epoch = 5;
constexpr TimePoint start{};
const DeviceId old_owner("a"), new_owner("b");

// A hand-off brought into each state in turn.
std::vector<Handoff> every_state() {
  std::vector<Handoff> all{Handoff({7, old_owner, new_owner}, epoch)};
  all.push_back(*all.back().begin(start));
  all.push_back(*all.back().acknowledged(epoch, {"x", "y"}, start));
  all.push_back(*all.back().finished(epoch, "x", start)->finished(epoch, "y", start));
  all.push_back(*all.back().start(epoch));
  return all;
}

std::optional<ErrorCode> code(const Result<Handoff>& result) {
  return result ? std::nullopt : std::optional(result.error().code);
}

TEST(Handoff, GoesThroughItsStatesInOrder) {
  std::vector<State> states;
  for (const Handoff& handoff : every_state()) states.push_back(handoff.state());
  EXPECT_EQ(states, (std::vector{State::idle, State::beginning, State::handing_off, State::stopped, State::started}));
}

TEST(Handoff, NeverTwoServeTheShardAndNobodyInBetween) {
  std::vector<DeviceId> servers;
  for (const Handoff& handoff : every_state()) servers.push_back(handoff.server());
  EXPECT_EQ(servers, (std::vector{old_owner, DeviceId(), DeviceId(), DeviceId(), new_owner}));
}

TEST(Handoff, OnlyTheEventOfItsStateIsTaken) {
  const std::vector<Handoff> all = every_state();
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].begin(start).has_value(), i == 0);
    EXPECT_EQ(all[i].acknowledged(epoch, {}, start).has_value(), i == 1);
    EXPECT_EQ(all[i].finished(epoch, "x", start).has_value(), i == 2);
    EXPECT_EQ(all[i].start(epoch).has_value(), i == 3);
    EXPECT_EQ(all[i].abort().has_value(), i != 4);
  }
  EXPECT_EQ(code(all[0].start(epoch)), ErrorCode::invalid_argument);
  EXPECT_EQ(all[0].start(epoch).error().message, "shard-7 cannot start elsewhere while its hand-off is idle");
  EXPECT_EQ(code(all[2].finished(epoch, "z", start)), ErrorCode::invalid_argument);
}

TEST(Handoff, AnOwnerWithoutEntitiesStopsAtOnce) {
  EXPECT_EQ(every_state()[1].acknowledged(epoch, {}, start)->state(), State::stopped);
}

TEST(Handoff, AnswersOfAnotherEpochAreFencedOff) {
  const std::vector<Handoff> all = every_state();
  for (const std::uint64_t other : {epoch - 1, epoch + 1}) {
    EXPECT_EQ(code(all[1].acknowledged(other, {}, start)), ErrorCode::stale_handle);
    EXPECT_EQ(code(all[2].finished(other, "x", start)), ErrorCode::stale_handle);
    EXPECT_EQ(code(all[3].start(other)), ErrorCode::stale_handle);
  }
}

TEST(Handoff, LateAnswersToAPlanThatWasGivenUpAreFencedOff) {
  const Handoff again = *every_state()[1].abort()->begin(start);
  EXPECT_EQ(again.epoch(), epoch + 1);
  EXPECT_EQ(code(again.acknowledged(epoch, {}, start)), ErrorCode::stale_handle);
  EXPECT_TRUE(again.acknowledged(epoch + 1, {}, start));
}

TEST(Handoff, EveryStateInBetweenHasADeadlineAndAWayBack) {
  const HandoffRules rules;
  const std::vector<Duration> limits{Duration::max(), rules.to_begin, rules.to_drain, rules.to_start, Duration::max()};
  const std::vector<Handoff> all = every_state();
  for (std::size_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(all[i].deadline(), start + limits[i]);
    EXPECT_EQ(all[i].after_time(start + limits[i] - Duration(1)).state(), all[i].state());
    const Handoff back = all[i].after_time(start + limits[i]);
    EXPECT_EQ(back.state(), State::idle);
    EXPECT_EQ(back.server(), old_owner);
    EXPECT_TRUE(back.remaining().empty());
    EXPECT_EQ(all[i].abort()->server(), old_owner);
  }
  for (const std::size_t i : {0u, 4u}) {
    EXPECT_EQ(all[i].deadline(), TimePoint::max());
    EXPECT_EQ(all[i].after_time(start + std::chrono::hours(1)).state(), all[i].state());
  }
}

}  // namespace
}  // namespace berth
