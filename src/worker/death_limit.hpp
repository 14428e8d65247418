// DeathLimit: how many workers of one device may die before it is taken out of service for a while:
// three in any minute. A death that a task turned out to be guilty of is forgiven. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "berth/clock.hpp"

namespace berth::worker {

class DeathLimit {
 public:
  static constexpr std::size_t deaths_max = 3;
  static constexpr Duration window = std::chrono::minutes(1);

  // A number for this death. While it is `unclear` whether a task is guilty of it, it does not count.
  std::uint64_t add(TimePoint now, bool unclear = false);
  void forgive(std::uint64_t death);
  // No task is: it counts.
  void confirm(std::uint64_t death);
  // When there are no more than three in a minute again; absent: now.
  std::optional<TimePoint> exceeded_until(TimePoint now) const;

 private:
  struct Death {
    std::uint64_t number;
    TimePoint at;
    bool unclear;
  };
  std::deque<Death> deaths_;  // those of the last minute, and older ones until the next
  std::uint64_t last_ = 0;
};

}  // namespace berth::worker
