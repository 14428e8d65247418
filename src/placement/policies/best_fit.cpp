// best_fit: the device with the fewest bytes available that still fits. Prefers: filling a device
// before opening the next, so that large free blocks stay whole for large work. A healthy device
// comes before any suspect one. Assumes: memory is what is scarce. The filters have removed what
// does not fit. A device that does not report its memory comes after all that do. Ties: lowest id.
// Loses to spread and least_loaded on time: it stacks work on one device.
#include "berth/policy.hpp"

namespace berth::policy {

Policy best_fit() {
  return by_cost("fewest bytes available that still fit", [](Candidate device) {
    constexpr std::uint64_t half = last_resort / 2;
    return std::min(device.memory_bytes_available().value_or(half), half) + (device.is_suspect() ? half + 1 : 0);
  });
}

}  // namespace berth::policy
