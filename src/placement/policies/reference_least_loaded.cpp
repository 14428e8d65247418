// reference_least_loaded: the reference's device placement, exactly (S0-11 to
// S0-15): queue depth plus active streams as the device reports them; a value it
// does not report counts as 0. Its skip rules (too few bytes, capability too low)
// are filters here.
// Prefers: the device that reports the least.
// Assumes: reports are current. Between two polls all work goes to one device.
// Ties: first registered.
// Loses to least_loaded, which counts its own work at once.
#include "placement/cost_policy.hpp"

namespace berth::policy {

Policy reference_least_loaded() {
  return cost_policy<Ties::first>(
      "reference: fewest reported (queued + active streams)", [](const Hints&, Views, Ticket, auto use) {
        return use([](const DeviceView& view) {
          return saturating_sum(view.queue_depth.value_or(0), view.active_streams.value_or(0));
        });
      });
}

}  // namespace berth::policy
