#include "berth/health.hpp"

#include <algorithm>

namespace berth {

bool blames_device(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::not_found:
    case ErrorCode::already_exists:
    case ErrorCode::not_supported:
    case ErrorCode::stale_handle:
    case ErrorCode::cancelled:
    case ErrorCode::queue_full:
    case ErrorCode::no_eligible_device:
    case ErrorCode::out_of_memory: return false;
    default: return true;
  }
}

HealthState after_success(HealthState state) noexcept {
  if (state.health == Health::lost || state.health == Health::quarantined) return state;
  return {};
}

HealthState after_failure(HealthState state, ErrorCode code, TimePoint now, const HealthRules& rules,
                          bool may_eject) noexcept {
  if (!blames_device(code) || state.health == Health::lost) return state;
  if (code == ErrorCode::device_lost) {
    state.health = Health::lost;
    return state;
  }
  if (state.health == Health::quarantined) return state;
  ++state.failures_in_row;
  const bool out = state.health == Health::probation || state.failures_in_row >= rules.quarantine_after;
  if (out && may_eject) {
    Duration pause = rules.pause;
    for (std::uint32_t i = 0; i < state.quarantines_in_row && pause < rules.pause_max; ++i) pause *= 2;
    state.health = Health::quarantined;
    state.retry_at = now + std::min(pause, rules.pause_max);
    ++state.quarantines_in_row;
  } else if (out || state.failures_in_row >= rules.suspect_after) {
    state.health = Health::suspect;
  }
  return state;
}

HealthState after_time(HealthState state, TimePoint now) noexcept {
  if (state.health == Health::quarantined && now >= state.retry_at) state.health = Health::probation;
  return state;
}

}  // namespace berth
