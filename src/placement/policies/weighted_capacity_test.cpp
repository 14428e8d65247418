#include <gtest/gtest.h>
#ifdef BERTH_HAS_RAPIDCHECK
#include <rapidcheck.h>
#endif

#include <algorithm>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

// Steps of `steps` after which some device is a whole piece or more away from
// its exact share.
std::size_t steps_out_of_quota(const std::vector<std::uint32_t>& weights_milli, std::size_t steps, bool finish) {
  TestFleet fleet(weights_milli.size());
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < weights_milli.size(); ++i) {
    fleet[i].weight_milli = weights_milli[i];
    sum += weights_milli[i];
  }
  std::size_t out = 0;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    winners_of("weighted_capacity", fleet, 1, finish);
    bool within = true;
    for (const DeviceView& view : fleet.views()) {
      const std::uint64_t exact = step * view.weight_milli;  // both sides times sum
      const std::uint64_t given = view.charged_total * sum;
      within &= (given > exact ? given - exact : exact - given) < sum;
    }
    out += within ? 0 : 1;
  }
  return out;
}

TEST(WeightedCapacity, S3_F2_ExactProportionsAlsoWhenWorkComesOneAfterTheOther) {
  for (const bool finish : {true, false}) {
    TestFleet fleet(3);
    for (std::uint32_t i = 0; i < 3; ++i) fleet[i].weight_milli = 1000 * (i + 1);
    const std::vector<std::size_t> winners = winners_of("weighted_capacity", fleet, 60, finish);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(std::count(winners.begin(), winners.end(), i), static_cast<std::ptrdiff_t>(10 * (i + 1)));
    }
  }
}

TEST(WeightedCapacity, EveryStepIsWithinOnePieceOfTheExactShare) {
  EXPECT_EQ(steps_out_of_quota({1000, 2000, 3000}, 600, true), 0U);
  EXPECT_EQ(steps_out_of_quota({1000, 1000, 10000}, 600, true), 0U);
  // One heavy device among many light ones: without the quota it runs ahead.
  EXPECT_EQ(steps_out_of_quota({900, 20, 20, 20, 20, 20}, 1000, true), 0U);
  EXPECT_EQ(steps_out_of_quota({1, 1, 1, 4'294'967'295}, 100, false), 0U);
}

TEST(WeightedCapacity, LargeCountsShareOutAsSmallOnesDo) {
  // Beyond 32 bits the same rule in wider numbers.
  TestFleet small(3);
  TestFleet large(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    small[i].weight_milli = large[i].weight_milli = 1000 * (i + 1);
    large[i].charged_total = 10'000'000'000 * (i + 1);
  }
  EXPECT_EQ(winners_of("weighted_capacity", small, 30), winners_of("weighted_capacity", large, 30));
  small[0].charged_total = ~std::uint64_t{0} >> 2;
  EXPECT_EQ(winner_of("weighted_capacity", small), 2U) << "a count larger than a pool's is only a count";
}

TEST(WeightedCapacity, S3_F11_TheDescriptionIsWhatHappens) {
  // No draw (the ticket changes nothing), shares counted over all work (not the
  // queue of the moment), ties to the lowest id.
  TestFleet fleet(3);
  for (Ticket ticket = 0; ticket < 100; ++ticket) EXPECT_EQ(winner_of("weighted_capacity", fleet, {}, ticket), 0U);
  EXPECT_EQ(find_policy("weighted_capacity")->ticket, TicketKind::none);
  fleet[0].in_flight = 100;
  EXPECT_EQ(winner_of("weighted_capacity", fleet), 0U);
  fleet[0].charged_total = 1;
  EXPECT_EQ(winner_of("weighted_capacity", fleet), 1U);
  fleet[1].id_order = 2;
  fleet[2].id_order = 1;
  EXPECT_EQ(winner_of("weighted_capacity", fleet), 2U);
}

TEST(WeightedCapacity, S3_F12_TheLargestWeightIsNotPassedOver) {
  // Infinity cannot be expressed here: a weight is a whole number of thousandths, and
  // setting one that is not finite and positive is refused by the pool.
  TestFleet fleet(3);
  fleet[1].weight_milli = ~std::uint32_t{0};
  EXPECT_EQ(winner_of("weighted_capacity", fleet), 1U);
  EXPECT_EQ(winner_of("reference_weighted_capacity", fleet), 1U);
  EXPECT_EQ(winner_of("least_loaded", fleet), 1U);
}

#ifdef BERTH_HAS_RAPIDCHECK
TEST(WeightedCapacity, SharesAreExactForAnyWeights) {
  EXPECT_TRUE(rc::check("within one piece of the exact share at every step", [] {
    const auto weights =
        *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(1, 100'000)));
    RC_ASSERT(steps_out_of_quota(weights, 200, true) == 0);
  }));
}
#else
TEST(WeightedCapacity, LawsNeedRapidcheck) { GTEST_SKIP() << "rapidcheck is not installed"; }
#endif

}  // namespace
}  // namespace berth::placement
