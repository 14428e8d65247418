// How often, and how soon, a command that failed is started again: at most three
// times in any minute, after 1, 2 and 4 seconds. A command that fails once an hour
// is restarted for ever; one that cannot start is given up within seconds.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "berth/clock.hpp"

namespace berth::machine {

class RestartLimit {
 public:
  static constexpr std::size_t restarts_max = 3;
  static constexpr Duration window = std::chrono::minutes(1);
  static constexpr Duration first_delay = std::chrono::seconds(1);

  // How long to wait before the next start, which then counts. Absent: there were
  // too many within the last minute.
  std::optional<Duration> next_delay(TimePoint now);

 private:
  std::deque<TimePoint> recent_;
};

}  // namespace berth::machine
