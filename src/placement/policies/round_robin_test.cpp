#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

using Winners = std::vector<std::size_t>;

TEST(RoundRobin, S0_7_NoCandidatesNoWinner) {
  const Decision decision = choose(*find_policy("round_robin"), {}, {}, 0);
  EXPECT_FALSE(decision.winner);
  EXPECT_FALSE(decision.policy_misbehaved);
}

TEST(RoundRobin, S0_8_CandidateNumberTicketModuloCount) {
  // The cursor belongs to the caller here (the ticket), so that all who share
  // the cursor share the turns.
  TestFleet fleet(3);
  EXPECT_EQ(winners_of("round_robin", fleet, 7), (Winners{0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(winner_of("round_robin", fleet, {}, ~Ticket{0}), ~Ticket{0} % 3);
}

TEST(RoundRobin, S0_9_HintsDoNotChangeTheOrderOfTheEligible) {
  const TestFleet fleet(4);
  Requirements requirements;
  requirements.priority = Priority::high;
  requirements.cost = 1000;
  requirements.memory_bytes_min = gib;
  for (Ticket ticket = 0; ticket < 12; ++ticket) {
    EXPECT_EQ(winner_of("round_robin", fleet, requirements, ticket), winner_of("round_robin", fleet, {}, ticket));
  }
}

TEST(RoundRobin, S0_10_EachCallFromAnyThreadIsOneTurn) {
  const TestFleet fleet(5);
  std::atomic<Ticket> next{0};
  std::array<std::atomic<int>, 5> turns{};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 250; ++i) ++turns[winner_of("round_robin", fleet, {}, next++)];
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : turns) EXPECT_EQ(count, 200);
}

TEST(RoundRobin, S3_11_FirstTicketGivesPositionZeroThenOneAfterTheOther) {
  TestFleet fleet(1);
  EXPECT_EQ(winners_of("round_robin", fleet, 5), Winners(5, 0));
  TestFleet four(4);
  EXPECT_EQ(winners_of("round_robin", four, 6), (Winners{0, 1, 2, 3, 0, 1}));
}

TEST(RoundRobin, S0_F13_HardLimitsHoldForRoundRobinToo) {
  TestFleet fleet(4);
  fleet[1].memory_bytes_free = gib;
  fleet[2].intent = Intent::cordoned;
  Requirements requirements;
  requirements.memory_bytes_min = 2 * gib;
  for (Ticket ticket = 0; ticket < 8; ++ticket) {
    EXPECT_EQ(winner_of("round_robin", fleet, requirements, ticket), ticket % 2 == 0 ? 0U : 3U);
  }
}

TEST(RoundRobin, CostsAreTheTurnsToWait) {
  const TestFleet fleet(4);
  EXPECT_EQ(costs_of("round_robin", fleet, {}, 6), (std::vector<std::uint64_t>{2, 3, 0, 1}));
}

}  // namespace
}  // namespace berth::placement
