#include <gtest/gtest.h>

#include "placement/id_order.hpp"
#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

Explanation explain_with(std::string_view policy, const TestFleet& fleet, const Requirements& requirements = {}) {
  Explanation explanation;
  choose(*find_policy(policy), requirements, fleet, 0, &explanation);
  return explanation;
}
std::string reason_for(const TestFleet& fleet, const Requirements& requirements = {}) {
  return explain_with("least_loaded", fleet, requirements).reason();
}

TEST(Explanation, X_F5_ADecisionSaysWhy) {
  TestFleet fleet(4);
  fleet[0].health = Health::quarantined;
  fleet[1].memory_bytes_free = 3 * gib + gib / 10;
  fleet[2].in_flight = 2;
  fleet[3].health = Health::suspect;
  EXPECT_EQ(explain_with("least_loaded", fleet, needing(4 * gib)).to_text(),
            "least_loaded chose dev-02 among 2 eligible devices; next is dev-03\n"
            "4 devices -> 3 healthy -> 2 fit 4.0 GiB -> dev-02\n"
            "device  verdict    cost  in flight  available  detail\n"
            "dev-00  unhealthy     -          0   16.0 GiB  quarantined\n"
            "dev-01  memory        -          0    3.1 GiB  needs 4.0 GiB, 3.1 GiB available\n"
            "dev-02  winner        3          2   16.0 GiB\n"
            "dev-03  runner-up     4          0   16.0 GiB  suspect\n");
}

TEST(Explanation, ATieThatTheOrderOfTheUserDecidesIsExplained) {
  TestFleet fleet(5);
  fleet[4].in_flight = 1;
  const auto winner_detail = [&](std::string_view policy) {
    const Explanation explanation = explain_with(policy, fleet);
    for (const auto& candidate : explanation.candidates)
      if (candidate.device == explanation.winner) return candidate.device.text() + ": " + candidate.detail;
    return std::string();
  };
  EXPECT_EQ(winner_detail("least_loaded"), "dev-00: ") << "the lowest id";
  std::vector<DeviceView> views(fleet.views().begin(), fleet.views().end());
  order_by_id(views, 2);
  for (std::size_t i = 0; i < views.size(); ++i) fleet[i].id_order = views[i].id_order;
  EXPECT_EQ(winner_detail("least_loaded"), "dev-02: same cost as 3 others, first in the order for this user");
  EXPECT_EQ(winner_detail("power_of_two").find("same cost"), std::string::npos) << "drawn at random";
  fleet[2].health = Health::quarantined;
  EXPECT_EQ(winner_detail("least_loaded"), "dev-03: same cost as 2 others, first in the order for this user");
  fleet[3].in_flight = fleet[1].in_flight = 7;
  EXPECT_EQ(winner_detail("least_loaded"), "dev-00: ") << "no tie";
}

TEST(Explanation, S0_F12_NothingEligibleIsAResultWithTheReasonOfEveryDevice) {
  TestFleet fleet(3);
  fleet[0].intent = Intent::draining;
  fleet[1].memory_bytes_free = gib;
  fleet[2].memory_bytes_free = 2 * gib;
  Explanation explanation;
  const Decision decision = choose(*find_policy("spread"), needing(4 * gib), fleet, 0, &explanation);
  EXPECT_FALSE(decision.winner);
  EXPECT_FALSE(explanation.winner);
  EXPECT_EQ(explanation.candidates[0].detail, "draining");
  EXPECT_EQ(explanation.candidates[1].detail, "needs 4.0 GiB, 1.0 GiB available");
  EXPECT_EQ(explanation.candidates[2].detail, "needs 4.0 GiB, 2.0 GiB available");
  EXPECT_EQ(explanation.reason(),
            "no suitable device has 4.0 GiB free, because processes use the memory (largest: 2.0 GiB on dev-02)");
  EXPECT_NE(explanation.to_text().find("3 devices -> 2 in service -> 0 fit 4.0 GiB -> none\n"), std::string::npos);
  // The resulting error tells the caller to wait.
  EXPECT_EQ(reaction_to(ErrorCode::no_eligible_device), Reaction::wait);
}

