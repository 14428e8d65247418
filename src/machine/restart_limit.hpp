// Limits the restarts of a failed command: at most three in any minute, after 1, 2 and 4 seconds. A
// command that fails once an hour is always restarted; one that cannot start is abandoned within
// seconds.
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

  // Counts the next restart and returns the delay before it. Absent: the limit is reached.
  std::optional<Duration> next_delay(TimePoint now);

 private:
  std::deque<TimePoint> recent_;
};

}  // namespace berth::machine
