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
std::uint64_t size_of(const Hints& hints) {
  constexpr double one = 1 << size_bits;
  if (!(hints.cost > 0) || !std::isfinite(hints.cost)) return 1 << size_bits;
  return static_cast<std::uint64_t>(std::clamp(hints.cost * one, 1.0, one * one));
}

template <class View>
std::uint64_t finish_ns(const View& view) {
  // Backlogs are sums of 2^16 capped times: of live words four of these fit.
  if constexpr (Live<View>) return backlog_ns(view) + unit_ns(view);
  return saturating_sum(backlog_ns(view), unit_ns(view));
}

template <class View>
std::uint64_t for_health(const View& view, std::uint64_t finish_ns) {
  return is_suspect(view) ? saturating_product(finish_ns, suspect_factor) : finish_ns;
}

LiveChoice choose_quickly(const LiveWords& words, Ticket, std::size_t work_class, bool sized) {
  const WholeDevices all(words, work_class);
  if (sized || !all.all_measured()) return {};
  return lowest_of_all(all, [](const auto& view) { return finish_ns(view); });
}

}  // namespace

Policy expected_finish() {
  Policy policy = cost_policy("earliest expected finish: backlog plus size times learnt time",
                              [](const Hints& hints, const auto& eligible, Ticket, auto use) {
                                const std::uint64_t size = size_of(hints);
                                const Measured known = measured(eligible);
                                if (known.all && size == 1 << size_bits) {
                                  return use([](const auto& view) { return for_health(view, finish_ns(view)); });
                                }
                                const std::uint64_t mean_ns = known.mean_ns;
                                return use([size, mean_ns](const auto& view) -> std::uint64_t {
                                  if (to_be_tried(view)) return 0;
                                  const Maybe cost = unit_cost_ns(view);
                                  const std::uint64_t work_ns =
                                      saturated((u128{cost ? capped_ns(*cost) : mean_ns} * size) >> size_bits);
                                  const std::uint64_t backlog = backlog_ns(view);
                                  const std::uint64_t queue_ns =
                                      cost ? backlog : std::max(backlog, saturating_product(in_flight(view), mean_ns));
                                  const std::uint64_t finish_ns = saturating_sum(queue_ns, work_ns);
                                  return for_health(view, finish_ns);
                                });
                              });
  policy.choose_quickly = choose_quickly;
  policy.judges_singly = true;
  return policy;
}

}  // namespace berth::policy
