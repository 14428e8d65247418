// DeathLimit: how many workers of one device may die before it is taken out of service for a while:
// three in any minute. Deaths that a task is guilty of do not count. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "berth/clock.hpp"

namespace berth::worker {

struct DeathCircumstances {
  bool unclear = false;   // it will turn out whether a piece of work is guilty
  std::string task = {};  // that was alone in the worker; with two deaths in a minute it is guilty of both
};

class DeathLimit {
 public:
  static constexpr std::size_t deaths_max = 3;
  static constexpr Duration window = std::chrono::minutes(1);

  // A number for this death.
  std::uint64_t add(TimePoint now, DeathCircumstances circumstances = {});
  void forgive(std::uint64_t death);
  // No task is: it counts.
  void confirm(std::uint64_t death);
  // When there are no more than three in a minute again; absent: now.
  std::optional<TimePoint> exceeded_until(TimePoint now) const;

 private:
  struct Death {
    std::uint64_t number;
    TimePoint at;
    DeathCircumstances circumstances;
    bool forgiven = false;
  };
  std::deque<Death> deaths_;  // those of the last minute, and older ones until the next
  std::uint64_t last_ = 0;
};

}  // namespace berth::worker
