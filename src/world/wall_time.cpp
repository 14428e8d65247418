#include "world/wall_time.hpp"

#include <chrono>
#include <cstdio>
#include <ctime>

namespace berth::world {

std::uint64_t wall_time_us() noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

std::string utc_text(std::uint64_t wall_time_us) {
  const auto seconds = static_cast<std::time_t>(wall_time_us / 1'000'000);
  std::tm parts{};
  char text[32];
  // A file may contain a time outside the range of the calendar.
  if (::gmtime_r(&seconds, &parts) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts) == 0)
    return "at no known time";
  return text;
}

}  // namespace berth::world
