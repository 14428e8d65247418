#include <gtest/gtest.h>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

using Winners = std::vector<std::size_t>;

TEST(AdaptiveThroughput, HighestLearntRateForItsQueue) {
  TestFleet fleet(2);
  fleet[0].unit_cost_ns = 10'000'000;
  fleet[1].unit_cost_ns = 20'000'000;
  // Half the rate: every third piece, the tie going to the lower id.
  EXPECT_EQ(winners_of("adaptive_throughput", fleet, 6), (Winners{0, 0, 1, 0, 0, 1}));
}

TEST(AdaptiveThroughput, S3_F3_AnUnmeasuredDeviceIsTriedNotStarvedAndNotFavoured) {
  TestFleet fleet(3);
  fleet[0].unit_cost_ns = 1'000'000;
  fleet[1].unit_cost_ns = 3'000'000;
  EXPECT_EQ(winner_of("adaptive_throughput", fleet), 2U) << "never measured and idle: tried";
  fleet.charge(2);
  // With its first piece under way it counts as the average, 2 ms: 4 ms with one
  // more, so the others go first until they are as busy.
  EXPECT_EQ(winners_of("adaptive_throughput", fleet, 5), (Winners{0, 0, 0, 1, 0}));
  fleet[2].unit_cost_ns = 500'000;
  EXPECT_EQ(winner_of("adaptive_throughput", fleet), 2U) << "measured, and it is the fastest";
}

TEST(AdaptiveThroughput, WithoutAnyMeasurementEveryDeviceIsTriedInTurn) {
  TestFleet fleet(3);
  EXPECT_EQ(winners_of("adaptive_throughput", fleet, 6), (Winners{0, 1, 2, 0, 1, 2}));
}

TEST(AdaptiveThroughput, AnUnmeasuredSuspectIsNotTriedOutOfTurn) {
  // It may be unmeasured because nothing ever succeeded on it.
  TestFleet fleet(2);
  fleet[0].unit_cost_ns = 1'000'000;
  fleet[1].health = Health::suspect;
  EXPECT_EQ(winners_of("adaptive_throughput", fleet, 5), (Winners{0, 0, 0, 0, 1}));
}

}  // namespace
}  // namespace berth::placement
