#include "worker/death_limit.hpp"

#include <algorithm>

namespace berth::worker {

std::uint64_t DeathLimit::add(TimePoint now, bool unclear) {
  std::erase_if(deaths_, [&](const Death& death) { return now - death.at >= window; });
  deaths_.push_back({++last_, now, unclear});
  return last_;
}

void DeathLimit::forgive(std::uint64_t death) {
  std::erase_if(deaths_, [&](const Death& one) { return one.number == death; });
}

void DeathLimit::confirm(std::uint64_t death) {
  for (Death& one : deaths_)
    if (one.number == death) one.unclear = false;
}

std::optional<TimePoint> DeathLimit::exceeded_until(TimePoint now) const {
  std::size_t later = 0;  // that count
  for (auto death = deaths_.rbegin(); death != deaths_.rend(); ++death) {
    if (death->unclear || later++ < deaths_max) continue;
    if (death->at + window <= now) return std::nullopt;
    return death->at + window;
  }
  return std::nullopt;
}

}  // namespace berth::worker
