// From a cost function to a Policy. A policy names the cost of a device (lower
// is better), this adaptor makes all of it: `choose`, one pass without
// allocation into which the cost function is inlined, `choose_live`, the same
// pass over the pool's live words, and `costs`, the same numbers for ranking and
// explanation. Ties go by id_order unless told otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "berth/placement.hpp"
#include "placement/live.hpp"

namespace berth::policy {

using Views = std::span<const DeviceView>;
__extension__ using u128 = unsigned __int128;

// What a cost function may ask of a device, whichever way it is given.
template <class View>
concept Live = std::is_base_of_v<LiveDevice, View>;
inline std::uint32_t in_flight(const DeviceView& view) { return view.in_flight; }
inline std::uint32_t in_flight(const Live auto& view) { return view.in_flight(); }
inline std::uint64_t backlog_ns(const DeviceView& view) { return view.backlog_ns; }
inline std::uint64_t backlog_ns(const Live auto& view) { return view.backlog_ns(); }
inline std::uint64_t charged_total(const DeviceView& view) { return view.charged_total; }
inline std::uint64_t charged_total(const Live auto& view) {
  return view.charged_total_at() >> LiveWords::charged_shift;
}
inline std::uint32_t weight_milli(const DeviceView& view) { return view.weight_milli; }
inline std::uint32_t weight_milli(const Live auto& view) { return view.weight_milli(); }
inline Maybe unit_cost_ns(const DeviceView& view) { return view.unit_cost_ns; }
inline Maybe unit_cost_ns(const Live auto& view) { return view.unit_cost_ns(); }
inline Health health(const DeviceView& view) { return view.health; }
inline Health health(const Live auto& view) { return view.health(); }

template <class F>
void each(Views eligible, F f) {
  for (const DeviceView& view : eligible) f(view);
}
template <class F>
void each(const LiveDevices& eligible, F f) {
  eligible.each([&](const auto& view, std::size_t) { f(view); });
}

// Behind every other device, whatever their load.
inline constexpr std::uint64_t last_resort = std::numeric_limits<std::uint64_t>::max();

constexpr std::uint64_t saturated(u128 value) {
  return value < last_resort ? static_cast<std::uint64_t>(value) : last_resort;
}
constexpr std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? last_resort : product;
}
constexpr std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? last_resort : sum;
}

// A cost that is a quotient, compared exactly and without a division. The
// product of a numerator and a denominator must fit into Product.
template <class Value, class Product>
struct Ratio {
  Value numerator = 0;
  Value denominator = 1;
  friend constexpr bool operator<(Ratio a, Ratio b) {
    return Product{a.numerator} * b.denominator < Product{b.numerator} * a.denominator;
  }
  friend constexpr bool operator==(Ratio a, Ratio b) {
    return Product{a.numerator} * b.denominator == Product{b.numerator} * a.denominator;
  }
};

// As whole numbers: never reverses an order, and keeps 32 bits after the point.
constexpr std::uint64_t as_cost(std::uint64_t cost) { return cost; }
template <class Value, class Product>
constexpr std::uint64_t as_cost(Ratio<Value, Product> cost) {
  return saturated((u128{cost.numerator} << 32) / cost.denominator);
}

// Member by member for the others, so that nothing needs a branch.
template <class Number>
constexpr Number select(bool first, Number a, Number b) {
  return first ? a : b;
}
template <class Value, class Product>
constexpr Ratio<Value, Product> select(bool first, Ratio<Value, Product> a, Ratio<Value, Product> b) {
  return {first ? a.numerator : b.numerator, first ? a.denominator : b.denominator};
}

// One pass, with selects instead of branches: nobody can predict who wins.
template <Ties ties, class Cost>
std::size_t lowest(Views eligible, Cost cost) {
  std::size_t best = 0;
  auto best_cost = cost(eligible[0]);
  std::uint32_t best_order = eligible[0].id_order;
  for (std::size_t i = 1; i < eligible.size(); ++i) {
    const auto here = cost(eligible[i]);
    const std::uint32_t order = eligible[i].id_order;
    const bool wins_tie = ties == Ties::last || (ties == Ties::stable_id && order < best_order);
    const bool less = here < best_cost;
    const bool more = best_cost < here;
    const bool wins = less | (wins_tie & !more);
    best = wins ? i : best;
    best_cost = select(wins, here, best_cost);
    best_order = wins ? order : best_order;
  }
  return best;
}

// Stands for the continuation where only the shape of a call is asked about.
struct Anything {
  template <class Cost>
  LiveChoice operator()(Cost) const {
    return {};
  }
};

// A cost with the position of its device below it, as live words have it.
struct CostAt {
  std::uint64_t value = 0;
};

// A device in the running. Small costs carry the position below them (those of 32
// bits the rank of the id too), so that one comparison tells all.
template <bool by_position, class Cost>
struct Runner {
  Cost cost{};
  std::uint32_t order = 0;
  std::size_t index = LiveChoice::nobody;

