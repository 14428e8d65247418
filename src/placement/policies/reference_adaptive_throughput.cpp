// reference_adaptive_throughput: the reference scheduler's adaptive strategy, exactly (S3-14):
// learnt rate / (in flight + 1) in double precision, highest first; a device without measurements
// has rate 0. Prefers: the fastest device measured so far. Assumes: every device was measured in
// some other way; once one is measured, no other is ever tried. Ties: highest position, so without
// any measurement the last device. Loses to adaptive_throughput, which tries every device.
#include <bit>

#include "berth/policy.hpp"

namespace berth::policy {

Policy reference_adaptive_throughput() {
  return by_cost(
      "reference: mean rate over queue, last position",
      [](Candidate device) {
        const double score =
            device.mean_rate().value_or(0) / static_cast<double>(std::uint64_t{device.in_flight()} + 1);
        // The bits of doubles that are not negative are ordered as the doubles are.
        return ~std::bit_cast<std::uint64_t>(score);
      },
      Ties::last);
}

}  // namespace berth::policy
