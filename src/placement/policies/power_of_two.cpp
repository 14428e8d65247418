// power_of_two: two different devices drawn at random, of which the one with less work for its
// speed wins (Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 12,
// 2001). Devices are drawn in proportion to their speed, because otherwise slow ones are drawn too
// often and dominate the tail. Prefers: the less loaded of two. Speed and load are those of
// least_loaded. Assumes: a random ticket. Worth it when the load is old or many deciders do not see
// each other: a random pair does not herd. Ties: the one drawn first, so that idle devices share
// the work. Loses to least_loaded when the load is counted at once, as within one pool.
#include "berth/random.hpp"
#include "placement/load.hpp"

namespace berth::policy {
namespace {

// Uniform in [0, bound) from 64 random bits.
std::uint64_t below(std::uint64_t random, std::uint64_t bound) {
  return static_cast<std::uint64_t>((u128{random} * bound) >> 64);
}

// The weight of a device in the draw: its configured weight, or units of work per 2^48 ns. Learnt times are capped
// below that, so the result is at least 1.
std::uint64_t speed(SpeedSource source, Candidate device) {
  if (source == SpeedSource::configured) return device.weight_milli();
  return (std::uint64_t{1} << 48) / capped_ns(device.unit_cost_ns().value_or(1));
}

std::array<std::size_t, 2> draw(const Candidates& all) {
  if (all.size() == 1) return {0, 0};
  const SpeedSource source = speed_source(all);
  if (source == SpeedSource::none) {
    const std::size_t first = below(scramble(all.ticket()), all.size());
    const std::size_t second = below(scramble(~all.ticket()), all.size() - 1);
    return {first, second + (second >= first)};
  }
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < all.size(); ++i) total += speed(source, all[i]);
  // The device at `mark` when their speeds are laid end to end. If speeds change in the meantime,
  // the mark may be past the last one.
  const auto find = [&](std::uint64_t mark, std::size_t without) {
    std::size_t last = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i == without) continue;
      last = i;
      const std::uint64_t here = speed(source, all[i]);
      if (mark < here) break;
      mark -= here;
    }
    return last;
  };
  const std::size_t first = find(below(scramble(all.ticket()), total), all.size());
  const std::uint64_t rest = total - std::min(total, speed(source, all[first]));
  return {first, find(below(scramble(~all.ticket()), rest), first)};
}

}  // namespace

Policy power_of_two() {
  return by_draw("the less loaded of two drawn at random, in proportion to speed", draw, load_for_speed);
}

}  // namespace berth::policy
