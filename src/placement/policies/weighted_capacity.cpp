// weighted_capacity: work distributed in exact proportion to the weights, counted over all pieces
// charged so far: after every single piece each device is within one piece of its exact share, even
// when pieces come one after the other. The quota method of Balinski and Young ("The quota method
// of apportionment", American Mathematical Monthly 82, 1975): among the devices that stay within
// their upper quota with one more piece, the smallest (charged + 1) / weight. The naive way,
// smallest (charged + 1) / weight alone, lets the heaviest device run ahead of its quota by several
// pieces. Prefers: the device furthest behind its share. Suspect devices keep their share: it
// cannot grow by failing fast, and held-back work would return as a burst. Assumes: weights that
// mean speed, pieces of equal cost on average. A device that was filtered out for a while catches
// up when it returns, unless it re-entered service (then its count starts level). Ties: lowest id.
// Loses to least_loaded when pieces differ in cost: it ignores queues.
#include "placement/saturating.hpp"

namespace berth::policy {

Policy weighted_capacity() {
  Policy policy = by_cost("exact shares in proportion to the weights", [](const Candidates& all) {
    std::uint64_t pieces = 1;  // including the piece to be placed
    std::uint64_t weights = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      pieces = saturating_sum(pieces, all[i].charged_total());
      weights += all[i].weight_milli();
    }
    return [pieces, weights](Candidate device) -> std::uint64_t {
      const std::uint64_t charged = device.charged_total();
      // One more stays within the quota rounded up: charged < pieces x weight / weights.
      const bool over_quota = u128{charged} * weights >= u128{pieces} * device.weight_milli();
      constexpr std::uint64_t half = last_resort / 2;
      return std::min(ratio(charged + 1, device.weight_milli()), half) + (over_quota ? half + 1 : 0);
    };
  });
  policy.keeps_rotation = true;
  return policy;
}

}  // namespace berth::policy
