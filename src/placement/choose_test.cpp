// The filters, and what choose() promises whatever the policy does.
#include <gtest/gtest.h>

#include <stdexcept>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

using Answer = std::function<std::size_t(const Candidates&)>;

Policy custom(Answer answer) {
  Policy policy;
  policy.name = "custom";
  policy.choose = std::move(answer);
  return policy;
}

TEST(Requirements, S0_1_ADefaultValueConstrainsNothing) {
  const Requirements requirements;
  EXPECT_EQ(requirements.memory_bytes_min, 0U);
  EXPECT_FALSE(requirements.capability_min);
  EXPECT_FALSE(requirements.priority);
  TestFleet fleet(1);
  fleet[0].memory_bytes_free = OptionalU64();
  fleet[0].sample = SampleState::unknown;
  fleet.info(0).capability.reset();
  fleet.info(0).memory_bytes_total.reset();
  EXPECT_EQ(reject(requirements, fleet[0]), std::nullopt);
  fleet[0].memory_bytes_free = 0;
  EXPECT_EQ(reject(requirements, fleet[0]), std::nullopt);
}

TEST(Filters, S0_12_TooFewBytesAreSkippedEqualIsAccepted) {
  TestFleet fleet(1);
  Requirements requirements;
  requirements.memory_bytes_min = 16 * gib;
  EXPECT_EQ(reject(requirements, fleet[0]), std::nullopt);
  requirements.memory_bytes_min += 1;
  EXPECT_EQ(reject(requirements, fleet[0]), Rejection::memory);
  requirements.memory_bytes_min = 16 * gib;
  fleet[0].memory_bytes_promised = 1;
  EXPECT_EQ(reject(requirements, fleet[0]), Rejection::memory) << "promised bytes are not free";
  fleet[0].memory_bytes_promised = 17 * gib;
  requirements.memory_bytes_min = 1;
  EXPECT_EQ(reject(requirements, fleet[0]), Rejection::memory) << "more promised than free is none, not many";
}

TEST(Filters, S0_13_CapabilityComparesMajorThenMinorEqualIsAccepted) {
  TestFleet fleet(1);
  fleet.info(0).capability = Capability{8, 6};
  const auto rejection_for = [&](int major, int minor) {
    Requirements requirements;
    requirements.capability_min = Capability{major, minor};
    return reject(requirements, fleet[0]);
  };
  EXPECT_EQ(rejection_for(8, 6), std::nullopt);
  EXPECT_EQ(rejection_for(8, 0), std::nullopt);
  EXPECT_EQ(rejection_for(7, 9), std::nullopt);
  EXPECT_EQ(rejection_for(8, 7), Rejection::capability);
  EXPECT_EQ(rejection_for(9, 0), Rejection::capability);
}

TEST(Filters, AValueNobodyKnowsDoesNotMeetAMinimum) {
  TestFleet fleet(1);
  fleet[0].memory_bytes_free = OptionalU64();
  fleet.info(0).capability.reset();
  Requirements bytes;
  bytes.memory_bytes_min = 1;
  EXPECT_EQ(reject(bytes, fleet[0]), Rejection::memory);
  Requirements capability;
  capability.capability_min = Capability{0, 0};
  EXPECT_EQ(reject(capability, fleet[0]), Rejection::capability);
}

TEST(Filters, IntentHealthAndAgeKeepADeviceOut) {
  const auto rejection_with = [](auto change) {
    TestFleet fleet(1);
    change(fleet[0]);
    return reject({}, fleet[0]);
  };
  EXPECT_EQ(rejection_with([](DeviceView& v) { v.intent = Intent::cordoned; }), Rejection::not_in_service);
  EXPECT_EQ(rejection_with([](DeviceView& v) { v.intent = Intent::draining; }), Rejection::not_in_service);
  EXPECT_EQ(rejection_with([](DeviceView& v) { v.health = Health::quarantined; }), Rejection::unhealthy);
  EXPECT_EQ(rejection_with([](DeviceView& v) { v.health = Health::lost; }), Rejection::unhealthy);
  EXPECT_EQ(rejection_with([](DeviceView& v) { v.health = Health::suspect; }), std::nullopt);
  EXPECT_EQ(rejection_with([](DeviceView& v) { v.health = Health::probation; }), std::nullopt);
  EXPECT_EQ(rejection_with([](DeviceView& v) {
              v.health = Health::probation;
              v.in_flight = 1;
            }),
            Rejection::unhealthy)
      << "on probation it gets one piece at a time";
  EXPECT_EQ(rejection_with([](DeviceView& v) { v.sample = SampleState::stale; }), Rejection::stale);
  EXPECT_EQ(rejection_with([](DeviceView& v) { v.sample = SampleState::unknown; }), std::nullopt);
}

