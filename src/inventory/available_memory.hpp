// How much memory of a device a new request could get. Pure.
#pragma once

#include "berth/device_view.hpp"
#include "inventory/device_row.hpp"

namespace berth::inventory {

// Free bytes that are not promised; 0 if no request gets any: the device is out of service, not healthy, or held
// exclusively. Absent: the device does not report free memory.
OptionalU64 memory_bytes_available(const DeviceRow& row);

}  // namespace berth::inventory
