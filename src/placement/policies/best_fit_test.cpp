#include <gtest/gtest.h>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

TEST(BestFit, TheFewestBytesThatStillFit) {
  TestFleet fleet(4);
  fleet[0].memory_bytes_free = 3 * gib;
  fleet[1].memory_bytes_free = 5 * gib;
  fleet[2].memory_bytes_free = 8 * gib;
  fleet[2].memory_bytes_promised = 4 * gib;
  Requirements requirements;
  requirements.memory_bytes_min = 4 * gib;
  EXPECT_EQ(winner_of("best_fit", fleet, requirements), 2U) << "promised bytes are gone: 4 GiB fit exactly";
  fleet[2].memory_bytes_promised += 1;
  EXPECT_EQ(winner_of("best_fit", fleet, requirements), 1U);
}

TEST(BestFit, ADeviceThatDoesNotSayComesLast) {
  TestFleet fleet(2);
  fleet[0].memory_bytes_free = OptionalU64();
  EXPECT_EQ(winner_of("best_fit", fleet), 1U);
}

TEST(BestFit, ASuspectDeviceComesAfterEveryHealthyOne) {
  TestFleet fleet(3);
  fleet[0].memory_bytes_free = gib;
  fleet[0].health = Health::suspect;
  fleet[1].memory_bytes_free = OptionalU64();
  EXPECT_EQ(winner_of("best_fit", fleet), 2U);
  EXPECT_EQ(winner_of("best_fit", fleet.views().first(2)), 1U);
}

}  // namespace
}  // namespace berth::placement
