// A whole device, a device that others use, and one that is kept for a request
// ahead in the queue.
#include <gtest/gtest.h>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

Requirements whole() {
  Requirements requirements;
  requirements.whole = true;
  return requirements;
}
Explanation explain_with(std::span<const DeviceView> views, const Requirements& requirements) {
  Explanation explanation;
  choose(*find_policy("least_loaded"), requirements, views, 0, &explanation);
  return explanation;
}

TEST(Whole, PracticallyAllOfTheMemoryMustBeFree) {
  TestFleet fleet(1);
  const auto rejection_with = [&](std::uint64_t total, std::uint64_t used) {
    fleet.info(0).memory_bytes_total = total;
    fleet[0].memory_bytes_free = total - used;
    return reject(whole(), fleet[0]);
  };
  EXPECT_EQ(rejection_with(16 * gib, 0), std::nullopt);
  EXPECT_EQ(rejection_with(16 * gib, gib), std::nullopt) << "what a driver keeps for itself";
  EXPECT_EQ(rejection_with(16 * gib, gib + 1), Rejection::occupied);
  EXPECT_EQ(rejection_with(100 * gib, 3 * gib - 64), std::nullopt) << "more on a larger device";
  EXPECT_EQ(rejection_with(100 * gib, 3 * gib + 64), Rejection::occupied);
  EXPECT_EQ(rejection_with(gib / 2, gib / 4), std::nullopt) << "less than a driver may keep is ignored";
  rejection_with(16 * gib, 0);
  fleet[0].memory_bytes_promised = 2 * gib;
  EXPECT_EQ(reject(whole(), fleet[0]), Rejection::occupied) << "promised bytes are not free";
  EXPECT_EQ(reject({}, fleet[0]), std::nullopt) << "only requests for whole devices check this";
}

TEST(Whole, ADeviceThatDoesNotAnswerOrHasProcessesOfOthersIsNotWhole) {
  const auto detail_with = [](auto change) {
    TestFleet fleet(1);
    change(fleet[0], fleet.info(0));
    const Explanation explanation = explain_with(fleet, whole());
    return explanation.candidates[0].rejection ? explanation.candidates[0].detail : "whole";
  };
  EXPECT_EQ(detail_with([](auto&, auto&) {}), "whole");
  EXPECT_EQ(detail_with([](auto& view, auto&) { view.sample = SampleState::unknown; }), "does not answer");
  EXPECT_EQ(detail_with([](auto& view, auto&) { view.other_processes = 1; }), "in use by 1 other process");
  EXPECT_EQ(detail_with([](auto& view, auto&) { view.other_processes = 3; }), "in use by 3 other processes");
  EXPECT_EQ(detail_with([](auto& view, auto&) { view.memory_bytes_free = OptionalU64(); }),
            "does not report free memory");
  EXPECT_EQ(detail_with([](auto& view, auto&) { view.memory_bytes_free = gib; }),
            "15.0 GiB of its 16.0 GiB are in use");
  EXPECT_EQ(detail_with([](auto& view, auto&) { view.memory_bytes_promised = 5 * gib; }),
            "5.0 GiB of its 16.0 GiB are promised");
}

TEST(Whole, OfTheProcessorOnlyAnAnswerIsAskedFor) {
  TestFleet fleet(3);
  fleet.info(0).is_fallback = true;
  fleet.info(1).backend = "host";
  fleet.info(2).memory_bytes_total.reset();
  for (std::size_t i = 0; i < 3; ++i) {
    fleet[i].memory_bytes_free = gib;
    fleet[i].other_processes = 9;
    EXPECT_EQ(reject(whole(), fleet[i]), std::nullopt) << i;
    fleet[i].sample = SampleState::unknown;
    EXPECT_EQ(reject(whole(), fleet[i]), Rejection::occupied) << i;
  }
}

TEST(Whole, ImpliesExclusive) {
  TestFleet fleet(2);
  fleet[0].holders = 1;
  EXPECT_EQ(reject(whole(), fleet[0]), Rejection::held);
  EXPECT_EQ(winner_of("least_loaded", fleet, whole()), 1U);
  EXPECT_EQ(explain_with(fleet, whole()).funnel_text(), "2 devices -> 1 not held -> 1 unused -> dev-01");
}

TEST(Whole, SaysWhatKeepsItOut) {
  TestFleet fleet(3);
  for (std::size_t i = 0; i < 3; ++i) fleet[i].other_processes = 1;
  Explanation explanation = explain_with(fleet, whole());
  EXPECT_EQ(explanation.cause, Cause::occupied);
  EXPECT_EQ(explanation.reason(), "every device is in use (dev-00: in use by 1 other process; 2 more)");
  EXPECT_EQ(explanation.funnel_text(), "3 devices -> 3 not held -> 0 unused -> none");
  // What is known comes before what a silent device may be.
  fleet[1].sample = SampleState::unknown;
  EXPECT_EQ(explain_with(fleet, whole()).cause, Cause::occupied);
  fleet[0].sample = fleet[2].sample = SampleState::unknown;
  explanation = explain_with(fleet, whole());
  EXPECT_EQ(explanation.cause, Cause::silent);
  EXPECT_EQ(explanation.reason(), "no device reports whether it is in use (dev-00: does not answer; 2 more)");
}