TEST(Filters, SelectionFeaturesAndLabelsMustAllMatch) {
  TestFleet fleet(1);
  DeviceInfo& info = fleet.info(0);
  info.features = {"opencl_c", "ptx"};
  info.labels = {{"zone", "a"}};
  const auto rejection_for = [&](auto change) {
    Requirements requirements;
    change(requirements);
    return reject(requirements, fleet[0]);
  };
  EXPECT_EQ(rejection_for([&](Requirements& h) { h.only = {DeviceId("other"), info.id}; }), std::nullopt);
  EXPECT_EQ(rejection_for([&](Requirements& h) { h.only = {DeviceId("other")}; }), Rejection::not_selected);
  EXPECT_EQ(rejection_for([&](Requirements& h) { h.avoid = {DeviceId("other")}; }), std::nullopt);
  EXPECT_EQ(rejection_for([&](Requirements& h) { h.avoid = {info.id}; }), Rejection::not_selected);
  EXPECT_EQ(rejection_for([](Requirements& h) { h.backends = {"simulated"}; }), std::nullopt);
  EXPECT_EQ(rejection_for([](Requirements& h) { h.backends = {"cuda"}; }), Rejection::not_selected);
  EXPECT_EQ(rejection_for([](Requirements& h) { h.features = {"ptx"}; }), std::nullopt);
  EXPECT_EQ(rejection_for([](Requirements& h) { h.features = {"ptx", "stream_priority"}; }), Rejection::feature);
  EXPECT_EQ(rejection_for([](Requirements& h) { h.labels = {{"zone", "a"}}; }), std::nullopt);
  EXPECT_EQ(rejection_for([](Requirements& h) { h.labels = {{"zone", "b"}}; }), Rejection::feature);
  EXPECT_EQ(rejection_for([](Requirements& h) { h.labels = {{"rack", "1"}}; }), Rejection::feature);
}

TEST(Filters, TheFirstFilterInOrderIsNamed) {
  TestFleet fleet(1);
  Requirements requirements;
  requirements.memory_bytes_min = 100 * gib;
  requirements.capability_min = Capability{99, 0};
  fleet[0].sample = SampleState::stale;
  fleet[0].health = Health::lost;
  fleet[0].intent = Intent::cordoned;
  EXPECT_EQ(reject(requirements, fleet[0]), Rejection::not_in_service);
  fleet[0].intent = Intent::in_service;
  EXPECT_EQ(reject(requirements, fleet[0]), Rejection::unhealthy);
  fleet[0].health = Health::healthy;
  EXPECT_EQ(reject(requirements, fleet[0]), Rejection::stale);
  fleet[0].sample = SampleState::fresh;
  EXPECT_EQ(reject(requirements, fleet[0]), Rejection::capability);
}

TEST(Choose, S0_4_AnybodyCanWriteAPolicy) {
  // One const operation over the requirements and an ordered list of candidates.
  const Policy last = custom([](const Candidates& all) { return all.size() - 1; });
  TestFleet fleet(4);
  EXPECT_EQ(choose(last, {}, fleet, 0).winner, 3U);
  fleet[3].intent = Intent::cordoned;
  const Decision decision = choose(last, {}, fleet, 0);
  EXPECT_EQ(decision.winner, 2U) << "it sees only what the filters left; its answer is mapped back";
  EXPECT_FALSE(decision.policy_misbehaved);
  // It may decline: no device is better than any of these.
  Policy choosy = custom([](const Candidates&) { return Policy::declined; });
  Explanation explanation;
  const Decision none = choose(choosy, {}, fleet, 0, &explanation);
  EXPECT_FALSE(none.winner);
  EXPECT_FALSE(none.policy_misbehaved);
  EXPECT_EQ(explanation.reason(), "custom declined 3 eligible devices");
  Requirements preferring;
  preferring.prefer = {fleet.info(1).id};
  EXPECT_FALSE(choose(choosy, preferring, fleet, 0).winner) << "also if a device is preferred";
  EXPECT_TRUE(rank(choosy, preferring, fleet, 0).empty());
  EXPECT_EQ(rank(last, {}, fleet, 0), (std::vector<std::size_t>{2, 1, 0})) << "ranked without costs of its own";
  fleet[0].intent = fleet[1].intent = fleet[2].intent = Intent::draining;
  EXPECT_FALSE(choose(last, {}, fleet, 0).winner);
}

TEST(Choose, S0_F10_AnAnswerOutsideOfTheListIsOverruledAndReported) {
  TestFleet fleet(3);
  fleet[0].in_flight = 1;
  fleet[1].health = Health::quarantined;
  const Policy outside = custom([](const Candidates& all) { return all.size(); });
  const Policy throwing = custom([](const Candidates&) -> std::size_t { throw std::runtime_error("no"); });
  for (const Policy& policy : {outside, throwing, custom(nullptr)}) {
    Explanation explanation;
    const Decision decision = choose(policy, {}, fleet, 0, &explanation);
    EXPECT_TRUE(decision.policy_misbehaved);
    EXPECT_EQ(decision.winner, 2U) << "least_loaded decides instead, among the eligible";
    EXPECT_EQ(explanation.winner, fleet.info(2).id);
    EXPECT_EQ(explanation.reason(),
              "least_loaded, because custom chose no eligible device, chose dev-02 among 2 eligible devices; "
              "next is dev-00");
    EXPECT_EQ(rank(policy, {}, fleet, 0), (std::vector<std::size_t>{2, 0}));
  }
}

}  // namespace
}  // namespace berth::placement