TEST(Explanation, TheMainReasonIsOneSentence) {
  EXPECT_EQ(reason_for(TestFleet(0)), "there are no devices");
  EXPECT_EQ(reason_for(TestFleet(1)), "least_loaded chose dev-00, the only eligible device");

  TestFleet fleet(2);
  EXPECT_EQ(reason_for(fleet, needing(22 * gib)), "no device has 22.0 GiB in total (largest: 16.0 GiB on dev-00)");
  fleet[0].memory_bytes_free = fleet[1].memory_bytes_free = OptionalU64();
  EXPECT_EQ(reason_for(fleet, needing(gib)),
            "no device has 1.0 GiB free (dev-00: needs 1.0 GiB, does not report free memory; 1 more)");

  Requirements requirements;
  requirements.capability_min = Capability{10, 0};
  EXPECT_EQ(reason_for(TestFleet(2), requirements),
            "no device has capability 10.0 (dev-00: needs 10.0, has 9.0; 1 more)");
  requirements = {};
  requirements.features = {"ptx"};
  requirements.labels = {{"zone", "a"}};
  EXPECT_EQ(reason_for(TestFleet(1), requirements), "no device has ptx, zone=a (dev-00: lacks ptx)");
  requirements = {};
  requirements.backends = {"cuda"};
  EXPECT_EQ(reason_for(TestFleet(1), requirements),
            "there is no cuda device (dev-00: is a simulated device, needs cuda)");

  TestFleet out(2);
  out[0].intent = out[1].intent = Intent::cordoned;
  EXPECT_EQ(reason_for(out), "no device is in service (dev-00: cordoned; 1 more)");
  out[0].intent = out[1].intent = Intent::in_service;
  out[0].health = out[1].health = Health::lost;
  EXPECT_EQ(reason_for(out), "no device is healthy (dev-00: lost; 1 more)");
  out[0].health = out[1].health = Health::healthy;
  out[0].sample = out[1].sample = SampleState::stale;
  EXPECT_EQ(reason_for(out),
            "no device has reported its load recently (dev-00: has not reported its load recently; 1 more)");
}

TEST(Explanation, UnsuitableDevicesDoNotHideTheCause) {
  // Three old, unhealthy devices and one suitable device that is full: repairing the
  // old ones would not help.
  TestFleet fleet(4);
  for (std::size_t i = 0; i < 3; ++i) {
    fleet.info(i).capability = Capability{7, 0};
    fleet[i].health = Health::quarantined;
  }
  fleet[3].memory_bytes_free = gib;
  Requirements requirements = needing(2 * gib);
  requirements.capability_min = Capability{9, 0};
  const Explanation explanation = explain_with("least_loaded", fleet, requirements);
  EXPECT_EQ(explanation.cause, Cause::memory_in_use);
  EXPECT_EQ(explanation.reason(),
            "no suitable device has 2.0 GiB free, because processes use the memory (largest: 1.0 GiB on dev-03)");
  for (std::size_t i = 0; i < 3; ++i) fleet[i].health = Health::healthy;
  EXPECT_EQ(explain_with("least_loaded", fleet, requirements).cause, Cause::memory_in_use)
      << "also if they outnumber it";
}

TEST(Explanation, TheDevicesClosestToEligibleGiveTheCause) {
  // One device is only cordoned; two are both full and lost.
  TestFleet fleet(3);
  fleet[0].intent = Intent::cordoned;
  for (std::size_t i : {1, 2}) {
    fleet[i].health = Health::lost;
    fleet[i].memory_bytes_free = 0;
  }
  EXPECT_EQ(reason_for(fleet, needing(gib)), "no suitable device is in service (dev-00: cordoned)");
}

TEST(Explanation, TheCauseIsWhatWouldAloneLetTheRequestFit) {
  // The only new device is cordoned and full and the old ones are idle: a lower
  // capability is the only change that helps.
  TestFleet fleet(3);
  fleet.info(0).capability = fleet.info(1).capability = Capability{7, 0};
  fleet[2].intent = Intent::cordoned;
  fleet[2].memory_bytes_free = 0;
  Requirements requirements = needing(gib);
  requirements.capability_min = Capability{9, 0};
  EXPECT_EQ(explain_with("least_loaded", fleet, requirements).cause, Cause::capability);
  fleet[2].memory_bytes_free = 16 * gib;
  EXPECT_EQ(explain_with("least_loaded", fleet, requirements).cause, Cause::cordoned)
      << "a temporary cause comes before a permanent one";
}

TEST(Explanation, TheReasonSaysWhetherMemoryIsInUseOrPromised) {
  TestFleet fleet(3);
  for (std::size_t i = 0; i < 3; ++i) fleet[i].memory_bytes_promised = 15 * gib;
  EXPECT_EQ(reason_for(fleet, needing(4 * gib)),
            "no device has 4.0 GiB free, because the memory is promised (largest: 1.0 GiB on dev-00)");
  EXPECT_EQ(reason_for(fleet, needing(3 * gib)),
            "no device has 3.0 GiB free, although all of them together have that much (largest: 1.0 GiB on dev-00)");
  for (std::size_t i = 0; i < 3; ++i) {
    fleet[i].memory_bytes_promised = 0;
    fleet[i].memory_bytes_free = gib / 2;
  }
  EXPECT_EQ(reason_for(fleet, needing(4 * gib)),
            "no device has 4.0 GiB free, because processes use the memory (largest: 512.0 MiB on dev-00)");
  fleet[1].memory_bytes_free = 16 * gib;
  fleet[1].memory_bytes_promised = 15 * gib;
  fleet[2].memory_bytes_free = 2 * gib;
  EXPECT_EQ(reason_for(fleet, needing(6 * gib)),
            "no device has 6.0 GiB free, because the memory is promised or used by processes (largest: 2.0 GiB on "
            "dev-02)")
      << "the largest of all, not only of those with the main cause";
  for (std::size_t i = 0; i < 3; ++i) fleet[i].memory_bytes_free = 0;
  EXPECT_EQ(reason_for(fleet, needing(4 * gib)),
            "no device has 4.0 GiB free, because the memory is promised or used by processes")
      << "no device is the largest if nothing is available";
}

