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

bool DeathLimit::is_exceeded(TimePoint now) const {
  const auto recent =
      std::count_if(deaths_.begin(), deaths_.end(), [&](const Death& death) { return now - death.at < window; });
  return static_cast<std::size_t>(recent) > deaths_max;
}

}  // namespace berth::worker
