// DeathLimit: how many workers of one device may die before it is taken out of service for a while:
// three in any minute. Deaths caused by a task do not count. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "berth/clock.hpp"

namespace berth::worker {

struct DeathCircumstances {
  bool unclear = false;   // it is not known yet whether a piece of work caused it
  std::string task = {};  // the task that was alone in the worker; with two deaths in a minute, it caused both
};

class DeathLimit {
 public:
  static constexpr std::size_t deaths_max = 3;
  static constexpr Duration window = std::chrono::minutes(1);

  // Records a death and returns its number.
  std::uint64_t add(TimePoint now, DeathCircumstances circumstances = {});
  void forgive(std::uint64_t death);
  // No task caused it, so it counts.
  void confirm(std::uint64_t death);
  // When there will be no more than three within a minute again; absent: now.
  std::optional<TimePoint> exceeded_until(TimePoint now) const;

 private:
  struct Death {
    std::uint64_t number;
    TimePoint at;
    DeathCircumstances circumstances;
    bool forgiven = false;
  };
  std::deque<Death> deaths_;  // deaths of the last minute, and older ones until the next death
  std::uint64_t last_ = 0;
};

}  // namespace berth::worker