  static Runner last() { return {last_resort, 0, 0}; }
  template <class View>
  static Runner of(const View& view, std::size_t i, Cost cost) {
    return {cost, by_position ? 0 : view.id_order(), i};
  }
  // Either, `later` lying behind this one.
  Runner or_later(const Runner& later) const {
    const bool less = later.cost < cost;
    const bool wins = by_position ? less : bool(less | ((later.order < order) & !(cost < later.cost)));
    return {select(wins, later.cost, cost), wins ? later.order : order, wins ? later.index : index};
  }
  std::size_t position() const { return index; }
  bool has(Cost other) const { return cost == other; }
};
template <bool by_position>
struct Runner<by_position, std::uint32_t> {
  std::uint64_t key = 0;

  static Runner last() { return {last_resort}; }
  template <class View>
  static Runner of(const View& view, std::size_t i, std::uint32_t cost) {
    return {std::uint64_t{cost} << 32 | (by_position ? 0 : view.id_order() << 16) | i};
  }
  Runner or_later(const Runner& later) const { return {std::min(key, later.key)}; }
  std::size_t position() const { return key & 0xffff; }
  bool has(std::uint32_t cost) const { return key >> 32 == cost; }
};
template <>
struct Runner<true, CostAt> {
  std::uint64_t key = 0;

  static Runner last() { return {last_resort}; }
  template <class View>
  static Runner of(const View&, std::size_t, CostAt cost) {
    return {cost.value};
  }
  Runner or_later(const Runner& later) const { return {std::min(key, later.key)}; }
  std::size_t position() const { return key & ~LiveWords::charged_mask; }
  bool has(CostAt cost) const { return key == cost.value; }
};

// The same over live words, of those that may serve. What the scan saw of the
// winner must still be so when its charge word is read; if not, no charge will
// succeed with the answer.
template <bool by_position, class Cost>
LiveChoice lowest_live(const LiveDevices& eligible, Cost cost) {
  using Best = Runner<by_position, decltype(cost(std::declval<LiveView>()))>;
  Best best;
  bool found = false;
  eligible.each([&](const auto& view, std::size_t i) {
    const Best here = Best::of(view, i, cost(view));
    best = found ? best.or_later(here) : here;
    found = true;
  });
  if (!found) return {};
  const LiveView winner = eligible.at(best.position());
  const bool same = best.has(cost(winner)) && (!eligible.picky() || eligible.may_serve(best.position(), winner));
  return {best.position(), same ? winner.charge() : LiveChoice::changed};
}

// The same of all devices, eight at a time as in a tournament: no comparison waits
// for more than three others of its eight. The cost is below 2^64 - 1.
template <class Cost>
[[gnu::always_inline]] inline LiveChoice lowest_of_all(const WholeDevices& all, Cost cost) {
  using Best = Runner<true, decltype(cost(all.at(0)))>;
  const auto at = [&](std::size_t i) __attribute__((always_inline)) {
    const WholeView view = all.at(i);
    return Best::of(view, i, cost(view));
  };
  const auto best_of_two = [&](std::size_t i) __attribute__((always_inline)) { return at(i).or_later(at(i + 1)); };
  const auto best_of_four = [&](std::size_t i) __attribute__((always_inline)) {
    return best_of_two(i).or_later(best_of_two(i + 2));
  };
  const std::size_t n = all.count();
  Best best = Best::last();
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) best = best.or_later(best_of_four(i).or_later(best_of_four(i + 4)));
  for (; i < n; ++i) best = best.or_later(at(i));
  const WholeView winner = all.at(best.position());
  // Before the cost: whoever changes it in between makes the charge fail.
  const std::uint64_t charge = winner.charge();
  return {best.position(), best.has(cost(winner)) ? charge : LiveChoice::changed};
}

template <class Over>
LiveChoice choose_live(const Hints& hints, const LiveWords& words, Ticket ticket) {
  const LiveDevices eligible(words, hints);
  return Over{}(hints, eligible, ticket, [&eligible](auto cost) {
    if (eligible.says(LiveSummary::in_id_order)) return lowest_live<true>(eligible, cost);
    return lowest_live<false>(eligible, cost);
  });
}

// `over(hints, eligible, ticket, use)` returns use(cost), where cost(view) is a
// whole number of 32 or 64 bits or a Ratio. It may look at all devices first and
// hand over one of several cost functions; each gets a loop of its own. It takes
// `eligible` and the view as `auto`, or as views alone: then there is no live form.
template <Ties ties = Ties::stable_id, class Over>
Policy cost_policy(std::string_view summary, Over over) {
  Policy policy;
  policy.summary = summary;
  policy.ties = ties;
  policy.choose = [over](const Hints& hints, Views eligible, Ticket ticket) {
    return over(hints, eligible, ticket, [eligible](auto cost) { return lowest<ties>(eligible, cost); });
  };
  policy.costs = [over](const Hints& hints, Views eligible, Ticket ticket) {
    return over(hints, eligible, ticket, [eligible](auto cost) {
      std::vector<std::uint64_t> costs;
      for (const DeviceView& view : eligible) costs.push_back(as_cost(cost(view)));
      return costs;
    });
  };
  if constexpr (ties == Ties::stable_id &&
                std::is_invocable_v<Over, const Hints&, const LiveDevices&, Ticket, Anything>) {
    policy.choose_live = choose_live<Over>;
  }
  return policy;
}

}  // namespace berth::policy
