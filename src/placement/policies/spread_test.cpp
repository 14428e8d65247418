#include <gtest/gtest.h>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

TEST(Spread, FewestInFlightThenMostBytesAvailable) {
  TestFleet fleet(4);
  fleet[0].in_flight = 1;
  fleet[0].memory_bytes_free = 80 * gib;
  fleet[1].memory_bytes_free = 20 * gib;
  fleet[2].memory_bytes_free = 24 * gib;
  fleet[3].memory_bytes_free = 30 * gib;
  fleet[3].memory_bytes_promised = 10 * gib;
  EXPECT_EQ(winners_of("spread", fleet, 4), (std::vector<std::size_t>{2, 1, 3, 0}));
}

TEST(Spread, ADeviceThatDoesNotSayComesAfterItsEquals) {
  TestFleet fleet(2);
  fleet[0].memory_bytes_free = OptionalU64();
  EXPECT_EQ(winner_of("spread", fleet), 1U);
  fleet[1].in_flight = 1;
  EXPECT_EQ(winner_of("spread", fleet), 0U);
}

}  // namespace
}  // namespace berth::placement
