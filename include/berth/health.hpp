// The observed axis of health, as a pure state machine: outcomes, the driver's
// reports and silence in, state out. Blame the task before the device: errors
// that are the caller's fault never count. Out is quick and back is slow: one
// report that blames the device takes it out, several successes in a row bring
// it back. The operator's intent is not touched here.
#pragma once

#include <cstdint>

#include "berth/clock.hpp"
#include "berth/device_view.hpp"
#include "berth/result.hpp"
#include "berth/telemetry.hpp"

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
  // Successes in a row that end a probation. A device that fails every other
  // piece of work passes three by chance one time in eight, and each relapse
  // doubles its pause.
  std::uint32_t probation_successes = 3;
};

struct HealthState {
  Health health = Health::healthy;
  std::uint32_t failures_in_row = 0;
  std::uint32_t successes_in_row = 0;    // counted on probation
  std::uint32_t quarantines_in_row = 0;  // since it was last healthy
  TimePoint retry_at{};                  // meaningful while quarantined; max(): not by time
  // The driver wants it reset, or the machine rebooted: until it says that this
  // is done the device does not become healthy, and no pause ends.
  bool recovery_pending = false;
  friend bool operator==(const HealthState&, const HealthState&) = default;
};

// Work succeeded on the device.
HealthState after_success(HealthState state, const HealthRules& rules) noexcept;
// Work failed on the device with `code`. `may_eject` is false when too many
// devices are out already; then the device stays suspect. A lost device is
// ejected regardless: it cannot work.
HealthState after_failure(HealthState state, ErrorCode code, TimePoint now, const HealthRules& rules,
                          bool may_eject) noexcept;
// The driver reported something. What blames the device (see xid.hpp) ejects it
// at once, what is unclear makes it suspect, a task's fault changes nothing. A
// GPU that is out of reach is lost, whatever `may_eject` says.
HealthState after_event(HealthState state, const DeviceEvent& event, TimePoint now, const HealthRules& rules,
                        bool may_eject) noexcept;
// Time passed: a quarantined device whose pause is over goes on probation.
HealthState after_time(HealthState state, TimePoint now) noexcept;

// Whether a failure with this code says anything about the device.
bool blames_device(ErrorCode code) noexcept;

}  // namespace berth
