// expected_finish: the device that is expected to finish this piece first: backlog + size of the
// work x learnt time per unit. Prefers: a long queue of small work over a short queue of large
// work, and the fast device once its queue is worth waiting for. A device without measurements goes
// first while it has nothing in flight; with work in flight its queue and its speed count as the
// average of the measured ones. A suspect device's finish counts four times. Assumes: sizes are
// known and honest (1 unit if not), work on a device runs one piece after the other, learnt times
// fit the class of work. Ties: lowest id. Loses to least_loaded when sizes are unknown or wrong:
// then the backlog is wrong too.
#include "placement/load.hpp"

namespace berth::policy {

Policy expected_finish() {
  return by_cost("earliest expected finish: backlog plus size times learnt time", [](const Candidates& all) {
    return [size = size_of(all.requirements().cost), mean_ns = mean_unit_ns(all)](Candidate device) -> std::uint64_t {
      if (to_be_tried(device)) return 0;
      const OptionalU64 cost = device.unit_cost_ns();
      const std::uint64_t work_ns = saturated((u128{cost ? capped_ns(*cost) : mean_ns} * size) >> size_bits);
      std::uint64_t queue_ns = device.backlog_ns();
      if (!cost) queue_ns = std::max(queue_ns, saturating_product(device.in_flight(), mean_ns));
      const std::uint64_t finish_ns = saturating_sum(queue_ns, work_ns);
      return device.is_suspect() ? saturating_product(finish_ns, suspect_factor) : finish_ns;
    };
  });
}

}  // namespace berth::policy
