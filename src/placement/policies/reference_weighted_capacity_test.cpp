#include <gtest/gtest.h>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

using Winners = std::vector<std::size_t>;

TEST(ReferenceWeightedCapacity, S3_13_WeightOverQueueInSinglePrecisionTiesToTheLowestPosition) {
  TestFleet fleet(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    fleet[i].weight_milli = 1000 * (i + 1);
    fleet[i].id_order = 2 - i;
  }
  EXPECT_EQ(winners_of("reference_weighted_capacity", fleet, 12), (Winners{2, 1, 2, 0, 1, 2, 2, 1, 2, 0, 1, 2}));

  // 16,777,217 is not a single-precision number: with it the two weights are equal, and the first
  // wins. In double precision the second would.
  TestFleet close(2);
  close[0].weight_milli = 16'777'216;
  close[1].weight_milli = 16'777'217;
  EXPECT_EQ(winner_of("reference_weighted_capacity", close), 0U);

  TestFleet steep(3);
  steep[2].weight_milli = 10'000;
  Winners expected(9, 2);
  expected.insert(expected.end(), {0, 1});
  expected.insert(expected.end(), 10, 2);
  expected.insert(expected.end(), {0, 1});
  EXPECT_EQ(winners_of("reference_weighted_capacity", steep, 23), expected);
}

TEST(ReferenceWeightedCapacity, OneAfterTheOtherEverythingGoesToTheHeaviest) {
  TestFleet fleet(3);
  fleet[1].weight_milli = 1001;
  EXPECT_EQ(winners_of("reference_weighted_capacity", fleet, 5, true), Winners(5, 1));
}

}  // namespace
}  // namespace berth::placement
