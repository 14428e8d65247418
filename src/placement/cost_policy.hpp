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
inline std::uint32_t in_flight(const DeviceView& view) { return view.in_flight; }
inline std::uint32_t in_flight(const LiveView& view) { return view.in_flight(); }
inline std::uint64_t backlog_ns(const DeviceView& view) { return view.backlog_ns; }
inline std::uint64_t backlog_ns(const LiveView& view) { return view.backlog_ns(); }
inline std::uint64_t charged_total(const DeviceView& view) { return view.charged_total; }
inline std::uint64_t charged_total(const LiveView& view) { return view.charged_total(); }
inline std::uint32_t weight_milli(const DeviceView& view) { return view.weight_milli; }
inline std::uint32_t weight_milli(const LiveView& view) { return view.weight_milli(); }
inline Maybe unit_cost_ns(const DeviceView& view) { return view.unit_cost_ns; }
inline Maybe unit_cost_ns(const LiveView& view) { return view.unit_cost_ns(); }
inline Health health(const DeviceView& view) { return view.health; }
inline Health health(const LiveView& view) { return view.health(); }
constexpr Health health(const HealthyLiveView& view) { return view.health(); }

template <class F>
void each(Views eligible, F f) {
  for (const DeviceView& view : eligible) f(view);
}
template <class F>
void each(const LiveDevices& eligible, F f) {
  eligible.each([&](const auto& view, std::size_t) { f(view); });
}

// Work in flight alone as the cost.
struct InFlight {
  template <class View>
  std::uint32_t operator()(const View& view) const {
    return in_flight(view);
  }
};

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

// A count of the live words, below 2^48: the position fits below it.
struct Count {
  std::uint64_t value = 0;
  friend constexpr bool operator<(Count a, Count b) { return a.value < b.value; }
  friend constexpr bool operator==(Count a, Count b) = default;
};
constexpr std::uint64_t as_cost(Count cost) { return cost.value; }

// A device in the running. Small costs carry the position below them (those of 32
// bits the rank of the id too), so that one comparison tells all.
template <bool by_position, class Cost>
struct Runner {
  Cost cost{};
  std::uint32_t order = 0;
  std::size_t index = LiveChoice::nobody;

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

  template <class View>
  static Runner of(const View& view, std::size_t i, std::uint32_t cost) {
    return {std::uint64_t{cost} << 32 | (by_position ? 0 : view.id_order() << 16) | i};
  }
  Runner or_later(const Runner& later) const { return {std::min(key, later.key)}; }
  std::size_t position() const { return key & 0xffff; }
  bool has(std::uint32_t cost) const { return key >> 32 == cost; }
};
template <>
struct Runner<true, Count> {
  std::uint64_t key = 0;

  template <class View>
  static Runner of(const View&, std::size_t i, Count cost) {
    return {cost.value << 16 | i};
  }
  Runner or_later(const Runner& later) const { return {std::min(key, later.key)}; }
  std::size_t position() const { return key & 0xffff; }
  bool has(Count cost) const { return key >> 16 == cost.value; }
};

// The same over live words: four devices among each other, then the winner
// against the best so far, so that no comparison waits for more than a quarter of
// the others. What the scan saw of the winner must still be so when its charge word
// is read; if not, no charge will succeed with the answer.
// Here of all devices: everybody is open, healthy, fits, and lies in the order
// of the ids.
template <class Cost>
[[gnu::always_inline]] inline LiveChoice lowest_of_all(const LiveDevices& all, Cost cost) {
  if constexpr (std::is_same_v<Cost, InFlight>) {
    const std::uint32_t best = fewest_in_flight(all.charges(), all.count());
    const auto winner = all.at<HealthyLiveView>(best & 0xffff);
    return {best & 0xffff, winner.in_flight() == best >> 16 ? winner.charge() : LiveChoice::changed};
  }
  using Best = Runner<true, decltype(cost(std::declval<LiveView>()))>;
  // Inlined by decree: four at a time look like too much to the compiler.
  const auto runner = [&](std::size_t i) __attribute__((always_inline)) {
    const auto view = all.at<HealthyLiveView>(i);
    return Best::of(view, i, cost(view));
  };
  const auto best_of_four = [&](std::size_t i) __attribute__((always_inline)) {
    return runner(i).or_later(runner(i + 1)).or_later(runner(i + 2).or_later(runner(i + 3)));
  };
  const std::size_t n = all.count();
  std::size_t i = n < 4 ? 1 : 4;
  Best best = n < 4 ? runner(0) : best_of_four(0);
  for (; i + 4 <= n; i += 4) best = best.or_later(best_of_four(i));
  for (; i < n; ++i) best = best.or_later(runner(i));
  const auto winner = all.at<HealthyLiveView>(best.position());
  return {best.position(), best.has(cost(winner)) ? winner.charge() : LiveChoice::changed};
}
// And of those that may serve.
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

// Apart from the usual way, which needs none of its registers.
template <class Over>
[[gnu::noinline]] LiveChoice choose_among_some(const Hints& hints, const LiveWords& words, Ticket ticket) {
  const LiveDevices eligible(words, hints);
  return Over{}(hints, eligible, ticket, [&eligible](auto cost) {
    if (eligible.says(LiveSummary::in_id_order)) return lowest_live<true>(eligible, cost);
    return lowest_live<false>(eligible, cost);
  });
}
template <class Over>
[[gnu::flatten]] LiveChoice choose_live(const Hints& hints, const LiveWords& words, Ticket ticket) {
  const LiveDevices eligible(words, hints);
  if (!eligible.is_whole() || !eligible.says(LiveSummary::in_id_order)) [[unlikely]]
    return choose_among_some<Over>(hints, words, ticket);
  return Over{}(hints, eligible, ticket,
                [&eligible](auto cost) __attribute__((always_inline)) { return lowest_of_all(eligible, cost); });
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
