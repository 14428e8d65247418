#include "world/time_to_come.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace berth::world {
namespace {

TEST(TimeToCome, IsTheNextOfThatHourOrTheOneOfItsDate) {
  setenv("TZ", "UTC", 1);
  tzset();
  constexpr std::uint64_t now = 1'794'744'062'999'999;  // 2026-11-15 12:01:02
  const auto read = [](const std::string& text) {
    const Result<std::uint64_t> when = parse_time_to_come(text, now);
    return when ? local_text(*when) : when.error().message;
  };
  EXPECT_EQ(read("20:00"), "2026-11-15 20:00:00");
  EXPECT_EQ(read("12:01"), "2026-11-16 12:01:00");
  EXPECT_EQ(read("8:05"), "2026-11-16 08:05:00");
  EXPECT_EQ(read("2026-11-30T23:59"), "2026-11-30 23:59:00");
  EXPECT_EQ(read("2026-11-15 12:01:03"), "2026-11-15 12:01:03");
  EXPECT_EQ(read("2h"), "2026-11-15 14:01:02");
  EXPECT_EQ(read("2026-11-15T12:01:02"), "2026-11-15T12:01:02 is in the past");
  for (const char* const text :
       {"", "x", "-1h", "24:00", "12:60", "12:01 ", "2026-02-30T08:00", "2026-13-01T08:00", "2026-11-16"})
    EXPECT_EQ(read(text), "\"" + std::string(text) + "\" is not a time");
}

TEST(TimePassed, IsTheLastOfThatHourOrTheOneOfItsDate) {
  setenv("TZ", "UTC", 1);
  tzset();
  constexpr std::uint64_t now = 1'794'744'062'999'999;  // 2026-11-15 12:01:02
  const auto read = [](const std::string& text) {
    const Result<std::uint64_t> when = parse_time_passed(text, now);
    return when ? local_text(*when) : when.error().message;
  };
  EXPECT_EQ(read("20:00"), "2026-11-14 20:00:00");
  EXPECT_EQ(read("12:01"), "2026-11-15 12:01:00");
  EXPECT_EQ(read("2026-11-01T08:00"), "2026-11-01 08:00:00");
  EXPECT_EQ(read("2h"), "2026-11-15 10:01:02");
  EXPECT_EQ(read("2026-11-16T08:00"), "2026-11-16T08:00 is in the future");
  EXPECT_EQ(read("24:00"), "\"24:00\" is not a time");
}

}  // namespace
}  // namespace berth::world
