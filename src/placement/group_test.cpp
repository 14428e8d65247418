// Groups of devices: what every policy promises, and how requirements and topology
// decide among the groups that fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "placement/test_groups.hpp"
#include "world/test_random_cases.hpp"

namespace berth::placement {
namespace {

constexpr std::uint64_t group_seeds = world::random_cases(200);

Requirements random_wishes(TestFleet& fleet, std::uint64_t seed) {
  SeededRandom random(splitmix64(seed ^ 0x77));
  const auto some = [&] { return fleet.info(random.below(fleet.size())).id; };
  Requirements requirements;
  if (random.below(2) == 0) requirements.memory_bytes_min = random.below(8 * gib);
  if (random.below(3) == 0) requirements.memory_share = static_cast<double>(1 + random.below(8)) / 8;
  if (random.below(4) == 0) requirements.exclusive = true;
  if (random.below(6) == 0) requirements.whole = true;
  if (random.below(3) == 0) requirements.prefer = {some(), some()};
  if (random.below(3) == 0) requirements.near = some();
  return requirements;
}
Topology random_topology(TestFleet& fleet, std::uint64_t seed) {
  SeededRandom random(splitmix64(seed ^ 0x55));
  std::vector<DeviceId> ids;
  std::vector<Link> links;
  for (std::size_t i = 0; i < fleet.size(); ++i) ids.push_back(fleet.info(i).id);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (random.below(2) == 0) links.push_back({ids[i], ids[j], static_cast<LinkKind>(random.below(8)), 1, {}});
    }
  }
  return make_topology(ids, links).value();
}
Topology pairs_of(TestFleet& fleet, std::initializer_list<std::pair<std::size_t, std::size_t>> joined) {
  std::vector<DeviceId> ids;
  std::vector<Link> links;
  for (std::size_t i = 0; i < fleet.size(); ++i) ids.push_back(fleet.info(i).id);
  for (const auto& [a, b] : joined) links.push_back({ids[a], ids[b], LinkKind::nvlink, 4, true});
  return make_topology(ids, links).value();
}

class GroupContract : public testing::TestWithParam<Policy> {
 protected:
  const Policy& policy() const { return GetParam(); }
};

TEST_P(GroupContract, AGroupIsWholeDistinctAndFitsAndIsFoundWheneverThereIsOne) {
  std::size_t found = 0;
  for (std::uint64_t seed = 0; seed < group_seeds; ++seed) {
    TestFleet fleet = random_machine(1 + seed % 8, seed);
    const Requirements requirements = random_wishes(fleet, seed);
    const Topology topology = seed % 3 == 0 ? Topology{} : random_topology(fleet, seed);
    for (std::size_t count = 1; count <= fleet.size() + 1; ++count) {
      Explanation explanation;
      const GroupDecision decision = choose_group(policy(), requirements, count, fleet, topology, seed, &explanation);
      const bool any = any_group_fits(requirements, count, fleet);
      ASSERT_EQ(decision.winners.size(), any ? count : 0) << "seed " << seed << " count " << count;
      ASSERT_FALSE(decision.policy_misbehaved);
      ASSERT_EQ(explanation.winners.size(), decision.winners.size());
      ASSERT_EQ(explanation.count, count);
      ASSERT_FALSE(explanation.to_text().empty());
      ASSERT_EQ(explanation.cause.has_value(), !any);
      if (!any) continue;
      ++found;
      const std::set<std::size_t> distinct(decision.winners.begin(), decision.winners.end());
      ASSERT_EQ(distinct.size(), count) << "seed " << seed;
      ASSERT_TRUE(fits_together(requirements, fleet, decision.winners)) << "seed " << seed;
    }
  }
  EXPECT_GT(found, group_seeds / 2) << "enough of the random machines must have a group";
}

TEST_P(GroupContract, ExclusiveIsAloneAndNobodyJoinsAnExclusiveHolder) {
  for (std::uint64_t seed = 0; seed < group_seeds; ++seed) {
    TestFleet fleet = random_machine(6, seed);
    Requirements requirements;
    requirements.exclusive = seed % 3 == 0;
    requirements.whole = seed % 3 == 1;
    for (const std::size_t i : choose_group(policy(), requirements, 2, fleet, {}, seed).winners) {
      ASSERT_FALSE(fleet[i].held_exclusively) << "seed " << seed;
      ASSERT_TRUE(seed % 3 == 2 || fleet[i].holders == 0) << "seed " << seed;
    }
  }
}

