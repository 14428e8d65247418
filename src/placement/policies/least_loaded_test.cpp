#include <gtest/gtest.h>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

using Winners = std::vector<std::size_t>;

TEST(LeastLoaded, FewestInFlightWhereSpeedsAreEqual) {
  TestFleet fleet(3);
  fleet[0].in_flight = 2;
  fleet[1].in_flight = 1;
  EXPECT_EQ(winner_of("least_loaded", fleet), 2U);
  EXPECT_EQ(winners_of("least_loaded", fleet, 6), (Winners{2, 1, 2, 0, 1, 2}));
}

TEST(LeastLoaded, CountsThePieceToCome) {
  // A device three times as fast gets the first two pieces although it is then
  // the busier one: 2/3 < 1/1. At 3/3 the tie goes to the lower id.
  TestFleet fleet(2);
  fleet[1].weight_milli = 3000;
  EXPECT_EQ(winners_of("least_loaded", fleet, 5), (Winners{1, 1, 0, 1, 1}));
}

TEST(LeastLoaded, EqualQuotientsTieExactly) {
  // 2/2000 and 1/1000 are the same load, also where a division would round.
  TestFleet fleet(3);
  fleet[0].weight_milli = 3;
  fleet[0].in_flight = 2;
  fleet[1].weight_milli = 7;
  fleet[1].in_flight = 6;
  fleet[2].weight_milli = 40'000;
  fleet[2].in_flight = 39'999;
  fleet[0].id_order = 2;
  fleet[2].id_order = 0;
  EXPECT_EQ(winner_of("least_loaded", fleet), 2U);
  fleet[2].in_flight = 40'000;
  EXPECT_EQ(winner_of("least_loaded", fleet), 1U) << "one piece in forty thousand counts";
}

TEST(LeastLoaded, LearntSpeedsCountOnceEveryCandidateIsMeasured) {
  TestFleet fleet(2);
  fleet[0].unit_cost_ns = 9'000'000;
  EXPECT_EQ(winner_of("least_loaded", fleet), 0U) << "the other one is unknown, so both count as equal";
  fleet[1].unit_cost_ns = 1'000'000;
  EXPECT_EQ(winner_of("least_loaded", fleet), 1U);
  fleet[1].in_flight = 8;
  EXPECT_EQ(winner_of("least_loaded", fleet), 0U) << "9 pieces of 1 ms against 1 of 9 ms: the lower id";
}

TEST(LeastLoaded, ConfiguredWeightsAreBelievedBeforeLearntSpeeds) {
  TestFleet fleet(2);
  fleet[0].unit_cost_ns = 1'000'000;
  fleet[1].unit_cost_ns = 2'000'000;
  fleet[1].weight_milli = 2000;
  EXPECT_EQ(winner_of("least_loaded", fleet), 1U);
}

TEST(LeastLoaded, ASuspectDeviceCountsFourTimesItsLoad) {
  TestFleet fleet(2);
  fleet[0].health = Health::suspect;
  fleet[1].in_flight = 2;
  EXPECT_EQ(winner_of("least_loaded", fleet), 1U);
  fleet[1].in_flight = 4;
  EXPECT_EQ(winner_of("least_loaded", fleet), 0U);
}

TEST(LeastLoaded, HugeLoadsDoNotOverflow) {
  TestFleet fleet(2);
  fleet[0].in_flight = ~std::uint32_t{0};
  fleet[0].health = Health::suspect;
  fleet[0].unit_cost_ns = fleet[1].unit_cost_ns = ~std::uint64_t{0} - 1;
  EXPECT_EQ(winner_of("least_loaded", fleet), 1U);
  fleet[1].weight_milli = ~std::uint32_t{0};
  EXPECT_EQ(winner_of("least_loaded", fleet), 1U);
}

}  // namespace
}  // namespace berth::placement
