// The observed axis of health, as a pure state machine: outcomes and silence
// in, state out. Blame the task before the device: errors that are the
// caller's fault never count. The operator's intent is not touched here.
#pragma once

#include <cstdint>

#include "berth/clock.hpp"
#include "berth/device_view.hpp"
#include "berth/result.hpp"

namespace berth {

struct HealthRules {
  // Three failures in a row are seldom chance (a 10 % error rate gives 0.1 %);
  // five take the device out.
  std::uint32_t suspect_after = 3;
  std::uint32_t quarantine_after = 5;
  // First pause before a quarantined device is tried again; doubles up to the
  // cap with each failed try.
  Duration pause = std::chrono::seconds(5);
  Duration pause_max = std::chrono::seconds(60);
};

struct HealthState {
  Health health = Health::healthy;
  std::uint32_t failures_in_row = 0;
  std::uint32_t quarantines_in_row = 0;
  TimePoint retry_at{};  // meaningful while quarantined
  friend bool operator==(const HealthState&, const HealthState&) = default;
};

// Work succeeded on the device.
HealthState after_success(HealthState state) noexcept;
// Work failed on the device with `code`. `may_eject` is false when too many
// devices are out already; then the device stays suspect. A lost device is
// ejected regardless: it cannot work.
HealthState after_failure(HealthState state, ErrorCode code, TimePoint now, const HealthRules& rules,
                          bool may_eject) noexcept;
// Time passed: a quarantined device whose pause is over goes on probation.
HealthState after_time(HealthState state, TimePoint now) noexcept;

// Whether a failure with this code says anything about the device.
bool blames_device(ErrorCode code) noexcept;

}  // namespace berth
