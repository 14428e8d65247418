// The words of devices in files and messages (world/description.hpp).
#pragma once

#include <array>

#include "berth/device_view.hpp"
#include "berth/telemetry.hpp"
#include "world/description.hpp"

namespace berth::world {

template <>
inline constexpr std::array words<Intent>{Intent::in_service, Intent::cordoned, Intent::draining};
template <>
inline constexpr std::array words<Health>{Health::healthy, Health::suspect, Health::quarantined, Health::probation,
                                          Health::lost};
template <>
inline constexpr std::array words<ProcessKind>{ProcessKind::own, ProcessKind::berth, ProcessKind::foreign};
template <>
inline constexpr std::array words<DeviceEvent::Kind>{DeviceEvent::Kind::xid, DeviceEvent::Kind::recovery_action,
                                                     DeviceEvent::Kind::ecc_error, DeviceEvent::Kind::unavailable};

}  // namespace berth::world
