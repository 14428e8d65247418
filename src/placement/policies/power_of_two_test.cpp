#include <gtest/gtest.h>

#include <algorithm>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

constexpr std::uint64_t last = ~std::uint64_t{0};

std::vector<int> wins(const TestFleet& fleet, Ticket tickets) {
  std::vector<int> count(fleet.size());
  for (Ticket ticket = 0; ticket < tickets; ++ticket) ++count[winner_of("power_of_two", fleet, {}, ticket)];
  return count;
}

TEST(PowerOfTwo, DrawsTwoDifferentDevicesAndTheLessLoadedWins) {
  for (const bool weighted : {false, true}) {
    TestFleet fleet(5);
    for (std::uint32_t i = 0; i < 5; ++i) fleet[i].in_flight = i;
    if (weighted) fleet[4].weight_milli = 1001;
    for (Ticket ticket = 0; ticket < 500; ++ticket) {
      const auto costs = costs_of("power_of_two", fleet, {}, ticket);
      ASSERT_EQ(std::count(costs.begin(), costs.end(), last), 3) << "two were drawn";
      const std::size_t winner = winner_of("power_of_two", fleet, {}, ticket);
      for (std::size_t i = 0; i < winner; ++i) ASSERT_EQ(costs[i], last) << "a less loaded one was drawn and lost";
    }
  }
}

TEST(PowerOfTwo, TheMostLoadedOfAllNeverWins) {
  TestFleet fleet(4);
  fleet[2].in_flight = 1;
  EXPECT_EQ(wins(fleet, 1000)[2], 0);
}

TEST(PowerOfTwo, IdleDevicesShareTheWorkEvenly) {
  const std::vector<int> count = wins(TestFleet(4), 4000);
  for (const int n : count) EXPECT_NEAR(n, 1000, 100);
}

TEST(PowerOfTwo, IdleDevicesAreDrawnInProportionToTheirSpeed) {
  // Two thirds of the draws go to a device twice as fast; drawn together, it wins.
  TestFleet configured(2);
  TestFleet learnt(2);
  configured[1].weight_milli = 2000;
  learnt[0].unit_cost_ns = 2'000'000;
  learnt[1].unit_cost_ns = 1'000'000;
  EXPECT_EQ(wins(configured, 300)[1], 300) << "of two devices both are drawn";
  EXPECT_EQ(wins(learnt, 300)[1], 300);
  // A third device as slow as the first: the fast one is missing from a pair
  // with chance 2 x (1/4 x 1/3) = 1/6.
  TestFleet three(3);
  three[1].weight_milli = 2000;
  const std::vector<int> count = wins(three, 6000);
  EXPECT_NEAR(count[1], 5000, 150);
  EXPECT_NEAR(count[0], 500, 100);
  EXPECT_NEAR(count[2], 500, 100);
}

}  // namespace
}  // namespace berth::placement
