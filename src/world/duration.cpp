#include "world/duration.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

namespace berth::world {
namespace {

Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

}  // namespace

Result<Duration> parse_duration(const std::string& text) {
  const char* const advice = "write it like 90s, 5m, 1h30m or 1d, at most 366d";
  if (text.empty()) return wrong("a length of time is empty", advice);
  const Error not_a_time = wrong("\"" + text + "\" is not a length of time", advice);
  static constexpr std::pair<std::string_view, double> units[] = {// in milliseconds; larger units come first
                                                                  {"d", 86'400'000},
                                                                  {"h", 3'600'000},
                                                                  {"m", 60'000},
                                                                  {"s", 1000},
                                                                  {"ms", 1}};
  const auto* unit = std::begin(units);
  double milliseconds = 0;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    double number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc() || !(number >= 0)) return not_a_time;
    if (rest == end && at == text.data() && number <= 366.0 * 86400) {
      if (number == 0) return Duration::zero();
      return wrong("\"" + text + "\" is a length of time without a unit", "did you mean " + text + "s?");
    }
    at = std::find_if(rest, end, [](char c) { return c < 'a' || c > 'z'; });
    const std::string_view name(rest, static_cast<std::size_t>(at - rest));
    unit = std::find_if(unit, std::end(units), [&](const auto& known) { return known.first == name; });
    if (unit == std::end(units)) return not_a_time;
    milliseconds += number * unit->second;
    ++unit;
  }
  if (!(milliseconds <= 366.0 * 86'400'000)) return not_a_time;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(milliseconds));
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
