#include "simulate/fleet.hpp"

#include <gtest/gtest.h>

namespace berth::simulate {
namespace {

// The totals of all fleets of one test.
struct Total {
  std::vector<Exemption> exemptions;
  std::uint64_t starts = 0, ready = 0, replicas = 0;
};

// The seed is in the first and in the last line of a failure.
void expect_laws(const FleetOptions& options, Total& total) {
  const FleetRun run = simulate_fleet(options);
  const std::string seed = "seed " + std::to_string(run.seed);
  std::string text = seed;
  for (const std::string& violation : run.violations) text += "\n  " + violation;
  EXPECT_TRUE(run.violations.empty()) << text << "\n" << seed;
  EXPECT_GT(run.faults, 5u) << seed;
  EXPECT_GT(run.starts, 0u) << seed;
  add(total.exemptions, run.exemptions);
  total.starts += run.starts;
  total.ready += run.ready;
  total.replicas += run.replicas;
}

// Sanitizers make each of them thirty times slower, and averages and shares of a few fleets mean nothing.
#ifdef BERTH_SANITIZED
constexpr std::uint64_t small_seeds = 8, large_seeds = 1;
constexpr bool are_enough_for_shares = false;
#else
constexpr std::uint64_t small_seeds = 200, large_seeds = 15;
constexpr bool are_enough_for_shares = true;
#endif

// Checks that enough happened for the laws to be tested.
void expect_substance(const Total& total, std::uint64_t fleets) {
  if (!are_enough_for_shares) return;
  EXPECT_GT(total.starts, 15 * fleets);
  EXPECT_GT(total.ready, 5 * fleets);
  EXPECT_GT(total.ready * 10, total.replicas * 7);
  for (const Exemption& exemption : total.exemptions)
    EXPECT_TRUE(exemption.is_within_share()) << exemption.name << ": " << exemption.uses << " of " << exemption.chances
                                             << " cases, more than " << exemption.percent_max << " %";
}

FleetOptions small(std::uint64_t seed) {
  return {.nodes = 2 + static_cast<std::uint32_t>(seed % 4), .gpus = 2, .deployments = 7, .seed = seed};
}

// The same seeds each time; make nightly takes new ones and prints them.
TEST(SimulatedFleet, KeepsItsLawsWhateverFails) {
  Total total;
  for (std::uint64_t seed = 0; seed < small_seeds && !HasFailure(); ++seed) expect_laws(small(seed), total);
  if (!HasFailure()) expect_substance(total, small_seeds);
}

TEST(SimulatedFleet, KeepsItsLawsWithMoreNodes) {
  Total total;
  for (std::uint64_t seed = 0; seed < large_seeds && !HasFailure(); ++seed)
    expect_laws({.nodes = 8, .gpus = 4, .deployments = 40, .seed = seed}, total);
  if (!HasFailure()) expect_substance(total, large_seeds);
}

TEST(SimulatedFleet, OneSeedIsOneRun) {
  const FleetRun first = simulate_fleet({.seed = 5}), second = simulate_fleet({.seed = 5});
  EXPECT_EQ(first.commits, second.commits);
  EXPECT_EQ(first.starts, second.starts);
  EXPECT_EQ(first.ready, second.ready);
}

}  // namespace
}  // namespace berth::simulate
