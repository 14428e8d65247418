#include <gtest/gtest.h>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

constexpr std::string_view queue_depth = "reference_queue_depth";

TEST(ReferenceQueueDepth, S3_12_SmallestDepthAndTiesToTheLowestPosition) {
  TestFleet fleet(3);
  for (std::uint32_t i = 0; i < 3; ++i) fleet[i].id_order = 2 - i;
  EXPECT_EQ(winners_of(queue_depth, fleet, 6), (std::vector<std::size_t>{0, 1, 2, 0, 1, 2}));
  fleet[0].in_flight = 7;
  EXPECT_EQ(winner_of(queue_depth, fleet), 1U);
  fleet[1].in_flight = 3;
  EXPECT_EQ(winner_of(queue_depth, fleet), 2U);
}

}  // namespace
}  // namespace berth::placement
