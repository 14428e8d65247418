#include "machine/restart_limit.hpp"

namespace berth::machine {

std::optional<Duration> RestartLimit::next_delay(TimePoint now) {
  while (!recent_.empty() && now - recent_.front() >= window) recent_.pop_front();
  if (recent_.size() >= restarts_max) return std::nullopt;
  const Duration delay = first_delay * (1 << recent_.size());
  recent_.push_back(now);
  return delay;
}

}  // namespace berth::machine