TEST_P(GroupContract, OfAllGroupsTheMostPreferredThenTheNearestThenTheUnusedThenTheClosestTogether) {
  using Cost = std::tuple<std::size_t, std::uint64_t, std::size_t, std::uint64_t>;
  for (std::uint64_t seed = 0; seed < group_seeds; ++seed) {
    TestFleet fleet = random_machine(2 + seed % 7, seed);
    const Requirements requirements = random_wishes(fleet, seed);
    const Topology topology = random_topology(fleet, seed);
    const auto cost_of = [&](const std::vector<std::size_t>& group) {
      std::vector<DeviceId> ids;
      Cost cost{};
      for (const std::size_t i : group) {
        ids.push_back(fleet.info(i).id);
        std::get<0>(cost) += std::count(requirements.prefer.begin(), requirements.prefer.end(), ids.back()) == 0;
        if (requirements.near && *requirements.near != ids.back())
          std::get<1>(cost) += link_cost(find_link(topology, *requirements.near, ids.back()));
        std::get<2>(cost) += fleet[i].used_by_others;
      }
      std::get<3>(cost) = group_cost(topology, ids);
      return cost;
    };
    const std::size_t count = 1 + seed % 3;
    std::optional<Cost> least;
    each_group(fleet.size(), count, [&](const auto& group) {
      if (fits_together(requirements, fleet, group) && (!least || cost_of(group) < *least)) least = cost_of(group);
    });
    const GroupDecision decision = choose_group(policy(), requirements, count, fleet, topology, seed);
    ASSERT_EQ(decision.winners.empty(), !least.has_value());
    if (!least) continue;
    ASSERT_EQ(cost_of(decision.winners), *least) << "seed " << seed;
  }
}

TEST_P(GroupContract, OneDeviceIsAGroupLikeAnyOther) {
  for (std::uint64_t seed = 0; seed < group_seeds; ++seed) {
    TestFleet fleet = random_machine(1 + seed % 9, seed);
    const Requirements requirements = random_wishes(fleet, seed);
    const GroupDecision group = choose_group(policy(), requirements, 1, fleet, {}, seed);
    const Decision single = choose(policy(), requirements, fleet, seed);
    ASSERT_EQ(single.winner.has_value(), !group.winners.empty()) << "seed " << seed;
    if (!single.winner) continue;
    ASSERT_EQ(*single.winner, group.winners.front()) << "seed " << seed;
  }
}

class OrderFreeGroup : public GroupContract {};

TEST_P(OrderFreeGroup, TheSetDoesNotDependOnReportOrder) {
  for (std::uint64_t seed = 0; seed < group_seeds; ++seed) {
    TestFleet fleet = random_machine(2 + seed % 20, seed);
    const Requirements requirements = random_wishes(fleet, seed);
    const Topology topology = random_topology(fleet, seed);
    std::vector<DeviceView> shuffled(fleet.views().begin(), fleet.views().end());
    std::sort(shuffled.begin(), shuffled.end(), [seed](const DeviceView& a, const DeviceView& b) {
      return splitmix64(seed ^ a.id_order) < splitmix64(seed ^ b.id_order);
    });
    const auto ids = [&](std::span<const DeviceView> views) {
      std::vector<std::string> names;
      for (const std::size_t i : choose_group(policy(), requirements, 1 + seed % 4, views, topology, seed).winners)
        names.push_back(views[i].info->id.text());
      return names;
    };
    ASSERT_EQ(ids(fleet), ids(shuffled)) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, GroupContract, testing::ValuesIn(policies().begin(), policies().end()),
                         name_of<testing::TestParamInfo<Policy>>);
INSTANTIATE_TEST_SUITE_P(Policies, OrderFreeGroup, testing::ValuesIn(order_free_policies()),
                         name_of<testing::TestParamInfo<Policy>>);

const Policy& least_loaded() { return *find_policy("least_loaded"); }
using Positions = std::vector<std::size_t>;

TEST(Group, APairLiesTogetherThoughOthersAreLessLoaded) {
  TestFleet fleet(4);
  fleet[2].in_flight = fleet[3].in_flight = 5;
  EXPECT_EQ(choose_group(least_loaded(), {}, 2, fleet, {}, 0).winners, (Positions{0, 1}));
  EXPECT_EQ(choose_group(least_loaded(), {}, 2, fleet, pairs_of(fleet, {{2, 3}}), 0).winners, (Positions{2, 3}));
  EXPECT_EQ(choose_group(least_loaded(), {}, 2, fleet, pairs_of(fleet, {{2, 3}, {0, 1}}), 0).winners, (Positions{0, 1}))
      << "among equals the less loaded";
}

TEST(Group, ALargeMachineIsSearchedForAGroupThatLiesTogether) {
  TestFleet fleet(24);
  const Topology topology = pairs_of(fleet, {{20, 21}, {20, 22}, {21, 22}, {3, 4}, {4, 5}});
  EXPECT_EQ(choose_group(least_loaded(), {}, 3, fleet, topology, 0).winners, (Positions{20, 21, 22}));
}

TEST(Group, InALargeMachineNoExchangeOfOneMemberMakesItCheaper) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    TestFleet fleet(17 + seed % 8);
    const Topology topology = random_topology(fleet, seed);
    const std::size_t count = 2 + seed % 6;
    const auto cost_of = [&](const Positions& group) {
      std::vector<DeviceId> ids;
      for (const std::size_t i : group) ids.push_back(fleet.info(i).id);
      return group_cost(topology, ids);
    };
    const Positions best = choose_group(least_loaded(), {}, count, fleet, topology, 0).winners;
    ASSERT_EQ(best.size(), count);
    for (std::size_t out = 0; out < count; ++out) {
      for (std::size_t in = 0; in < fleet.size(); ++in) {
        if (std::count(best.begin(), best.end(), in) != 0) continue;
        Positions other = best;
        other[out] = in;
        ASSERT_LE(cost_of(best), cost_of(other)) << "seed " << seed;
      }
    }
  }
}

