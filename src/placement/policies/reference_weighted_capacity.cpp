// reference_weighted_capacity: the reference scheduler's weighted strategy, exactly
// (S3-13): weight / (sum of weights x (in flight + 1)) in single precision, highest
// first.
// Prefers: heavy devices as far as their queues allow.
// Assumes: concurrent work. One after the other, all work goes to the heaviest.
// Ties: lowest position.
// Loses to weighted_capacity, which keeps the proportions in every case.
#include <bit>

#include "placement/load.hpp"

namespace berth::policy {

Policy reference_weighted_capacity() {
  return cost_policy<Ties::first>("reference: weight over queue, single precision, first position",
                                  [](const Hints&, Views eligible, Ticket, auto use) {
                                    // The reference's own sum, in its order: part of the exact rule.
                                    float weights = 0;
                                    for (const DeviceView& view : eligible)
                                      weights += static_cast<float>(weight(view)) / 1000.0F;
                                    return use([weights](const DeviceView& view) -> std::uint64_t {
                                      const float depth = static_cast<float>(std::uint64_t{view.in_flight} + 1);
                                      const float score =
                                          static_cast<float>(weight(view)) / 1000.0F / (weights * depth);
                                      // The bits of positive floats are ordered as the floats are.
                                      return ~std::bit_cast<std::uint32_t>(score);
                                    });
                                  });
}

}  // namespace berth::policy
