// reference_weighted_capacity: the reference scheduler's weighted strategy, exactly
// (S3-13): weight / (sum of weights x (in flight + 1)) in single precision, highest
// first.
// Prefers: heavy devices as far as their queues allow.
// Assumes: concurrent work. One after the other, all work goes to the heaviest.
// Ties: lowest position.
// Loses to weighted_capacity, which keeps the proportions in every case.
#include <bit>

#include "berth/policy.hpp"

namespace berth::policy {

Policy reference_weighted_capacity() {
  return by_cost(
      "reference: weight over queue, single precision, first position",
      [](const Candidates& all) {
        // The reference's own sum, in its order: part of the exact rule.
        float weights = 0;
        for (std::size_t i = 0; i < all.size(); ++i) weights += static_cast<float>(all[i].weight_milli()) / 1000.0F;
        return [weights](Candidate device) -> std::uint64_t {
          const float depth = static_cast<float>(std::uint64_t{device.in_flight()} + 1);
          const float score = static_cast<float>(device.weight_milli()) / 1000.0F / (weights * depth);
          // The bits of positive floats are ordered as the floats are.
          return ~std::bit_cast<std::uint32_t>(score);
        };
      },
      Ties::first);
}

}  // namespace berth::policy
