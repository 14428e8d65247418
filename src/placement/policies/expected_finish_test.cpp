#include <gtest/gtest.h>

#include <limits>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

TEST(ExpectedFinish, S0_F15_TimeToFinishDecidesNotTheNumberOfPieces) {
  TestFleet fleet(2);
  fleet[0].unit_cost_ns = fleet[1].unit_cost_ns = 1'000'000;
  fleet[0].in_flight = 1;  // one long piece
  fleet[0].backlog_ns = 50'000'000;
  fleet[1].in_flight = 10;  // ten short ones
  fleet[1].backlog_ns = 10'000'000;
  EXPECT_EQ(winner_of("expected_finish", fleet), 1U);
  EXPECT_EQ(winner_of("least_loaded", fleet), 0U);
}

TEST(ExpectedFinish, LargeWorkWaitsForTheFastDeviceSmallWorkDoesNot) {
  TestFleet fleet(2);
  fleet[0].unit_cost_ns = 1'000'000;
  fleet[0].in_flight = 1;
  fleet[0].backlog_ns = 5'000'000;
  fleet[1].unit_cost_ns = 3'000'000;
  Requirements requirements;
  requirements.cost = 2;
  EXPECT_EQ(winner_of("expected_finish", fleet, requirements), 1U) << "5 + 2 against 6";
  requirements.cost = 4;
  EXPECT_EQ(winner_of("expected_finish", fleet, requirements), 0U) << "5 + 4 against 12";
  requirements.cost = 2.5;
  EXPECT_EQ(winner_of("expected_finish", fleet, requirements), 0U) << "7.5 against 7.5: the lower id";
}

TEST(ExpectedFinish, AnUnmeasuredDeviceIsTriedThenCountsAsTheAverage) {
  TestFleet fleet(3);
  fleet[0].unit_cost_ns = 1'000'000;
  fleet[1].unit_cost_ns = 3'000'000;
  EXPECT_EQ(winner_of("expected_finish", fleet), 2U);
  fleet.charge(2);  // its backlog is unknown: one piece of 2 ms, and 2 ms for the next
  fleet[0].backlog_ns = 2'000'000;
  EXPECT_EQ(winner_of("expected_finish", fleet), 0U) << "2 + 1 against 4";
  fleet[0].backlog_ns = fleet[1].backlog_ns = 4'000'000;
  EXPECT_EQ(winner_of("expected_finish", fleet), 2U) << "4 + 1 and 4 + 3 against 4";
}

TEST(ExpectedFinish, ASizeThatIsNoneCountsAsOne) {
  TestFleet fleet(2);
  fleet[0].unit_cost_ns = 2'000'000;
  fleet[1].unit_cost_ns = 1'000'000;
  const auto costs_for = [&](double cost) {
    Requirements requirements;
    requirements.cost = cost;
    return costs_of("expected_finish", fleet, requirements);
  };
  const std::vector<std::uint64_t> expected{2'000'000, 1'000'000};
  EXPECT_EQ(costs_for(1), expected);
  for (const double none :
       {0.0, -3.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(costs_for(none), expected) << none;
  }
  EXPECT_EQ(costs_for(0.001), (std::vector<std::uint64_t>{1998, 999})) << "sizes count in 2^-20 units";
  EXPECT_LT(costs_for(1e300)[1], costs_for(1e300)[0]);
}

}  // namespace
}  // namespace berth::placement
