#include "world/duration.hpp"

#include <gtest/gtest.h>

namespace berth::world {
namespace {

using namespace std::chrono_literals;

TEST(Duration, IsANumberWithAUnit) {
  EXPECT_EQ(*parse_duration("90s"), 90s);
  EXPECT_EQ(*parse_duration("5m"), 5min);
  EXPECT_EQ(*parse_duration("1.5h"), 90min);
  EXPECT_EQ(*parse_duration("1d"), 24h);
  EXPECT_EQ(*parse_duration("500ms"), 500ms);
  EXPECT_EQ(*parse_duration("1h30m"), 90min);
  EXPECT_EQ(*parse_duration("1d2h3m4s5ms"), 26h + 3min + 4s + 5ms);
  EXPECT_EQ(*parse_duration("0"), 0s);
  EXPECT_EQ(*parse_duration("366d"), 366 * 24h);
}

TEST(Duration, AnythingElseIsRefusedByName) {
  for (const std::string text : {"s", "5 m", "-1s", "5x", "1e400s", "nan", "infs", "367d", "5m ", " 5m", "1h30",
                                 "30m1h", "1h1h", "1h 30m", "1h-5m", "366d1ms"})
    EXPECT_EQ(parse_duration(text).error().message, "\"" + text + "\" is not a length of time") << text;
  EXPECT_EQ(parse_duration("").error().message, "a length of time is empty");
  EXPECT_EQ(parse_duration("90").error().advice, "did you mean 90s?");
}

TEST(Duration, TheTextHasTheUnitThatFits) {
  EXPECT_EQ(duration_text(200ms), "200 ms");
  EXPECT_EQ(duration_text(90s), "90 s");
  EXPECT_EQ(duration_text(5min), "5 min");
  EXPECT_EQ(duration_text(125min), "2 h 5 min");
}

}  // namespace
}  // namespace berth::world
