// reference_most_memory: the reference pool's "best available" device, exactly (S4-6): the most
// bytes in total, free or not; a device that does not report it has 0. Prefers: the largest device,
// always the same. Assumes: nothing runs anywhere. Ties: first registered. Loses to spread, which
// considers the available memory.
#include "berth/policy.hpp"

namespace berth::policy {

Policy reference_most_memory() {
  return by_cost(
      "reference: most bytes in total, first position",
      [](Candidate device) { return ~device.info().memory_bytes_total.value_or(0); }, Ties::first);
}

}  // namespace berth::policy
