// expected_finish: the device that is expected to finish this piece first:
// backlog + size of the work x learnt time per unit.
// Prefers: a long queue of small work over a short queue of large work, and the
// fast device once its queue is worth waiting for. A device nobody measured goes
// first while it has nothing in flight; with work in flight its queue and its
// speed count as the average of the measured ones.
// A suspect device's finish counts four times.
// Assumes: sizes are known and honest (1 unit where they are not), work on a
// device runs one piece after the other, learnt times fit the class of work.
// Ties: lowest id.
// Loses to least_loaded when sizes are unknown or wrong: then the backlog is too.
#include <cmath>

#include "placement/load.hpp"

namespace berth::policy {
namespace {

// Size of the work in 2^-20 units: fine enough for a millionth, and in whole
// numbers. A size that is none (negative, infinite, not a number) counts as 1.
constexpr int size_bits = 20;
std::uint64_t size_of(const Hints& requirements) {
  constexpr double one = 1 << size_bits;
  if (!(requirements.cost > 0) || !std::isfinite(requirements.cost)) return 1 << size_bits;
  return static_cast<std::uint64_t>(std::clamp(requirements.cost * one, 1.0, one * one));
}

}  // namespace

Policy expected_finish() {
  return by_cost("earliest expected finish: backlog plus size times learnt time", [](const Candidates& all) {
    return [size = size_of(all.requirements()), mean_ns = mean_unit_ns(all)](Candidate device) -> std::uint64_t {
      if (to_be_tried(device)) return 0;
      const Maybe cost = device.unit_cost_ns();
      const std::uint64_t work_ns = saturated((u128{cost ? capped_ns(*cost) : mean_ns} * size) >> size_bits);
      std::uint64_t queue_ns = device.backlog_ns();
      if (!cost) queue_ns = std::max(queue_ns, saturating_product(device.in_flight(), mean_ns));
      const std::uint64_t finish_ns = saturating_sum(queue_ns, work_ns);
      return device.is_suspect() ? saturating_product(finish_ns, suspect_factor) : finish_ns;
    };
  });
}

}  // namespace berth::policy
