// reference_least_loaded: the reference's device placement, exactly (S0-11 to
// S0-15): queue depth plus active streams as the device reports them; a value it
// does not report counts as 0. Its skip rules (too few bytes, capability too low)
// are filters here.
// Prefers: the device that reports the least.
// Assumes: reports are current. Between two polls all work goes to one device.
// Ties: first registered.
// Loses to least_loaded, which counts its own work at once.
#include "placement/saturating.hpp"

namespace berth::policy {

Policy reference_least_loaded() {
  return by_cost(
      "reference: fewest reported (queued + active streams)",
      [](Candidate device) {
        return saturating_sum(device.queue_depth().value_or(0), device.active_streams().value_or(0));
      },
      Ties::first);
}

}  // namespace berth::policy
