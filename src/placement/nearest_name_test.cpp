#include "placement/nearest_name.hpp"

#include <gtest/gtest.h>

#include <array>

namespace berth::placement {
namespace {

constexpr std::array<std::string_view, 4> names{"round_robin", "least_loaded", "spread", "plan"};

TEST(NearestName, ASlipOfThePenIsUnderstood) {
  EXPECT_EQ(nearest_name("leastloaded", names), "least_loaded");
  EXPECT_EQ(nearest_name("Round-Robin", names), "round_robin");
  EXPECT_EQ(nearest_name("sperad", names), "spread");
  EXPECT_EQ(nearest_name("paln", names), "plan");
}

TEST(NearestName, TheBeginningOfANameIsEnough) {
  EXPECT_EQ(nearest_name("least", names), "least_loaded");
  EXPECT_EQ(nearest_name("r", names), "round_robin");
}

TEST(NearestName, NothingIsSuggestedForAWordThatIsFarFromAll) {
  EXPECT_EQ(nearest_name("zzz", names), std::nullopt);
  EXPECT_EQ(nearest_name("", names), std::nullopt);
  EXPECT_EQ(nearest_name("plan", {}), std::nullopt);
  EXPECT_EQ(nearest_name("fastest_finish", names), std::nullopt);
}

}  // namespace
}  // namespace berth::placement
