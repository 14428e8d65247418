// reference_queue_depth: the reference scheduler's least-loaded strategy, exactly
// (S3-12): fewest pieces in flight.
// Prefers: idle devices, whatever their speed or health.
// Assumes: equal devices, concurrent work. One after the other, all work goes to
// the first device.
// Ties: lowest position.
// Loses to least_loaded as soon as speeds differ or a device fails fast.
#include "berth/policy.hpp"

namespace berth::policy {

Policy reference_queue_depth() {
  return by_cost(
      "reference: fewest in flight, first position", [](Candidate device) { return std::uint64_t{device.in_flight()}; },
      Ties::first);
}

}  // namespace berth::policy
