#include "berth/health.hpp"

#include <gtest/gtest.h>

namespace berth {
namespace {

const HealthRules rules;
constexpr TimePoint start{};

HealthState fail(HealthState state, int times, TimePoint now = start, bool may_eject = true) {
  for (int i = 0; i < times; ++i) state = after_failure(state, ErrorCode::work_failed, now, rules, may_eject);
  return state;
}

TEST(Health, FailuresInARowLeadToSuspicionThenQuarantine) {
  EXPECT_EQ(fail({}, 2).health, Health::healthy);
  EXPECT_EQ(fail({}, 3).health, Health::suspect);
  EXPECT_EQ(fail({}, 5).health, Health::quarantined);
}

TEST(Health, ASuccessForgivesUnlessTheDeviceIsOut) {
  EXPECT_EQ(after_success(fail({}, 4)), HealthState{});
  EXPECT_EQ(after_success(fail({}, 5)).health, Health::quarantined) << "late answers do not end a quarantine";
}

TEST(Health, TheCallersFaultNeverCounts) {
  HealthState state;
  for (int i = 0; i < 100; ++i) state = after_failure(state, ErrorCode::invalid_argument, start, rules, true);
  EXPECT_EQ(state, HealthState{});
}

TEST(Health, QuarantineEndsInProbationAndDoublesOnRelapse) {
  HealthState state = fail({}, 5);
  EXPECT_EQ(state.retry_at - start, rules.pause);
  EXPECT_EQ(after_time(state, start + rules.pause - Duration(1)).health, Health::quarantined);
  state = after_time(state, start + rules.pause);
  EXPECT_EQ(state.health, Health::probation);
  state = fail(state, 1, start + rules.pause);
  EXPECT_EQ(state.health, Health::quarantined);
  EXPECT_EQ(state.retry_at - (start + rules.pause), 2 * rules.pause);
  for (int i = 0; i < 20; ++i) state = fail(after_time(state, state.retry_at), 1, state.retry_at);
  EXPECT_EQ(after_success(after_time(state, state.retry_at)), HealthState{});
}

TEST(Health, ThePauseIsCapped) {
  HealthState state = fail({}, 5);
  for (int i = 0; i < 20; ++i) {
    const TimePoint retry = state.retry_at;
    state = fail(after_time(state, retry), 1, retry);
    EXPECT_LE(state.retry_at - retry, rules.pause_max);
  }
}

TEST(Health, TheCapOnEjectionsKeepsADeviceSuspectInstead) {
  EXPECT_EQ(fail({}, 50, start, false).health, Health::suspect);
}

TEST(Health, ALostDeviceIsOutRegardlessAndStaysOut) {
  const HealthState lost = after_failure({}, ErrorCode::device_lost, start, rules, false);
  EXPECT_EQ(lost.health, Health::lost);
  EXPECT_EQ(after_success(lost).health, Health::lost);
  EXPECT_EQ(after_time(lost, start + std::chrono::hours(1)).health, Health::lost);
}

}  // namespace
}  // namespace berth
