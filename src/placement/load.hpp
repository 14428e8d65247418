// What the policies mean by load and speed, so that they mean the same: work
// in flight counted with the piece to come, a suspect device as if it carried
// four times its load, speed as configured or as learnt.
#pragma once

#include <algorithm>
#include <cstdint>

#include "placement/cost_policy.hpp"

namespace berth::policy {

// A device that fails fast is always idle and would attract all work. Four: it
// is left alone while a healthy one has a short queue, yet under load it still
// gets the odd piece, which either clears it or quarantines it. A device that
// got nothing at all could never clear itself.
inline constexpr std::uint64_t suspect_factor = 4;

// A view is a DeviceView or, on the pool's hot path, the live words.
template <class View>
bool is_suspect(const View& view) {
  return health(view) == Health::suspect;
}

// Pieces of work on the device with the one to be placed. In 32 bits, so that
// its product with a weight fits into 64.
template <class View>
std::uint32_t load(const View& view) {
  const std::uint64_t pieces = (std::uint64_t{in_flight(view)} + 1) * (is_suspect(view) ? suspect_factor : 1);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(pieces, std::numeric_limits<std::uint32_t>::max()));
}

// Positive by contract; a zero must not become a division by zero.
template <class View>
std::uint32_t weight(const View& view) {
  return std::max<std::uint32_t>(weight_milli(view), 1);
}

// Learnt time per unit. Capped (10,000 s, as the expected time of a piece is), so
// that a sum over 65536 devices fits into 64 bits; never 0, so that load always
// counts.
constexpr std::uint64_t capped_ns(std::uint64_t unit_cost_ns) {
  return std::clamp<std::uint64_t>(unit_cost_ns, 1, Learnt::expected_ns_max);
}
template <class View>
std::uint64_t unit_ns(const View& view) {
  if constexpr (Live<View>) return *unit_cost_ns(view);  // is kept capped
  return capped_ns(*unit_cost_ns(view));
}

// Whose word on speed counts. Weights that differ were set by somebody and are
// believed; otherwise what was learnt, once it is known of every candidate; else
// all are taken to be equal.
enum class SpeedSource : std::uint8_t { configured, learnt, none };
template <class Devices>
SpeedSource find_speed_source(const Devices& eligible) {
  std::uint32_t first = 0, differing = 0;
  bool all_measured = true;
  each(eligible, [&](const auto& view) {
    if (first == 0) first = weight(view);
    differing |= weight(view) ^ first;
    all_measured &= unit_cost_ns(view).has_value();
  });
  if (differing != 0) return SpeedSource::configured;
  return all_measured ? SpeedSource::learnt : SpeedSource::none;
}
inline SpeedSource speed_source(Views eligible) { return find_speed_source(eligible); }
inline SpeedSource speed_source(const LiveDevices& eligible) {
  const bool differ = eligible.says(LiveSummary::weights_differ);
  if (!differ && eligible.all_measured()) return SpeedSource::learnt;
  if (!differ && eligible.none_measured()) return SpeedSource::none;
  // What is true of all open devices need not be true of those that fit.
  if (eligible.picky()) return find_speed_source(eligible);
  return differ ? SpeedSource::configured : SpeedSource::none;
}

// Learnt time of all pieces on the device with the one to be placed. A live word
// counts 2^16 pieces: with the cap, and four times that, the product fits.
template <class View>
std::uint64_t load_ns(const View& view) {
  if constexpr (Live<View>) return load(view) * unit_ns(view);
  return saturating_product(load(view), unit_ns(view));
}

// What is known of the learnt times of all candidates.
struct Measured {
  bool all = false;
  std::uint64_t mean_ns = 1;  // of those measured, where not all are; 1 when none is: then only counts matter
};
template <class Devices>
Measured find_measured(const Devices& eligible) {
  std::uint64_t sum_ns = 0;
  std::size_t count = 0, candidates = 0;
  each(eligible, [&](const auto& view) {
    ++candidates;
    const Maybe cost = unit_cost_ns(view);
    if (!cost) return;
    sum_ns += capped_ns(*cost);
    ++count;
  });
  return {count == candidates, count > 0 && count < candidates ? sum_ns / count : 1};
}
inline Measured measured(Views eligible) { return find_measured(eligible); }
inline Measured measured(const LiveDevices& eligible) {
  return eligible.all_measured() ? Measured{true, 1} : find_measured(eligible);
}

// A device nobody measured is tried at once, one piece at a time: not starved,
// and not favoured beyond that. Not while it is suspect: it may be unmeasured
// because nothing ever succeeded there.
template <class View>
bool to_be_tried(const View& view) {
  return in_flight(view) == 0 && !unit_cost_ns(view) && !is_suspect(view);
}

}  // namespace berth::policy