TEST(Whole, ADeviceThatHasNotReportedLatelyIsStaleAndNothingElse) {
  TestFleet fleet(1);
  fleet[0].sample = SampleState::stale;
  const Explanation explanation = explain_with(fleet, whole());
  EXPECT_EQ(explanation.cause, Cause::stale);
  EXPECT_EQ(explanation.candidates[0].causes, std::vector{Cause::stale});
}

TEST(Kept, ADeviceThatIsKeptIsNotGivenToOthersAndSaysSo) {
  TestFleet fleet(2);
  fleet[0].kept_for_waiting = true;
  EXPECT_EQ(reject({}, fleet[0]), Rejection::kept);
  EXPECT_EQ(winner_of("least_loaded", fleet), 1U) << "also without requirements";
  fleet[1].kept_for_waiting = true;
  const Explanation explanation = explain_with(fleet, {});
  EXPECT_EQ(explanation.cause, Cause::kept);
  EXPECT_EQ(explanation.reason(),
            "every device is reserved for earlier requests (dev-00: reserved for a request that has waited longer; "
            "1 more)");
  EXPECT_EQ(explanation.funnel_text(), "2 devices -> 0 not reserved for earlier requests -> none");
}

TEST(Kept, ADeviceWithRoomThatIsKeptIsTheReasonEvenIfMoreDevicesAreFull) {
  TestFleet fleet(3);
  fleet[0].memory_bytes_promised = fleet[1].memory_bytes_promised = 15 * gib;
  fleet[2].kept_for_waiting = true;
  EXPECT_EQ(explain_with(fleet, needing(4 * gib)).reason(),
            "every device with room is reserved for earlier requests (dev-02: reserved for a request that has waited "
            "longer)");
}

class UsedByOthers : public testing::TestWithParam<Policy> {};

TEST_P(UsedByOthers, ComesAfterAllOthersWhateverThePolicySays) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    TestFleet fleet = TestFleet::random(2 + seed % 9, seed);
    for (std::size_t i = 0; i < fleet.size(); ++i) fleet[i].used_by_others = splitmix64(seed * 31 + i) % 2 == 0;
    const std::vector<std::size_t> order = rank(GetParam(), {}, fleet, seed);
    for (std::size_t i = 1; i < order.size(); ++i)
      ASSERT_LE(fleet[order[i - 1]].used_by_others, fleet[order[i]].used_by_others) << "seed " << seed;
    const Decision decision = choose(GetParam(), {}, fleet, seed);
    ASSERT_EQ(decision.winner.has_value(), !order.empty());
    if (!decision.winner) continue;
    ASSERT_EQ(*decision.winner, order.front()) << "seed " << seed;
  }
}

TEST_P(UsedByOthers, ComesBeforeALessPreferredOne) {
  TestFleet fleet(3);
  fleet[2].used_by_others = true;
  Requirements requirements;
  requirements.prefer = {fleet.info(2).id};
  EXPECT_EQ(rank(GetParam(), requirements, fleet, 0).front(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Policies, UsedByOthers, testing::ValuesIn(policies().begin(), policies().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Whole, TheExplanationSaysThatLoadDecided) {
  TestFleet fleet(3);
  const auto details = [&] {
    std::string text;
    for (const Explanation::Candidate& candidate : explain_with(fleet, {}).candidates) text += candidate.detail + ";";
    return text;
  };
  EXPECT_EQ(details(), ";;;");
  fleet[0].used_by_others = true;
  EXPECT_EQ(details(), "others use it;;;") << "an unused one was chosen";
  for (std::size_t i = 0; i < 3; ++i) fleet[i].used_by_others = true;
  fleet[0].id_order = 2;  // the busiest
  fleet[1].id_order = 0;
  fleet[2].id_order = 1;
  EXPECT_EQ(details(), "others use it more than dev-01;others use it;others use it more than dev-01;");
}

TEST(Whole, AnUnusedPairComesBeforeAJoinedPairThatIsUsed) {
  TestFleet fleet(4);
  fleet[0].used_by_others = true;
  const Topology joined = make_topology({fleet.info(0).id, fleet.info(1).id, fleet.info(2).id, fleet.info(3).id},
                                        {{fleet.info(0).id, fleet.info(1).id, LinkKind::nvlink, 4, true}})
                              .value();
  EXPECT_EQ(choose_group(*find_policy("least_loaded"), {}, 2, fleet, joined, 0).winners,
            (std::vector<std::size_t>{1, 2}));
}

}  // namespace
}  // namespace berth::placement
