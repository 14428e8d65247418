#include "world/time_to_come.hpp"

#include <ctime>

#include "world/duration.hpp"

namespace berth::world {

Result<std::uint64_t> parse_time_to_come(const std::string& text, std::uint64_t now_us) {
  const char* const advice = "write it like 20:00, 2026-11-20T08:00, or 2h for two hours from now";
  if (text.find(':') == std::string::npos) {
    const Result<Duration> from_now = parse_duration(text);
    if (!from_now) return Error{ErrorCode::invalid_argument, "\"" + text + "\" is not a time", advice};
    return now_us + static_cast<std::uint64_t>(*from_now / std::chrono::microseconds(1));
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
    when.tm_isdst = -1;  // whatever holds on that day
    return mktime(&when);
  };
  std::time_t when = rest ? seconds_of(parts) : -1;
  std::tm same{};
  if (when >= 0) localtime_r(&when, &same);
  if (when < 0 || same.tm_mday != parts.tm_mday)  // such as February 30
    return Error{ErrorCode::invalid_argument, "\"" + text + "\" is not a time", advice};
  if (when <= now && !has_date) {
    ++parts.tm_mday;
    when = seconds_of(parts);
  }
  if (when <= now) return Error{ErrorCode::invalid_argument, text + " is in the past", advice};
  return static_cast<std::uint64_t>(when) * 1'000'000;
}

std::string local_text(std::uint64_t wall_time_us) {
  const auto seconds = static_cast<std::time_t>(wall_time_us / 1'000'000);
  std::tm parts{};
  char text[32];
  if (!localtime_r(&seconds, &parts) || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts) == 0)
    return "at no known time";
  return text;
}

}  // namespace berth::world
