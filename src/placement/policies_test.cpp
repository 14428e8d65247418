// The contract of every policy, instantiated from the list, and the list itself.
#include <gtest/gtest.h>
#ifdef BERTH_HAS_RAPIDCHECK
#include <rapidcheck.h>
#endif

#include <algorithm>
#include <set>

#include "placement/test_fleet.hpp"
#include "placement/view_candidates.hpp"
#include "world/test_random_cases.hpp"

namespace berth::placement {
namespace {

constexpr std::uint64_t policy_seeds = world::random_cases(300);

class PolicyContract : public testing::TestWithParam<Policy> {
 protected:
  const Policy& policy() const { return GetParam(); }
};

Requirements random_requirements(std::uint64_t seed) {
  SeededRandom random(splitmix64(seed));
  Requirements requirements;
  if (random.below(3) == 0) requirements.memory_bytes_min = random.below(8 * gib);
  if (random.below(5) == 0) requirements.capability_min = Capability{static_cast<std::int32_t>(random.below(10)), 0};
  requirements.cost = static_cast<double>(random.below(100)) / 10;
  return requirements;
}

TEST_P(PolicyContract, HasANameASummaryAndBothHalves) {
  EXPECT_FALSE(policy().name.empty());
  EXPECT_FALSE(policy().summary.empty());
  EXPECT_TRUE(policy().choose);
  EXPECT_TRUE(policy().costs);
  EXPECT_EQ(find_policy(policy().name)->name, policy().name);
}

TEST_P(PolicyContract, NeverChoosesARejectedDeviceAndAlwaysAnEligibleOne) {
  for (std::uint64_t seed = 0; seed < policy_seeds; ++seed) {
    const TestFleet fleet = TestFleet::random(1 + seed % 12, seed);
    const Requirements requirements = random_requirements(seed);
    const auto views = fleet.views();
    const Decision decision = choose(policy(), requirements, views, splitmix64(seed));
    ASSERT_FALSE(decision.policy_misbehaved) << "seed " << seed;
    const bool any =
        std::any_of(views.begin(), views.end(), [&](const DeviceView& view) { return !reject(requirements, view); });
    ASSERT_EQ(decision.winner.has_value(), any) << "seed " << seed;
    if (!any) continue;
    ASSERT_LT(*decision.winner, views.size()) << "seed " << seed;
    ASSERT_FALSE(reject(requirements, views[*decision.winner])) << "seed " << seed;
  }
}

TEST_P(PolicyContract, EqualInputsGiveEqualAnswers) {
  for (std::uint64_t seed = 0; seed < policy_seeds; ++seed) {
    const TestFleet fleet = TestFleet::random(1 + seed % 12, seed);
    const TestFleet other = TestFleet::random(1 + seed % 12, seed);
    const Decision first = choose(policy(), random_requirements(seed), fleet, seed);
    ASSERT_EQ(first.winner, choose(policy(), random_requirements(seed), fleet, seed).winner) << "seed " << seed;
    ASSERT_EQ(first.winner, choose(policy(), random_requirements(seed), other, seed).winner) << "seed " << seed;
  }
}

// By rule, positions decide the ties of the references and what a ticket draws.

class OrderFreePolicy : public PolicyContract {};

TEST_P(OrderFreePolicy, WinnerDoesNotDependOnReportOrder) {
  for (std::uint64_t seed = 0; seed < policy_seeds; ++seed) {
    const TestFleet fleet = TestFleet::random(2 + seed % 11, seed);
    std::vector<DeviceView> shuffled(fleet.views().begin(), fleet.views().end());
    std::sort(shuffled.begin(), shuffled.end(), [seed](const DeviceView& a, const DeviceView& b) {
      return splitmix64(seed ^ a.id_order) < splitmix64(seed ^ b.id_order);
    });
    const Decision decision = choose(policy(), {}, fleet, seed);
    const Decision again = choose(policy(), {}, shuffled, seed);
    ASSERT_EQ(decision.winner.has_value(), again.winner.has_value()) << "seed " << seed;
    if (!decision.winner) continue;
    ASSERT_EQ(fleet.views()[*decision.winner].info->id, shuffled[*again.winner].info->id) << "seed " << seed;
  }
}

TEST_P(PolicyContract, ASingleCandidateWins) {
  for (std::uint64_t seed = 0; seed < policy_seeds; ++seed) {
    const TestFleet fleet = TestFleet::random(1, seed);
    ASSERT_EQ(policy().choose(ViewCandidates(fleet, random_requirements(seed), splitmix64(seed))), 0U)
        << "seed " << seed;
    ASSERT_EQ(policy().costs(ViewCandidates(fleet, random_requirements(seed), splitmix64(seed))).size(), 1U)
        << "seed " << seed;
  }
}

TEST_P(PolicyContract, TheWinnerHasTheLowestCost) {
  for (std::uint64_t seed = 0; seed < policy_seeds; ++seed) {
    const TestFleet fleet = TestFleet::random(1 + seed % 12, seed);
    const Requirements requirements = random_requirements(seed);
    const ViewCandidates all(fleet, requirements, splitmix64(seed));
    const std::size_t winner = policy().choose(all);
    const std::vector<std::uint64_t> costs = policy().costs(all);
    ASSERT_EQ(costs.size(), fleet.size());
    ASSERT_EQ(costs[winner], *std::min_element(costs.begin(), costs.end())) << "seed " << seed;
  }
}

TEST_P(PolicyContract, ExplanationRankingAndChoiceNameTheSameWinner) {
  for (std::uint64_t seed = 0; seed < policy_seeds; ++seed) {
    const TestFleet fleet = TestFleet::random(1 + seed % 12, seed);
    const Requirements requirements = random_requirements(seed);
    const auto views = fleet.views();
    Explanation explanation;
    const Decision decision = choose(policy(), requirements, views, seed, &explanation);
    ASSERT_EQ(decision.winner, choose(policy(), requirements, views, seed).winner) << "seed " << seed;
    const std::vector<std::size_t> ranking = rank(policy(), requirements, views, seed);
    ASSERT_EQ(explanation.candidates.size(), views.size());
    ASSERT_EQ(explanation.funnel.back().left, ranking.size()) << "seed " << seed;
    ASSERT_EQ(explanation.winner.has_value(), decision.winner.has_value());
    ASSERT_EQ(explanation.cause.has_value(), !decision.winner.has_value());
    ASSERT_FALSE(explanation.to_text().empty());
    if (!decision.winner) continue;
    ASSERT_EQ(*explanation.winner, views[*decision.winner].info->id) << "seed " << seed;
    ASSERT_EQ(ranking.front(), *decision.winner) << "seed " << seed;
    ASSERT_EQ(explanation.runner_up.has_value(), ranking.size() > 1) << "seed " << seed;
    for (std::size_t i = 0; i < views.size(); ++i) {
      const auto& candidate = explanation.candidates[i];
      ASSERT_EQ(candidate.rejection, reject(requirements, views[i])) << "seed " << seed;
      ASSERT_EQ(candidate.cost.has_value(), !candidate.rejection) << "seed " << seed;
      ASSERT_EQ(std::count(ranking.begin(), ranking.end(), i), candidate.rejection ? 0 : 1) << "seed " << seed;
    }
  }
}

TEST_P(PolicyContract, TheRankingNeverGoesDownInCost) {
  for (std::uint64_t seed = 0; seed < policy_seeds; ++seed) {
    const TestFleet fleet = TestFleet::random(1 + seed % 12, seed);
    Explanation explanation;
    choose(policy(), {}, fleet, seed, &explanation);
    std::uint64_t last = 0;
    for (const std::size_t i : rank(policy(), {}, fleet, seed)) {
      ASSERT_GE(*explanation.candidates[i].cost, last) << "seed " << seed;
      last = *explanation.candidates[i].cost;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, PolicyContract, testing::ValuesIn(policies().begin(), policies().end()),
                         name_of<testing::TestParamInfo<Policy>>);
INSTANTIATE_TEST_SUITE_P(Policies, OrderFreePolicy, testing::ValuesIn(order_free_policies()),
                         name_of<testing::TestParamInfo<Policy>>);

TEST(Policies, OnlyTheReferencesGoByPosition) {
  for (const Policy& policy : policies()) {
    EXPECT_EQ(policy.ties != Ties::stable_id, policy.name.starts_with("reference_")) << policy.name;
  }
}

TEST(Policies, NamesAreDifferentAndFound) {
  std::set<std::string_view> names;
  for (const Policy& policy : policies()) names.insert(policy.name);
  EXPECT_EQ(names.size(), policies().size());
  EXPECT_EQ(find_policy("no_such_policy"), nullptr);
  EXPECT_EQ(policy_named("spread").value()->name, "spread");
}

TEST(Policies, AnUnknownNameIsAnErrorThatNamesTheNearestAndListsAll) {
  const auto result = policy_named("least-loaded");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::not_found);
  EXPECT_EQ(result.error().message, "there is no policy \"least-loaded\"");
  EXPECT_TRUE(result.error().advice.starts_with("did you mean least_loaded? the policies are round_robin, "))
      << result.error().advice;
  for (const Policy& policy : policies()) {
    EXPECT_NE(result.error().advice.find(policy.name), std::string::npos) << policy.name;
  }
  EXPECT_TRUE(policy_named("x").error().advice.starts_with("the policies are round_robin"));
}

TEST(Policies, S3_1_TheFourStrategiesExistAndLeastLoadedIsTheDefault) {
  for (const std::string_view name : {"round_robin", "least_loaded", "weighted_capacity", "adaptive_throughput"}) {
    EXPECT_NE(find_policy(name), nullptr) << name;
  }
  // The policy that overrules a failing one, and the default for callers that name none.
  Policy broken;
  broken.choose = [](const Candidates&) -> std::size_t { return 99; };
  TestFleet fleet(3);
  fleet[0].in_flight = fleet[1].in_flight = 1;
  const Decision decision = choose(broken, {}, fleet, 0);
  EXPECT_EQ(decision.winner, 2U);
  EXPECT_TRUE(decision.policy_misbehaved);
}

TEST(Policies, X_F1_OneLibraryOneTieRuleAndTheReferencesByName) {
  // Equal devices, reported in the opposite order of their ids: all our policies
  // give the tie to the lowest id, the references to a position.
  TestFleet fleet(4);
  for (std::size_t i = 0; i < 4; ++i) fleet[i].id_order = static_cast<std::uint32_t>(3 - i);
  for (const Policy& policy : policies()) {
    const std::size_t winner = winner_of(policy.name, fleet);
    switch (policy.ties) {
      case Ties::stable_id:
        if (policy.ticket == TicketKind::none) {
          EXPECT_EQ(winner, 3U) << policy.name;
        }
        break;
      case Ties::first: EXPECT_EQ(winner, 0U) << policy.name; break;
      case Ties::last: EXPECT_EQ(winner, 3U) << policy.name; break;
    }
  }
  EXPECT_EQ(find_policy("reference_adaptive_throughput")->ties, Ties::last);
  for (const std::string_view name :
       {"reference_least_loaded", "reference_queue_depth", "reference_weighted_capacity", "reference_most_memory"}) {
    EXPECT_EQ(find_policy(name)->ties, Ties::first) << name;
  }
}

TEST(Policies, X_F6_HealthIsAnInputOfEveryPolicy) {
  for (const Policy& policy : policies()) {
    for (const Health out : {Health::quarantined, Health::lost}) {
      TestFleet fleet(3);
      for (Ticket ticket = 0; ticket < 50; ++ticket) {
        fleet[ticket % 3].health = out;
        EXPECT_NE(winner_of(policy.name, fleet, {}, ticket), ticket % 3) << policy.name;
        fleet[ticket % 3].health = Health::healthy;
      }
    }
  }
}

TEST(Policies, S3_F7_ADeviceThatFailsFastDoesNotAttractAllWork) {
  // Idle because it fails: suspect, nothing in flight, and once the fastest
  // measured. The others have one piece of work each.
  for (const std::string_view name :
       {"least_loaded", "adaptive_throughput", "power_of_two", "expected_finish", "spread", "best_fit"}) {
    TestFleet fleet(3);
    for (std::size_t i = 0; i < 3; ++i) {
      fleet[i].in_flight = 1;
      fleet[i].unit_cost_ns = 1'000'000;
      fleet[i].backlog_ns = 1'000'000;
    }
    fleet[1].in_flight = 0;
    fleet[1].backlog_ns = 0;
    fleet[1].memory_bytes_free = 15 * gib;
    std::size_t healthy_wins = 0;
    for (Ticket ticket = 0; ticket < 30; ++ticket) healthy_wins += winner_of(name, fleet, {}, ticket) != 1;
    EXPECT_LT(healthy_wins, 30U) << name << " prefers the idle device while it is healthy";
    fleet[1].health = Health::suspect;
    for (Ticket ticket = 0; ticket < 30; ++ticket) EXPECT_NE(winner_of(name, fleet, {}, ticket), 1U) << name;
    // It is not starved: alone, or (by load) when the others are busy enough, it is tried again.
    EXPECT_EQ(winner_of(name, fleet.views().subspan(1, 1)), 0U) << name;
  }
  TestFleet fleet(2);
  fleet[0].in_flight = 4;
  fleet[1].health = Health::suspect;
  EXPECT_EQ(winner_of("least_loaded", fleet), 1U);
  // The shares of these two do not grow by failing fast, so nothing is held back.
  EXPECT_EQ(winner_of("round_robin", fleet, {}, 1), 1U);
  fleet[0].charged_total = 1;
  EXPECT_EQ(winner_of("weighted_capacity", fleet), 1U);
}

#ifdef BERTH_HAS_RAPIDCHECK

TEST(PolicyLaws, AddingARejectedDeviceChangesNothing) {
  for (const Policy& policy : policies()) {
    const bool held = rc::check(std::string(policy.name), [&policy](std::uint64_t seed, std::uint8_t size) {
      const TestFleet fleet = TestFleet::random(1 + size % 16, seed);
      const auto views = fleet.views();
      std::vector<DeviceView> eligible;
      for (const DeviceView& view : views) {
        if (!reject({}, view)) eligible.push_back(view);
      }
      RC_PRE(!eligible.empty());
      const Decision all = choose(policy, {}, views, seed);
      const Decision some = choose(policy, {}, eligible, seed);
      RC_ASSERT(views[*all.winner].info == eligible[*some.winner].info);
    });
    EXPECT_TRUE(held) << policy.name;
  }
}

TEST(PolicyLaws, MoreLoadNeverHelpsADevice) {
  for (const std::string_view name : {"least_loaded", "adaptive_throughput", "expected_finish", "spread"}) {
    const bool held = rc::check(std::string(name), [name](std::uint64_t seed, std::uint8_t size, std::uint16_t more) {
      TestFleet fleet = TestFleet::random(2 + size % 15, seed);
      const Decision before = choose(*find_policy(name), {}, fleet, 0);
      RC_PRE(before.winner.has_value());
      // Any loser gets more work: the winner stays.
      const std::size_t loser = (*before.winner + 1 + more % (fleet.size() - 1)) % fleet.size();
      RC_PRE(fleet[loser].health != Health::probation);  // with work in flight it would be out
      fleet[loser].in_flight += std::min<std::uint32_t>(more, ~fleet[loser].in_flight);
      fleet[loser].backlog_ns += more;
      RC_ASSERT(choose(*find_policy(name), {}, fleet, 0).winner == before.winner);
    });
    EXPECT_TRUE(held) << name;
  }
}

TEST(PolicyLaws, BeyondSixtyFourDevicesTheAnswerIsFoundTheSameWay) {
  for (const Policy& policy : policies()) {
    const bool held = rc::check(std::string(policy.name), [&policy](std::uint64_t seed, std::uint8_t size) {
      const TestFleet fleet = TestFleet::random(60 + size % 16, seed);
      const Decision decision = choose(policy, {}, fleet, seed);
      const std::vector<std::size_t> ranking = rank(policy, {}, fleet, seed);
      RC_ASSERT(decision.winner.has_value() == !ranking.empty());
      if (decision.winner) RC_ASSERT(ranking.front() == *decision.winner);
    });
    EXPECT_TRUE(held) << policy.name;
  }
}

#else
TEST(PolicyLaws, NeedRapidcheck) { GTEST_SKIP() << "rapidcheck is not installed"; }
#endif

}  // namespace
}  // namespace berth::placement
