// reference_queue_depth: the reference scheduler's least-loaded strategy, exactly
// (S3-12): fewest pieces in flight.
// Prefers: idle devices, whatever their speed or health.
// Assumes: equal devices, concurrent work. One after the other, all work goes to
// the first device.
// Ties: lowest position.
// Loses to least_loaded as soon as speeds differ or a device fails fast.
#include "placement/cost_policy.hpp"

namespace berth::policy {

Policy reference_queue_depth() {
  return cost_policy<Ties::first>("reference: fewest in flight, first position",
                                  [](const Hints&, Views, Ticket, auto use) {
                                    return use([](const DeviceView& view) { return std::uint64_t{view.in_flight}; });
                                  });
}

}  // namespace berth::policy
