#include "worker/death_limit.hpp"

#include <algorithm>

namespace berth::worker {

std::uint64_t DeathLimit::add(TimePoint now) {
  std::erase_if(deaths_, [&](const Death& death) { return now - death.at >= window; });
  deaths_.push_back({++last_, now});
  return last_;
}

void DeathLimit::forgive(std::uint64_t death) {
  std::erase_if(deaths_, [&](const Death& one) { return one.number == death; });
}

std::optional<TimePoint> DeathLimit::exceeded_until(TimePoint now) const {
  if (deaths_.size() <= deaths_max) return std::nullopt;
  const TimePoint until = deaths_[deaths_.size() - deaths_max - 1].at + window;
  if (until <= now) return std::nullopt;
  return until;
}

}  // namespace berth::worker
