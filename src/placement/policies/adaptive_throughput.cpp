// adaptive_throughput: learnt rate divided by (in flight + 1), highest first; computed as learnt
// time per unit times (in flight + 1), lowest first. Prefers: fast devices, as far as their queues
// allow. A device without measurements goes first while it has nothing in flight, so it is tried,
// one piece at a time; with work in flight it counts as the average of the measured ones. A suspect
// device counts four times its load and is not tried out of turn. Assumes: the learnt time belongs
// to the class of the work at hand. Weights are ignored. Ties: lowest id. Loses to expected_finish
// when the size of the work is known, and to least_loaded when weights were configured and
// measurements are still few or noisy.
#include "placement/load.hpp"

namespace berth::policy {

Policy adaptive_throughput() {
  return by_cost("highest learnt rate for its queue; unmeasured devices are tried", [](const Candidates& all) {
    return [mean_ns = mean_unit_ns(all)](Candidate device) -> std::uint64_t {
      if (to_be_tried(device)) return 0;
      const OptionalU64 cost = device.unit_cost_ns();
      return saturating_product(load(device), cost ? capped_ns(*cost) : mean_ns);
    };
  });
}

}  // namespace berth::policy
