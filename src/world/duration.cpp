#include "world/duration.hpp"

#include <charconv>

namespace berth::world {
namespace {

Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

}  // namespace

Result<Duration> parse_duration(const std::string& text) {
  const char* const advice = "write it like 90s, 5m, 2h or 1d, at most 366d";
  if (text.empty()) return wrong("a length of time is empty", advice);
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string unit(rest, end);
  double seconds = -1;
  if (unit == "s" || unit.empty())
    seconds = number;
  else if (unit == "ms")
    seconds = number / 1000;
  else if (unit == "m")
    seconds = number * 60;
  else if (unit == "h")
    seconds = number * 3600;
  else if (unit == "d")
    seconds = number * 86400;
  if (error != std::errc() || !(seconds >= 0) || seconds > 366.0 * 86400)
    return wrong("\"" + text + "\" is not a length of time", advice);
  if (unit.empty() && number > 0)
    return wrong("\"" + text + "\" is a length of time without a unit", "did you mean " + text + "s?");
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::string duration_text(Duration duration) {
  const auto milliseconds = duration / std::chrono::milliseconds(1);
  if (milliseconds < 1000) return std::to_string(milliseconds) + " ms";
  const auto seconds = milliseconds / 1000;
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  return std::to_string(seconds / 3600) + " h " + std::to_string(seconds / 60 % 60) + " min";
}

}  // namespace berth::world
