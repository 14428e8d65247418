#include "world/time_to_come.hpp"

#include <algorithm>
#include <ctime>

#include "world/duration.hpp"

namespace berth::world {

namespace {

enum class Direction : std::uint8_t { past, future };

Result<std::uint64_t> parse_time(const std::string& text, std::uint64_t now_us, Direction direction) {
  const bool is_past = direction == Direction::past;
  const std::string advice =
      std::string("write it like 20:00, 2026-11-20T08:00, or 2h for two hours ") + (is_past ? "ago" : "from now");
  if (text.find(':') == std::string::npos) {
    const Result<Duration> distance = parse_duration(text);
    if (!distance) return Error{ErrorCode::invalid_argument, "\"" + text + "\" is not a time", advice};
    const auto us = static_cast<std::uint64_t>(*distance / std::chrono::microseconds(1));
    return is_past ? now_us - std::min(now_us, us) : now_us + us;
  }
  const auto now = static_cast<std::time_t>(now_us / 1'000'000);
  std::tm today{};
  localtime_r(&now, &today);
  std::tm parts{};
  const char* rest = nullptr;
  for (const char* const format :
       {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%H:%M"}) {
    parts = today;
    parts.tm_sec = 0;
    rest = strptime(text.c_str(), format, &parts);
    if (rest && *rest == '\0') break;
    rest = nullptr;
  }
  const bool has_date = text.find('-') != std::string::npos;
  const auto seconds_of = [](std::tm when) {
    when.tm_isdst = -1;  // daylight saving time as on that day
    return mktime(&when);
  };
  std::time_t when = rest ? seconds_of(parts) : -1;
  std::tm same{};
  if (when >= 0) localtime_r(&when, &same);
  if (when < 0 || same.tm_mday != parts.tm_mday)  // such as February 30
    return Error{ErrorCode::invalid_argument, "\"" + text + "\" is not a time", advice};
  const auto is_wrong_way = [&] { return is_past ? when > now : when <= now; };
  if (is_wrong_way() && !has_date) {
    parts.tm_mday += is_past ? -1 : 1;
    when = seconds_of(parts);
  }
  if (is_wrong_way())
    return Error{ErrorCode::invalid_argument, text + " is in the " + (is_past ? "future" : "past"), advice};
  return static_cast<std::uint64_t>(when) * 1'000'000;
}

}  // namespace

Result<std::uint64_t> parse_time_to_come(const std::string& text, std::uint64_t now_us) {
  return parse_time(text, now_us, Direction::future);
}

Result<std::uint64_t> parse_time_passed(const std::string& text, std::uint64_t now_us) {
  return parse_time(text, now_us, Direction::past);
}

std::string local_text(std::uint64_t wall_time_us) {
  const auto seconds = static_cast<std::time_t>(wall_time_us / 1'000'000);
  std::tm parts{};
  char text[32];
  if (!localtime_r(&seconds, &parts) || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts) == 0)
    return "at an unknown time";
  return text;
}

}  // namespace berth::world
