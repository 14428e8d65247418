#include "worker/death_limit.hpp"

#include <utility>

namespace berth::worker {

std::uint64_t DeathLimit::add(TimePoint now, DeathCircumstances circumstances) {
  std::erase_if(deaths_, [&](const Death& death) { return now - death.at >= window; });
  bool guilty = false;
  for (Death& earlier : deaths_) {
    if (circumstances.task.empty() || earlier.circumstances.task != circumstances.task) continue;
    earlier.forgiven = guilty = true;
  }
  deaths_.push_back({++last_, now, std::move(circumstances), guilty});
  return last_;
}

void DeathLimit::forgive(std::uint64_t death) {
  for (Death& record : deaths_)
    if (record.number == death) record.forgiven = true;
}

void DeathLimit::confirm(std::uint64_t death) {
  for (Death& record : deaths_)
    if (record.number == death) record.circumstances.unclear = false;
}

std::optional<TimePoint> DeathLimit::exceeded_until(TimePoint now) const {
  std::size_t later = 0;  // later deaths that count
  for (auto death = deaths_.rbegin(); death != deaths_.rend(); ++death) {
    if (death->circumstances.unclear || death->forgiven || later++ < deaths_max) continue;
    if (death->at + window <= now) return std::nullopt;
    return death->at + window;
  }
  return std::nullopt;
}

}  // namespace berth::worker
