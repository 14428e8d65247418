// Memory of a device that the driver reserves for itself.
#pragma once

#include <algorithm>
#include <cstdint>

namespace berth::inventory {

// Bytes that may be in use on an idle device: drivers reserve hundreds of MiB, and more
// on larger devices.
inline std::uint64_t driver_reserve_bytes(std::uint64_t memory_bytes_total) {
  return std::max(std::uint64_t{1} << 30, memory_bytes_total / 100 * 3);
}

}  // namespace berth::inventory
