// adaptive_throughput: learnt rate divided by (in flight + 1), highest first;
// computed as learnt time per unit times (in flight + 1), lowest first.
// Prefers: fast devices as far as their queues allow. A device nobody measured
// goes first while it has nothing in flight, so it is tried, one piece at a
// time; with work in flight it counts as the average of the measured ones.
// A suspect device counts four times its load and is not tried out of turn.
// Assumes: the learnt time belongs to the class of the work at hand. Weights are
// not looked at.
// Ties: lowest id.
// Loses to expected_finish when the size of the work is known, to least_loaded
// when weights were configured and measurements are still few or noisy.
#include "placement/load.hpp"

namespace berth::policy {
namespace {

LiveChoice choose_quickly(const LiveWords& words, Ticket, std::size_t work_class, bool) {
  const WholeDevices all(words, work_class);
  if (!all.all_measured()) return {};
  return lowest_of_all(all, [](const auto& view) { return load_ns(view); });
}

}  // namespace

Policy adaptive_throughput() {
  Policy policy = cost_policy("highest learnt rate for its queue; unmeasured devices are tried",
                              [](const Hints&, const auto& eligible, Ticket, auto use) {
                                const Measured known = measured(eligible);
                                if (known.all) {
                                  return use([](const auto& view) { return load_ns(view); });
                                }
                                return use([mean_ns = known.mean_ns](const auto& view) -> std::uint64_t {
                                  if (to_be_tried(view)) return 0;
                                  const Maybe cost = unit_cost_ns(view);
                                  return saturating_product(load(view), cost ? capped_ns(*cost) : mean_ns);
                                });
                              });
  policy.choose_quickly = choose_quickly;
  policy.judges_singly = true;
  return policy;
}

}  // namespace berth::policy
