// power_of_two: two different devices drawn at random, the one with less work
// for its speed wins (Mitzenmacher, "The power of two choices in randomized load
// balancing", IEEE TPDS 12, 2001). Devices are drawn in proportion to their
// speed, otherwise slow ones are drawn too often and tie up the tail.
// Prefers: the less loaded of two. Speed and load are those of least_loaded.
// Assumes: a random ticket. Worth it when the load is old or many deciders do
// not see each other: a random pair does not herd.
// Ties: the one drawn first, so that idle devices share the work.
// Loses to least_loaded when the load is counted at once, as in one pool.
#include "berth/random.hpp"
#include "placement/load.hpp"

namespace berth::policy {
namespace {

struct Pair {
  std::size_t first = 0;
  std::size_t second = 0;
};

// Uniform in [0, bound) from 64 random bits.
std::uint64_t below(std::uint64_t random, std::uint64_t bound) {
  return static_cast<std::uint64_t>((u128{random} * bound) >> 64);
}

// Two draws from one random number: what the first leaves over is as uniform as
// the number was, up to n / 2^64.
[[gnu::always_inline]] inline Pair draw_equal(std::size_t n, Ticket ticket) {
  const u128 first = u128{scramble(ticket)} * n;
  Pair pair{static_cast<std::size_t>(first >> 64), below(static_cast<std::uint64_t>(first), n - 1)};
  pair.second += pair.second >= pair.first;
  return pair;
}

template <class Speed>
Pair draw_weighted(Views eligible, Ticket ticket, Speed speed) {
  std::uint64_t total = 0;
  for (const DeviceView& view : eligible) total += speed(view);
  const auto find = [&](std::uint64_t mark, std::size_t without) {
    for (std::size_t i = 0;; ++i) {
      if (i == without) continue;
      const std::uint64_t here = speed(eligible[i]);
      if (mark < here) return i;
      mark -= here;
    }
  };
  Pair pair;
  pair.first = find(below(scramble(ticket), total), eligible.size());
  pair.second = find(below(scramble(~ticket), total - speed(eligible[pair.first])), pair.first);
  return pair;
}

// Calls use(pair, cost): the pair drawn, and the cost that compares them.
template <class Use>
auto over_pair(Views eligible, Ticket ticket, Use use) {
  switch (speed_source(eligible)) {
    case SpeedSource::configured:
      return use(draw_weighted(eligible, ticket, [](const DeviceView& view) -> std::uint64_t { return weight(view); }),
                 [](const DeviceView& view) {
                   return Ratio<std::uint32_t, std::uint64_t>{load(view), weight(view)};
                 });
    case SpeedSource::learnt:
      // Units per 2^48 ns, the cap of unit_ns: at least 1.
      return use(draw_weighted(eligible, ticket,
                               [](const DeviceView& view) { return (std::uint64_t{1} << 48) / unit_ns(view); }),
                 [](const DeviceView& view) { return saturating_product(load(view), unit_ns(view)); });
    case SpeedSource::none: break;
  }
  return use(draw_equal(eligible.size(), ticket), [](const DeviceView& view) { return std::uint64_t{load(view)}; });
}

// The same draw over live words: devices that may not serve are stepped over,
// and a speed that changes between two looks makes the last device win.
template <class Speed, class Cost>
LiveChoice draw_live(const LiveDevices& eligible, Ticket ticket, Speed speed, Cost cost) {
  std::uint64_t total = 0;
  each(eligible, [&](const auto& view) { total += speed(view); });
  const auto find = [&](std::uint64_t mark, std::size_t without) {
    std::size_t found = without;
    bool passed = false;
    eligible.each([&](const auto& view, std::size_t i) {
      if (i == without || passed) return;
      found = i;
      const std::uint64_t here = speed(view);
      passed = mark < here;
      mark -= here;
    });
    return found;
  };
  const std::size_t first = find(below(scramble(ticket), total), LiveChoice::nobody);
  if (first == LiveChoice::nobody) return {};
  const LiveView one = eligible.at(first);
  const std::uint64_t rest = total - std::min(total, speed(one));
  const std::size_t second = rest == 0 ? first : find(below(scramble(~ticket), rest), first);
  const LiveView other = eligible.at(second);
  return cost(other) < cost(one) ? LiveChoice{second, other.charge()} : LiveChoice{first, one.charge()};
}

LiveChoice choose_live(const Hints& hints, const LiveWords& words, Ticket ticket) {
  const LiveDevices eligible(words, hints);
  const auto by_weight = [](const LiveView& view) {
    return Ratio<std::uint32_t, std::uint64_t>{load(view), weight(view)};
  };
  switch (speed_source(eligible)) {
    case SpeedSource::configured:
      return draw_live(
          eligible, ticket, [](const auto& view) -> std::uint64_t { return weight(view); }, by_weight);
    case SpeedSource::learnt:
      return draw_live(
          eligible, ticket, [](const auto& view) { return (std::uint64_t{1} << 48) / unit_ns(view); },
          [](const LiveView& view) { return saturating_product(load(view), unit_ns(view)); });
    case SpeedSource::none: break;
  }
  std::size_t n = eligible.count();
  if (!eligible.is_whole()) {
    n = 0;
    each(eligible, [&](const auto&) { ++n; });
  }
  if (n == 0) return {};
  Pair pair = n == 1 ? Pair{} : draw_equal(n, ticket);
  if (!eligible.is_whole()) {
    // From the i-th that may serve to its position.
    Pair at{LiveChoice::nobody, LiveChoice::nobody};
    std::size_t passed = 0;
    eligible.each([&](const auto&, std::size_t i) {
      if (passed == pair.first) at.first = i;
      if (passed == pair.second) at.second = i;
      ++passed;
    });
    if (std::max(at.first, at.second) == LiveChoice::nobody) return {};
    pair = at;
  }
  const LiveView first = eligible.at(pair.first), second = eligible.at(pair.second);
  const bool less = load(second) < load(first);
  return less ? LiveChoice{pair.second, second.charge()} : LiveChoice{pair.first, first.charge()};
}

LiveChoice choose_quickly(const LiveWords& words, Ticket ticket, std::size_t work_class, bool) {
  const WholeDevices all(words, work_class);
  if (all.count() == 1 || !all.none_measured() || all.says(LiveSummary::weights_differ)) return {};
  const Pair pair = draw_equal(all.count(), ticket);
  const std::uint64_t first = load_word(words.charge[pair.first]), second = load_word(words.charge[pair.second]);
  const bool less = (second & LiveWords::in_flight_mask) < (first & LiveWords::in_flight_mask);
  return {less ? pair.second : pair.first, less ? second : first};
}

}  // namespace

Policy power_of_two() {
  Policy policy;
  policy.summary = "the less loaded of two drawn at random, in proportion to speed";
  policy.ticket = TicketKind::random;
  policy.choose = [](const Hints&, Views eligible, Ticket ticket) -> std::size_t {
    if (eligible.size() == 1) return 0;
    return over_pair(eligible, ticket, [eligible](Pair pair, auto cost) {
      return cost(eligible[pair.second]) < cost(eligible[pair.first]) ? pair.second : pair.first;
    });
  };
  policy.choose_live = choose_live;
  policy.choose_quickly = choose_quickly;
  // Devices that were not drawn are a last resort.
  policy.costs = [](const Hints&, Views eligible, Ticket ticket) {
    std::vector<std::uint64_t> costs(eligible.size(), last_resort);
    if (eligible.size() == 1) return std::vector<std::uint64_t>{load(eligible[0])};
    over_pair(eligible, ticket, [&](Pair pair, auto cost) {
      for (const std::size_t i : {pair.first, pair.second}) costs[i] = as_cost(cost(eligible[i]));
    });
    return costs;
  };
  return policy;
}

}  // namespace berth::policy
