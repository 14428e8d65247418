#include "world/wall_time.hpp"

#include <chrono>
#include <cstdio>
#include <ctime>

namespace berth::world {

std::uint64_t wall_time_us() noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

namespace {

std::string time_text(std::uint64_t wall_time_us, std::tm* (*parts_of)(const std::time_t*, std::tm*),
                      const char* format) {
  const auto seconds = static_cast<std::time_t>(wall_time_us / 1'000'000);
  std::tm parts{};
  char text[32];
  // A file may contain a time outside the range of the calendar.
  if (parts_of(&seconds, &parts) == nullptr || std::strftime(text, sizeof text, format, &parts) == 0)
    return "at an unknown time";
  return text;
}

}  // namespace

std::string utc_text(std::uint64_t wall_time_us) { return time_text(wall_time_us, ::gmtime_r, "%Y-%m-%d %H:%M:%S"); }
std::string time_of_day_text(std::uint64_t wall_time_us) { return time_text(wall_time_us, ::localtime_r, "%H:%M:%S"); }

}  // namespace berth::world