TEST(Group, PartsOfOneDeviceNeedTheirBytesTogether) {
  TestFleet fleet(4);
  for (std::size_t i = 0; i < 3; ++i) fleet.info(i).memory_domain = "gpu";
  Requirements requirements;
  requirements.memory_bytes_min = 9 * gib;
  Explanation explanation;
  EXPECT_EQ(choose_group(least_loaded(), requirements, 2, fleet, {}, 0, &explanation).winners, (Positions{0, 3}));
  EXPECT_EQ(explanation.funnel_text(), "4 devices -> 4 fit 9.0 GiB -> 1 pair: dev-00, dev-03");
  EXPECT_TRUE(choose_group(least_loaded(), requirements, 3, fleet, {}, 0, &explanation).winners.empty());
  EXPECT_EQ(explanation.funnel_text(), "4 devices -> 4 fit 9.0 GiB -> 2 of the 3 requested");
  EXPECT_EQ(
      explanation.reason(),
      "only 2 of the 3 requested devices are available: parts of one device share its memory, which has no room for "
      "all of them");
  requirements.memory_bytes_min = 8 * gib;
  EXPECT_EQ(choose_group(least_loaded(), requirements, 3, fleet, {}, 0).winners, (Positions{0, 1, 3}));
}

TEST(Group, SaysWhatIsMissing) {
  TestFleet fleet(5);
  fleet[0].intent = Intent::cordoned;
  fleet[4].memory_bytes_free = gib;
  Requirements requirements;
  requirements.memory_bytes_min = 2 * gib;
  Explanation explanation;
  choose_group(least_loaded(), requirements, 4, fleet, {}, 0, &explanation);
  EXPECT_EQ(explanation.funnel_text(), "5 devices -> 4 in service -> 3 fit 2.0 GiB -> 3 of the 4 requested");
  EXPECT_EQ(explanation.reason(),
            "only 3 of the 4 requested devices are available: no other device has 2.0 GiB free, because processes use "
            "the memory "
            "(largest: 1.0 GiB on dev-04)");
  choose_group(least_loaded(), requirements, 6, fleet, {}, 0, &explanation);
  EXPECT_EQ(explanation.reason(), "6 devices were requested, but there are only 5");
  requirements.memory_bytes_min = 0;
  choose_group(least_loaded(), requirements, 4, fleet, {}, 0, &explanation);
  EXPECT_EQ(explanation.funnel_text(), "5 devices -> 4 in service -> 1 group of 4: dev-01, dev-02, dev-03, dev-04");
}

