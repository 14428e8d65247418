// spread: the device with the fewest pieces in flight, then the one with the most bytes available.
// Prefers: empty devices, and among them roomy ones, so that a fault or a burst of memory hits as
// little as possible. A suspect device counts four times its load. Assumes: devices of similar
// speed; weights and learnt times are ignored. A device that does not report its memory comes after
// all that do. Ties: lowest id. Bytes count in KiB. Loses to best_fit when large work must still
// fit later, and to least_loaded when devices differ in speed.
#include "placement/load.hpp"

namespace berth::policy {

Policy spread() {
  return by_cost("fewest in flight, then most bytes available", [](Candidate device) {
    // 24 bits of load above 40 bits of missing KiB: 16 million pieces, 1 PiB.
    constexpr std::uint64_t load_max = (1 << 24) - 1;
    constexpr std::uint64_t room_max = (std::uint64_t{1} << 40) - 1;
    const std::uint64_t room = std::min(device.memory_bytes_available().value_or(0) >> 10, room_max);
    return (std::min(load(device), load_max) << 40) | (room_max - room);
  });
}

}  // namespace berth::policy
