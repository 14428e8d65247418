#include "world/wall_time.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace berth::world {
namespace {

TEST(WallTime, IsWrittenInUtcToTheSecond) {
  EXPECT_EQ(utc_text(0), "1970-01-01 00:00:00");
  EXPECT_EQ(utc_text(1'794'744'062'999'999), "2026-11-15 12:01:02");
  EXPECT_FALSE(utc_text(std::numeric_limits<std::uint64_t>::max()).empty());
  EXPECT_GT(wall_time_us(), 1'500'000'000'000'000U);
}

}  // namespace
}  // namespace berth::world
