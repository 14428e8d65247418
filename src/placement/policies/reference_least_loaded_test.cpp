#include <gtest/gtest.h>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

constexpr std::string_view reference = "reference_least_loaded";

TEST(ReferenceLeastLoaded, S0_11_KeepsNoState) {
  TestFleet fleet(2);
  fleet[0].queue_depth = 1;
  fleet[1].queue_depth = 0;
  for (Ticket ticket = 0; ticket < 5; ++ticket) EXPECT_EQ(winner_of(reference, fleet, {}, ticket), 1U);
}

TEST(ReferenceLeastLoaded, S0_14_QueueDepthPlusActiveStreamsAndTiesToTheFirstRegistered) {
  TestFleet fleet(3);
  fleet[0].queue_depth = 2;
  fleet[0].active_streams = 1;
  fleet[1].queue_depth = 0;
  fleet[1].active_streams = 2;
  fleet[2].queue_depth = 2;
  fleet[2].active_streams = 0;
  fleet[1].id_order = 9;
  EXPECT_EQ(winner_of(reference, fleet), 1U) << "2 and 2: the first";
  fleet[1].active_streams = 3;
  EXPECT_EQ(winner_of(reference, fleet), 2U) << "streams count as queued work does";
  // Both values at the end of a 32-bit word: the sum does not wrap to a small one.
  for (std::size_t i : {0, 1}) fleet[i].queue_depth = fleet[i].active_streams = 0xffffffffU;
  EXPECT_EQ(winner_of(reference, fleet), 2U);
  // in_flight, which Berth counts at once, plays no part.
  fleet[2].in_flight = 1000;
  EXPECT_EQ(winner_of(reference, fleet), 2U);
}

TEST(ReferenceLeastLoaded, ValuesThatAreNotReportedCountAsZero) {
  TestFleet fleet(2);
  fleet[0].queue_depth = 1;
  EXPECT_EQ(winner_of(reference, fleet), 1U);
}

TEST(ReferenceLeastLoaded, S0_15_EveryCandidateSkippedOrNoneIsNoWinnerAndPriorityHasNoEffect) {
  TestFleet fleet(2);
  Requirements requirements;
  requirements.memory_bytes_min = 17 * gib;
  EXPECT_FALSE(choose(*find_policy(reference), requirements, fleet, 0).winner);
  EXPECT_FALSE(choose(*find_policy(reference), {}, {}, 0).winner);
  fleet[0].queue_depth = 1;
  for (const Priority priority : {Priority::low, Priority::normal, Priority::high}) {
    Requirements urgent;
    urgent.priority = priority;
    EXPECT_EQ(winner_of(reference, fleet, urgent), 1U);
  }
}

}  // namespace
}  // namespace berth::placement