TEST(Wishes, PreferAndNearComeFirstAndNeverKeepAnybodyOut) {
  TestFleet fleet(4);
  fleet[3].in_flight = 9;
  Requirements requirements;
  requirements.prefer = {fleet.info(3).id};
  EXPECT_EQ(choose(least_loaded(), requirements, fleet, 0).winner, 3U);
  EXPECT_EQ(rank(least_loaded(), requirements, fleet, 0), (Positions{3, 0, 1, 2}));
  fleet[3].health = Health::lost;
  EXPECT_EQ(choose(least_loaded(), requirements, fleet, 0).winner, 0U);

  requirements = {};
  requirements.near = fleet.info(1).id;
  const Topology topology = pairs_of(fleet, {{1, 2}});
  EXPECT_EQ(rank(least_loaded(), requirements, fleet, 0, topology), (Positions{1, 2, 0}));
  fleet[1].intent = Intent::cordoned;
  EXPECT_EQ(rank(least_loaded(), requirements, fleet, 0, topology), (Positions{2, 0}))
      << "near d1, although d1 is cordoned";
}

TEST(Wishes, APolicyThatTakesTurnsDoesSoAmongThePreferred) {
  TestFleet fleet(5);
  Requirements requirements;
  requirements.prefer = {fleet.info(1).id, fleet.info(3).id};
  Positions winners;
  for (Ticket ticket = 0; ticket < 4; ++ticket)
    winners.push_back(*choose(*find_policy("round_robin"), requirements, fleet, ticket).winner);
  EXPECT_EQ(winners, (Positions{1, 3, 1, 3}));
}

TEST(Requirements, AShareIsAPartOfWhatTheDeviceHas) {
  TestFleet fleet(2);
  fleet.info(0).memory_bytes_total = 80 * gib;
  Requirements requirements;
  requirements.memory_share = 0.5;
  EXPECT_EQ(requirements.memory_bytes_needed(fleet.info(0)), OptionalU64(40 * gib));
  EXPECT_EQ(requirements.memory_bytes_needed(fleet.info(1)), OptionalU64(8 * gib));
  EXPECT_EQ(reject(requirements, fleet[0]), Rejection::memory) << "16 GiB are free";
  EXPECT_EQ(reject(requirements, fleet[1]), std::nullopt);
  requirements.memory_bytes_min = 9 * gib;
  EXPECT_EQ(requirements.memory_bytes_needed(fleet.info(1)), OptionalU64(9 * gib)) << "the larger of both";
  requirements.memory_share = 1;
  EXPECT_EQ(requirements.memory_bytes_needed(fleet.info(1)), OptionalU64(16 * gib));
  fleet.info(1).memory_bytes_total.reset();
  EXPECT_EQ(requirements.memory_bytes_needed(fleet.info(1)), OptionalU64());
  EXPECT_EQ(reject(requirements, fleet[1]), Rejection::memory) << "half of an unknown total is unknown";
  Explanation explanation;
  requirements.memory_bytes_min = 0;
  requirements.memory_share = 0.625;
  choose(least_loaded(), requirements, fleet, 0, &explanation);
  EXPECT_EQ(explanation.candidates[1].detail, "needs 62.5 % of the memory, does not report its memory size");
  EXPECT_EQ(explanation.funnel_text(), "2 devices -> 0 fit 62.5 % of the memory -> none");
}

TEST(Filters, HeldComesBeforeMemoryAndSaysByWhom) {
  TestFleet fleet(2);
  fleet[0].held_exclusively = true;
  fleet[0].holders = 1;
  fleet[1].holders = 2;
  Requirements requirements;
  EXPECT_EQ(reject(requirements, fleet[0]), Rejection::held);
  EXPECT_EQ(reject(requirements, fleet[1]), std::nullopt);
  EXPECT_EQ(choose(least_loaded(), requirements, fleet, 0).winner, 1U) << "also without other requirements";
  requirements.exclusive = true;
  requirements.memory_bytes_min = 99 * gib;
  EXPECT_EQ(reject(requirements, fleet[1]), Rejection::held);
  requirements.memory_bytes_min = 0;
  Explanation explanation;
  choose(least_loaded(), requirements, fleet, 0, &explanation);
  EXPECT_EQ(explanation.candidates[0].detail, "held exclusively");
  EXPECT_EQ(explanation.candidates[1].detail, "held by 2 leases or open pools, exclusive use requested");
  EXPECT_EQ(explanation.funnel_text(), "2 devices -> 0 not held -> none");
}

}  // namespace
}  // namespace berth::placement
