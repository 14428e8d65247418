#include <gtest/gtest.h>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

using Winners = std::vector<std::size_t>;

TEST(ReferenceAdaptiveThroughput, S3_14_RateOverQueueTiesToTheHighestPosition) {
  // The exact rule, under its own name; adaptive_throughput tries devices that
  // nobody measured and has the common tie rule (S3-F3, X-F1).
  TestFleet fleet(3);
  EXPECT_EQ(winner_of("reference_adaptive_throughput", fleet), 2U) << "no measurement: the last";
  fleet[0].mean_rate = 100;
  fleet[1].mean_rate = 50;
  EXPECT_EQ(winners_of("reference_adaptive_throughput", fleet, 9), (Winners{0, 1, 0, 0, 1, 0, 0, 1, 0}));
}

TEST(ReferenceAdaptiveThroughput, AnUnmeasuredDeviceIsNeverTriedOnceAnotherIsMeasured) {
  TestFleet fleet(3);
  fleet[0].mean_rate = 10;
  fleet[1].mean_rate = 1000;
  EXPECT_EQ(winner_of("reference_adaptive_throughput", fleet), 1U);
  EXPECT_EQ(winners_of("reference_adaptive_throughput", fleet, 50, true), Winners(50, 1));
}

}  // namespace
}  // namespace berth::placement
