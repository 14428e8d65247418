// Device health as a pure state machine: its input is the outcome of work, driver events and time.
// Errors that are the caller's fault never count against the device. A device is removed quickly
// and returns slowly: one event that blames it removes it; it returns after several successes in a
// row. The operator's intent is separate and not changed here.
#pragma once

#include "berth/version.hpp"

#include <cstdint>

#include "berth/clock.hpp"
#include "berth/device_view.hpp"
#include "berth/result.hpp"
#include "berth/telemetry.hpp"

namespace berth {

struct HealthRules {
  // Three failures in a row are rarely chance (0.1 % at an error rate of 10 %); five
  // quarantine the device.
  std::uint32_t suspect_after = 3;
  std::uint32_t quarantine_after = 5;
  // Time before a quarantined device is tried again; doubles with each failed try, up
  // to `pause_max`.
  Duration pause = std::chrono::seconds(5);
  Duration pause_max = std::chrono::seconds(60);
  // Successes in a row that end a probation. A device that fails every other piece of work passes
  // three by chance in one of eight cases, and each relapse doubles its pause.
  std::uint32_t probation_successes = 3;
};

struct HealthState {
  Health health = Health::healthy;
  std::uint32_t failures_in_row = 0;
  std::uint32_t successes_in_row = 0;    // counted only on probation
  std::uint32_t quarantines_in_row = 0;  // since it was last healthy
  TimePoint retry_at{};                  // end of a quarantine; max(): only an event ends it
  // The driver requires a reset or reboot: until it reports that this is done, the device does not
  // become healthy and time does not end a quarantine.
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
// The driver reported an event. One that blames the device (see xid.hpp) ejects it
// at once, an unclear one makes it suspect, and one caused by the work changes
// nothing. An unreachable GPU is lost, regardless of `may_eject`.
HealthState after_event(HealthState state, const DeviceEvent& event, TimePoint now, const HealthRules& rules,
                        bool may_eject) noexcept;
// Time passed: a quarantined device whose pause is over enters probation.
HealthState after_time(HealthState state, TimePoint now) noexcept;

// Whether a failure with this code counts against the device.
bool blames_device(ErrorCode code) noexcept;

}  // namespace berth