TEST(Explanation, ADeviceWithUnknownMemoryDoesNotHideAKnownCause) {
  TestFleet fleet(3);
  fleet[0].memory_bytes_free = OptionalU64();
  EXPECT_EQ(explain_with("least_loaded", fleet, needing(22 * gib)).cause, Cause::memory_too_small);
  fleet[1].intent = Intent::cordoned;
  fleet[2].memory_bytes_free = 0;
  fleet[2].health = Health::lost;
  EXPECT_EQ(explain_with("least_loaded", fleet, needing(gib)).cause, Cause::cordoned);
}

TEST(Explanation, CausesOfOneFilterCountTogether) {
  // All four are needed: neither the lost nor the quarantined devices alone are enough.
  TestFleet fleet(4);
  fleet[0].health = fleet[1].health = Health::lost;
  fleet[2].health = Health::quarantined;
  Explanation explanation;
  choose_group(*find_policy("least_loaded"), {}, 4, fleet, {}, 0, &explanation);
  EXPECT_EQ(explanation.cause, Cause::lost);
  EXPECT_EQ(explanation.reason(),
            "only 1 of the 4 requested devices is available: no other device is healthy (dev-00: lost; 1 more)");
}

TEST(Explanation, AnUnknownBackEndIsReportedWithTheNearestName) {
  TestFleet fleet(2);
  fleet.info(0).backend = "cuda";
  fleet.info(1).backend = "opencl";
  Requirements requirements;
  requirements.backends = {"cudda"};
  const Explanation explanation = explain_with("least_loaded", fleet, requirements);
  EXPECT_EQ(explanation.reason(), "there is no cudda device (dev-00: is a cuda device, needs cudda; 1 more)");
  EXPECT_EQ(explanation.advice(), "did you mean \"cuda\"?");
  EXPECT_EQ(explanation.candidates[1].detail, "is an opencl device, needs cudda");
  requirements.backends = {"levelzero"};
  EXPECT_EQ(explain_with("least_loaded", fleet, requirements).advice(), "the available back ends are cuda, opencl");
  EXPECT_EQ(explain_with("least_loaded", fleet, needing(99 * gib)).advice(), "request less, or another device");
}

TEST(Explanation, TheReasonIsAboutTheSelectedDevice) {
  // Other devices have the memory but were not selected.
  TestFleet fleet(3);
  fleet.info(1).memory_bytes_total = 4 * gib;
  fleet[1].memory_bytes_free = 4 * gib;
  Requirements requirements = needing(10 * gib);
  requirements.only = {fleet.info(1).id};
  EXPECT_EQ(reason_for(fleet, requirements), "no selected device has 10.0 GiB in total (largest: 4.0 GiB on dev-01)");
  fleet[1].memory_bytes_free = OptionalU64();
  EXPECT_EQ(reason_for(fleet, needing(17 * gib)), "no device has 17.0 GiB in total (largest: 16.0 GiB on dev-00)");
  requirements.memory_bytes_min = gib;
  EXPECT_EQ(reason_for(fleet, requirements),
            "no selected device has 1.0 GiB free (dev-01: needs 1.0 GiB, does not report free memory)");
  requirements.only = {DeviceId("gone")};
  EXPECT_EQ(explain_with("least_loaded", fleet, requirements).cause, Cause::pinned);
}

TEST(Explanation, ARequestLargerThanADeviceIsReported) {
  const Explanation explanation = explain_with("least_loaded", TestFleet(1), needing(100 * gib));
  EXPECT_EQ(explanation.candidates[0].detail, "needs 100.0 GiB, has 16.0 GiB in total");
}

TEST(Explanation, ADifferenceThatRoundingHidesIsShownInBytes) {
  TestFleet fleet(1);
  fleet[0].memory_bytes_free = 4 * gib - 1;
  EXPECT_EQ(explain_with("least_loaded", fleet, needing(4 * gib)).candidates[0].detail,
            "needs 4294967296 bytes, 4294967295 available");
}

TEST(Explanation, ADeviceThatWasNotDrawnIsShownAsLast) {
  const std::string text = explain_with("power_of_two", TestFleet(3)).to_text();
  EXPECT_NE(text.find("eligible   last"), std::string::npos) << text;
}

}  // namespace
}  // namespace berth::placement
