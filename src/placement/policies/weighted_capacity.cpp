// weighted_capacity: work shared out in exact proportion to the weights, counted
// over all pieces charged so far: after every single piece each device is within
// one piece of its exact share, also when work comes one after the other.
// The quota method of Balinski and Young ("The quota method of apportionment",
// American Mathematical Monthly 82, 1975): among the devices that stay within
// their upper quota with one more piece, the smallest (charged + 1) / weight.
// The naive way, smallest (charged + 1) / weight alone, lets the heaviest device
// run ahead of its quota by several pieces.
// Prefers: whoever is furthest behind its share. Suspect devices keep their
// share: it cannot grow by failing fast, and what was held back would come back
// as a burst.
// Assumes: weights that mean speed, pieces of equal cost on average. A device
// that was filtered out for a while catches up when it returns, unless it
// re-entered service (then its count starts level).
// Ties: lowest id.
// Loses to least_loaded when pieces differ in cost: it never looks at queues.
#include "placement/load.hpp"

namespace berth::policy {
namespace {

// (charged + 1) / weight, after all that stay within their quota.
template <class Value, class Product>
struct Turn {
  bool over_quota = false;
  Ratio<Value, Product> share;
  friend bool operator<(const Turn& a, const Turn& b) {
    const bool less = a.share < b.share;
    return (b.over_quota & !a.over_quota) | (less & (a.over_quota == b.over_quota));
  }
  friend bool operator==(const Turn& a, const Turn& b) { return a.over_quota == b.over_quota && a.share == b.share; }
};

template <class Value, class Product>
Turn<Value, Product> select(bool first, const Turn<Value, Product>& a, const Turn<Value, Product>& b) {
  return {first ? a.over_quota : b.over_quota, select(first, a.share, b.share)};
}

template <class Value, class Product>
std::uint64_t as_cost(const Turn<Value, Product>& turn) {
  constexpr std::uint64_t half = last_resort / 2;
  return std::min(as_cost(turn.share), half) + (turn.over_quota ? half + 1 : 0);
}

template <class Value, class Product, class Use>
auto by_quota(std::uint64_t pieces, std::uint64_t weights, Use use) {
  return use([pieces, weights](const auto& view) {
    const auto charged = static_cast<Value>(charged_total(view));
    // One more stays within the quota rounded up: charged < pieces x weight / weights.
    const bool over_quota =
        Product{charged} * static_cast<Value>(weights) >= Product{static_cast<Value>(pieces)} * weight(view);
    return Turn<Value, Product>{over_quota, {static_cast<Value>(charged + 1), weight(view)}};
  });
}

// With equal weights whoever has the fewest pieces is behind its share, so never
// over its quota. Known without a look at the devices of live words alone.
bool weights_equal(Views) { return false; }
bool weights_equal(const LiveDevices& eligible) { return !eligible.says(LiveSummary::weights_differ); }

LiveChoice choose_quickly(const LiveWords& words, Ticket, std::size_t work_class, bool) {
  const WholeDevices all(words, work_class);
  if (all.says(LiveSummary::weights_differ)) return {};
  return lowest_of_all(all, [](const WholeView& view) { return CostAt{view.charged_total_at()}; });
}

}  // namespace

Policy weighted_capacity() {
  Policy policy = cost_policy("exact shares in proportion to the weights",
                              [](const Hints&, const auto& eligible, Ticket, auto use) {
                                if (weights_equal(eligible))
                                  return use([](const auto& view) { return charged_total(view); });
                                std::uint64_t pieces = 1;  // with the one to be placed
                                std::uint64_t weights = 0;
                                each(eligible, [&](const auto& view) {
                                  pieces = saturating_sum(pieces, charged_total(view));
                                  weights += weight(view);
                                });
                                // Products of 32-bit numbers are several times cheaper than those of 64-bit
                                // ones, and enough for the first four thousand million pieces.
                                constexpr std::uint64_t small = std::numeric_limits<std::uint32_t>::max();
                                if (pieces <= small && weights <= small)
                                  return by_quota<std::uint32_t, std::uint64_t>(pieces, weights, use);
                                return by_quota<std::uint64_t, u128>(pieces, weights, use);
                              });
  policy.choose_quickly = choose_quickly;
  policy.judges_singly = true;
  policy.takes_turns = true;
  return policy;
}

}  // namespace berth::policy
