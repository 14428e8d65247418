#include "berth/health.hpp"

#include <gtest/gtest.h>
#ifdef BERTH_HAS_RAPIDCHECK
#include <rapidcheck.h>
#endif

#include "berth/random.hpp"
#include "berth/xid.hpp"

namespace berth {
namespace {

const HealthRules rules;
constexpr TimePoint start{};

HealthState fail(HealthState state, int times, TimePoint now = start, bool may_eject = true) {
  for (int i = 0; i < times; ++i) state = after_failure(state, ErrorCode::work_failed, now, rules, may_eject);
  return state;
}

HealthState succeed(HealthState state, std::uint32_t times) {
  for (std::uint32_t i = 0; i < times; ++i) state = after_success(state, rules);
  return state;
}

DeviceEvent xid(std::uint32_t number) { return {DeviceEvent::Kind::xid, number, {}}; }
DeviceEvent recovery(RecoveryAction action) {
  return {DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(action), {}};
}
HealthState report(const DeviceEvent& event, HealthState state = {}, TimePoint now = start, bool may_eject = true) {
  return after_event(state, event, now, rules, may_eject);
}

TEST(Health, ConsecutiveFailuresMakeADeviceSuspectThenQuarantined) {
  EXPECT_EQ(fail({}, 2).health, Health::healthy);
  EXPECT_EQ(fail({}, 3).health, Health::suspect);
  EXPECT_EQ(fail({}, 5).health, Health::quarantined);
}

TEST(Health, ASuccessClearsFailuresUnlessTheDeviceIsQuarantined) {
  EXPECT_EQ(succeed(fail({}, 4), 1), HealthState{});
  EXPECT_EQ(succeed(fail({}, 5), 9).health, Health::quarantined) << "late answers do not end a quarantine";
}

TEST(Health, ErrorsOfTheCallerNeverCount) {
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
  EXPECT_EQ(succeed(after_time(state, state.retry_at), rules.probation_successes), HealthState{});
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

TEST(Health, ALostDeviceIsEjectedRegardlessOfTheCapAndStaysLost) {
  const HealthState lost = after_failure({}, ErrorCode::device_lost, start, rules, false);
  EXPECT_EQ(lost.health, Health::lost);
  EXPECT_EQ(succeed(lost, 9).health, Health::lost);
  EXPECT_EQ(after_time(lost, start + std::chrono::hours(1)).health, Health::lost);
}

TEST(Health, ProbationEndsWithSuccessesInARowOrOneFailure) {
  const HealthState probation = after_time(fail({}, 5), start + rules.pause);
  EXPECT_EQ(succeed(probation, rules.probation_successes - 1).health, Health::probation);
  EXPECT_EQ(succeed(probation, rules.probation_successes), HealthState{});
  const HealthState relapsed = fail(succeed(probation, rules.probation_successes - 1), 1);
  EXPECT_EQ(relapsed.health, Health::quarantined);
  EXPECT_EQ(relapsed.retry_at - start, 2 * rules.pause);
  const HealthState again = after_time(relapsed, relapsed.retry_at);
  EXPECT_EQ(succeed(again, rules.probation_successes - 1).health, Health::probation) << "the count starts again";
}

TEST(Health, AnEventThatBlamesTheDeviceQuarantinesItAtOnce) {
  for (const std::uint32_t number : {48U, 62U, 64U, 74U, 95U, 119U, 120U, 140U})
    EXPECT_EQ(report(xid(number)).health, Health::quarantined) << number;
  EXPECT_EQ(report({DeviceEvent::Kind::ecc_error, 0, {}}).health, Health::quarantined);
  EXPECT_EQ(report({DeviceEvent::Kind::unavailable, 0, {}}).health, Health::quarantined);
  EXPECT_EQ(report(xid(48)).retry_at - start, rules.pause);
}

TEST(Health, AnEventThatDoesNotBlameTheDeviceChangesNothing) {
  for (const std::uint32_t number : {13U, 31U, 43U, 45U, 68U, 109U, 63U, 92U})
    EXPECT_EQ(report(xid(number)), HealthState{}) << number;
}

TEST(Health, AnUnknownEventMakesTheDeviceSuspectUntilASuccess) {
  EXPECT_EQ(report(xid(94)).health, Health::suspect);
  EXPECT_EQ(report(xid(9999)).health, Health::suspect);
  EXPECT_EQ(succeed(report(xid(9999)), 1), HealthState{});
  EXPECT_EQ(report(xid(9999), report(xid(48))).health, Health::quarantined) << "it does not end a quarantine";
}

TEST(Health, AGpuThatFellOffTheBusIsLostRegardlessOfTheCap) {
  EXPECT_EQ(report(xid(79), {}, start, false).health, Health::lost);
  EXPECT_EQ(report(recovery(RecoveryAction::none), report(xid(79))).health, Health::lost);
}

TEST(Health, TheCapOnEjectionsAppliesToEvents) {
  EXPECT_EQ(report(xid(48), {}, start, false).health, Health::suspect);
  const HealthState wanted = report(recovery(RecoveryAction::reset), {}, start, false);
  EXPECT_EQ(wanted.health, Health::suspect);
  EXPECT_EQ(succeed(wanted, 9).health, Health::suspect) << "the driver still wants it reset";
}

TEST(Health, ARequiredResetKeepsADeviceQuarantined) {
  for (const auto action : {RecoveryAction::reset, RecoveryAction::reboot, RecoveryAction::drain_and_reset}) {
    for (const HealthState& before : {HealthState{}, report(xid(95))}) {
      HealthState state = report(recovery(action), before);
      EXPECT_EQ(state.health, Health::quarantined);
      state = after_time(state, start + std::chrono::hours(1000));
      EXPECT_EQ(state.health, Health::quarantined);
      const TimePoint mended = start + std::chrono::hours(1001);
      state = report(recovery(RecoveryAction::none), state, mended);
      EXPECT_EQ(state.health, Health::quarantined) << "until the pause ends";
      state = after_time(state, mended + rules.pause);
      EXPECT_EQ(state.health, Health::probation);
      EXPECT_EQ(succeed(state, rules.probation_successes), HealthState{});
    }
  }
}

TEST(Health, ADeviceThatMustNotWorkWithOthersIsSuspect) {
  EXPECT_EQ(report(recovery(RecoveryAction::drain_peers)).health, Health::suspect);
}

#ifdef BERTH_HAS_RAPIDCHECK

// All events of a device, in random order.
struct Happening {
  enum class Kind { success, failure, event, time } kind;
  ErrorCode code;
  DeviceEvent event;
  Duration later;
  bool may_eject;
};

Happening something(Random& random) {
  Happening happening;
  happening.kind = static_cast<Happening::Kind>(random.below(4));
  // Most failures are of a kind that a device survives, so that it also leaves quarantine again.
  happening.code = random.below(2) == 0
                       ? ErrorCode::work_failed
                       : static_cast<ErrorCode>(random.below(static_cast<int>(ErrorCode::internal) + 1));
  happening.event.kind = static_cast<DeviceEvent::Kind>(random.below(4));
  happening.event.code =
      static_cast<std::uint32_t>(random.below(happening.event.kind == DeviceEvent::Kind::recovery_action ? 5 : 180));
  happening.later = std::chrono::seconds(random.below(30));
  happening.may_eject = random.below(2) == 0;
  return happening;
}

HealthState after(HealthState state, const Happening& happening, TimePoint now) {
  switch (happening.kind) {
    case Happening::Kind::success: return after_success(state, rules);
    case Happening::Kind::failure: return after_failure(state, happening.code, now, rules, happening.may_eject);
    case Happening::Kind::event: return after_event(state, happening.event, now, rules, happening.may_eject);
    case Happening::Kind::time: return after_time(state, now);
  }
  return state;
}

// Calls law(before, happening, after, now) for each step of random sequences. The law returns whether it
// applies to the step, and it must apply to enough steps.
template <class Law>
void always(const Law& law) {
  int steps_judged = 0;
  EXPECT_TRUE(rc::check([&] {
    SeededRandom random(*rc::gen::arbitrary<std::uint64_t>());
    HealthState state;
    TimePoint now = start;
    for (int step = 0; step < 60; ++step) {
      const Happening happening = something(random);
      now += happening.later;
      const HealthState next = after(state, happening, now);
      steps_judged += law(state, happening, next, now);
      state = next;
      // A lost device does not change any more, so a new device often takes its place.
      if (state.health == Health::lost && random.below(8) == 0) state = {};
    }
  }));
  EXPECT_GT(steps_judged, 20);
}

bool out(const HealthState& state) { return state.health == Health::quarantined || state.health == Health::lost; }

TEST(HealthLaws, ALostDeviceStaysLost) {
  always([](const HealthState& before, const Happening&, const HealthState& after, TimePoint) {
    RC_ASSERT(before.health != Health::lost || after == before);
    return before.health == Health::lost;
  });
}

TEST(HealthLaws, OnlyLostDevicesExceedTheCap) {
  always([](const HealthState& before, const Happening& it, const HealthState& next, TimePoint now) {
    if (it.may_eject || out(before)) return false;
    RC_ASSERT(next.health != Health::quarantined);
    Happening below_the_cap = it;
    below_the_cap.may_eject = true;
    return after(before, below_the_cap, now).health == Health::quarantined;
  });
}

TEST(HealthLaws, AnErrorOfTheTaskChangesNothing) {
  always([](const HealthState& before, const Happening& it, const HealthState& after, TimePoint) {
    const bool of_the_task = it.kind == Happening::Kind::failure
                                 ? !blames_device(it.code)
                                 : it.kind == Happening::Kind::event && blame_of(it.event) == Blame::task;
    RC_ASSERT(!of_the_task || after == before);
    return of_the_task;
  });
}

TEST(HealthLaws, PausesGrowUntilTheDeviceIsHealthyUpToTheMaximum) {
  Duration last{0};
  always([&](const HealthState& before, const Happening&, const HealthState& after, TimePoint now) {
    if (before == HealthState{}) last = Duration(0);
    if (out(before) || after.health != Health::quarantined || after.recovery_pending) return false;
    RC_ASSERT(after.retry_at - now >= last);
    RC_ASSERT(after.retry_at - now <= rules.pause_max);
    last = after.retry_at - now;
    return true;
  });
}

TEST(HealthLaws, OnlyTheDriverEndsARecoveryAction) {
  always([](const HealthState& before, const Happening& it, const HealthState& after, TimePoint) {
    RC_ASSERT(!after.recovery_pending || after.health != Health::healthy);
    if (!before.recovery_pending || after.health == Health::lost || it.kind == Happening::Kind::event) return false;
    RC_ASSERT(after.recovery_pending);
    RC_ASSERT(after.health == before.health || after.health == Health::quarantined);
    return true;
  });
}

TEST(HealthLaws, QuarantineEndsOnlyInProbation) {
  always([](const HealthState& before, const Happening& it, const HealthState& after, TimePoint now) {
    if (before.health != Health::quarantined || after.health == before.health) return false;
    if (after.health == Health::lost) return false;
    RC_ASSERT(after.health == Health::probation);
    RC_ASSERT(it.kind == Happening::Kind::time && now >= before.retry_at);
    return true;
  });
}

#else
TEST(HealthLaws, NeedRapidcheck) { GTEST_SKIP() << "rapidcheck is not installed"; }
#endif

}  // namespace
}  // namespace berth
