// What a driver keeps of a device's memory for itself.
#pragma once

#include <algorithm>
#include <cstdint>

namespace berth::inventory {

// Bytes of a device with nothing on it that may be in use all the same: drivers keep
// hundreds of MiB for themselves, and more on larger devices.
inline std::uint64_t driver_reserve_bytes(std::uint64_t memory_bytes_total) {
  return std::max(std::uint64_t{1} << 30, memory_bytes_total / 100 * 3);
}

}  // namespace berth::inventory
