#include "berth/health.hpp"

#include <algorithm>

#include "berth/xid.hpp"

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
    case ErrorCode::worker_lost:
    case ErrorCode::poison_task:
    case ErrorCode::out_of_memory: return false;
    default: return true;
  }
}

namespace {

// Quarantines the device for twice as long as the last time.
HealthState eject(HealthState state, TimePoint now, const HealthRules& rules, bool may_eject) noexcept {
  state.successes_in_row = 0;
  if (!may_eject) {
    state.health = Health::suspect;
    return state;
  }
  Duration pause = rules.pause;
  for (std::uint32_t i = 0; i < state.quarantines_in_row && pause < rules.pause_max; ++i) pause *= 2;
  state.health = Health::quarantined;
  state.retry_at = state.recovery_pending ? TimePoint::max() : now + std::min(pause, rules.pause_max);
  ++state.quarantines_in_row;
  return state;
}

// The recovery action of the driver has changed.
HealthState after_recovery_action(HealthState state, RecoveryAction action, TimePoint now, const HealthRules& rules,
                                  bool may_eject) noexcept {
  const bool pending = action != RecoveryAction::none && action != RecoveryAction::drain_peers;
  if (state.recovery_pending && !pending && state.health == Health::quarantined) state.retry_at = now + rules.pause;
  state.recovery_pending = pending;
  if (pending && state.health == Health::quarantined) state.retry_at = TimePoint::max();
  if (pending && state.health != Health::quarantined) return eject(state, now, rules, may_eject);
  if (action == RecoveryAction::drain_peers && state.health == Health::healthy) state.health = Health::suspect;
  return state;
}

}  // namespace

HealthState after_success(HealthState state, const HealthRules& rules) noexcept {
  if (state.health == Health::lost || state.health == Health::quarantined) return state;
  state.failures_in_row = 0;
  if (state.recovery_pending) return state;
  if (state.health == Health::probation && ++state.successes_in_row < rules.probation_successes) return state;
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
  if (state.health == Health::probation || state.failures_in_row >= rules.quarantine_after)
    return eject(state, now, rules, may_eject);
  if (state.failures_in_row >= rules.suspect_after) state.health = Health::suspect;
  return state;
}

HealthState after_event(HealthState state, const DeviceEvent& event, TimePoint now, const HealthRules& rules,
                        bool may_eject) noexcept {
  if (state.health == Health::lost) return state;
  if (event.kind == DeviceEvent::Kind::recovery_action)
    return after_recovery_action(state, static_cast<RecoveryAction>(event.code), now, rules, may_eject);
  if (event.kind == DeviceEvent::Kind::xid && event.code == xid_fallen_off_the_bus) {
    state.health = Health::lost;
    return state;
  }
  switch (blame_of(event)) {
    case Blame::task:
    case Blame::none: break;
    case Blame::unclear:
      if (state.health == Health::healthy) state.health = Health::suspect;
      break;
    case Blame::device:
      if (state.health != Health::quarantined) return eject(state, now, rules, may_eject);
      break;
  }
  return state;
}

HealthState after_time(HealthState state, TimePoint now) noexcept {
  if (state.health == Health::quarantined && now >= state.retry_at) {
    state.health = Health::probation;
    state.successes_in_row = 0;
  }
  return state;
}

}  // namespace berth
