#include "simulate/fleet.hpp"

#include <gtest/gtest.h>

namespace berth::simulate {
namespace {

// The seed is in the first line of a failure.
void expect_laws(const FleetOptions& options) {
  const FleetRun run = simulate_fleet(options);
  std::string text;
  for (const std::string& violation : run.violations) text += "\n  " + violation;
  EXPECT_TRUE(run.violations.empty()) << "seed " << run.seed << text;
  EXPECT_GT(run.faults, 5u);
  EXPECT_GT(run.starts, 0u);
}

// Sanitizers make each of them thirty times slower.
#ifdef BERTH_SANITIZED
constexpr std::uint64_t small_seeds = 16, large_seeds = 1;
#else
constexpr std::uint64_t small_seeds = 120, large_seeds = 15;
#endif

FleetOptions small(std::uint64_t seed) {
  return {.nodes = 2 + static_cast<std::uint32_t>(seed % 4), .gpus = 2, .deployments = 7, .seed = seed};
}

TEST(SimulatedFleet, KeepsItsLawsWhateverFails) {
  for (std::uint64_t seed = 0; seed < small_seeds && !HasFailure(); ++seed) expect_laws(small(seed));
}

TEST(SimulatedFleet, KeepsItsLawsWithMoreNodes) {
  for (std::uint64_t seed = 0; seed < large_seeds && !HasFailure(); ++seed)
    expect_laws({.nodes = 8, .gpus = 4, .deployments = 40, .seed = seed});
}

TEST(SimulatedFleet, OneSeedIsOneRun) {
  const FleetRun first = simulate_fleet({.seed = 5}), second = simulate_fleet({.seed = 5});
  EXPECT_EQ(first.commits, second.commits);
  EXPECT_EQ(first.starts, second.starts);
  EXPECT_EQ(first.ready, second.ready);
}

}  // namespace
}  // namespace berth::simulate
