#include <gtest/gtest.h>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

TEST(ReferenceMostMemory, S4_6_MostBytesInTotalTiesToTheEarliest) {
  TestFleet fleet(4);
  fleet.info(1).memory_bytes_total = 80 * gib;
  fleet.info(2).memory_bytes_total = 80 * gib;
  fleet[1].id_order = 9;
  fleet[1].memory_bytes_free = 0;
  EXPECT_EQ(winner_of("reference_most_memory", fleet), 1U) << "total, not free";
  for (std::size_t i = 0; i < 4; ++i) fleet.info(i).memory_bytes_total = 0;
  EXPECT_EQ(winner_of("reference_most_memory", fleet), 0U) << "all report 0: the first";
  fleet.info(0).memory_bytes_total.reset();
  fleet.info(3).memory_bytes_total = 1;
  EXPECT_EQ(winner_of("reference_most_memory", fleet), 3U);
}

}  // namespace
}  // namespace berth::placement
