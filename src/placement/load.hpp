// The policies' common definition of load and speed: work in flight includes the piece to be
// placed, a suspect device counts as if it had four times its load, and speed is configured or
// learnt.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "placement/learnt.hpp"
#include "placement/saturating.hpp"

namespace berth::policy {

// A device that fails fast is always idle and would attract all work. Four: it is left
// alone while a healthy one has a short queue, yet under load it still gets the odd piece,
// which either clears it or quarantines it.
inline constexpr std::uint64_t suspect_factor = 4;

// Pieces of work on the device including the one to be placed.
inline std::uint64_t load(Candidate device) {
  return (std::uint64_t{device.in_flight()} + 1) * (device.is_suspect() ? suspect_factor : 1);
}

// Learnt time per unit, capped (10,000 s, like the expected time of a piece) and never 0, so that
// load always counts.
constexpr std::uint64_t capped_ns(std::uint64_t unit_cost_ns) {
  return std::clamp<std::uint64_t>(unit_cost_ns, 1, placement::Learnt::expected_ns_max);
}

// Sizes of work in 2^-20 units: whole numbers, fine enough for a millionth. An invalid size
// (negative, infinite, not a number) counts as one unit.
inline constexpr int size_bits = 20;
inline std::uint64_t size_of(double cost) noexcept {
  constexpr double scale = 1 << size_bits;
  if (!(cost > 0) || !std::isfinite(cost)) return 1 << size_bits;
  return static_cast<std::uint64_t>(std::clamp(cost * scale, 1.0, scale * scale));
}

// Which speeds count. Different weights were configured and are used; otherwise the learnt times,
// once every candidate has one; otherwise all are taken to be equal.
enum class SpeedSource : std::uint8_t { configured, learnt, none };
inline SpeedSource speed_source(const Candidates& all) {
  const std::uint32_t first = all[0].weight_milli();
  bool weights_differ = false, all_measured = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    weights_differ |= all[i].weight_milli() != first;
    all_measured &= all[i].unit_cost_ns().has_value();
  }
  if (weights_differ) return SpeedSource::configured;
  return all_measured ? SpeedSource::learnt : SpeedSource::none;
}

// The rule of least_loaded: load divided by speed.
inline auto load_for_speed(const Candidates& all) {
  return [source = speed_source(all)](Candidate device) -> std::uint64_t {
    switch (source) {
      case SpeedSource::configured: return ratio(load(device), device.weight_milli());
      case SpeedSource::learnt: return saturating_product(load(device), capped_ns(*device.unit_cost_ns()));
      case SpeedSource::none: break;
    }
    return load(device);
  };
}

// Mean learnt time of the candidates that have one; 1 if none has one, so that only counts matter.
inline std::uint64_t mean_unit_ns(const Candidates& all) {
  std::uint64_t sum_ns = 0, count = 0;  // 65,536 capped times fit
  for (std::size_t i = 0; i < all.size(); ++i) {
    const OptionalU64 cost = all[i].unit_cost_ns();
    if (!cost) continue;
    sum_ns += capped_ns(*cost);
    ++count;
  }
  return count ? sum_ns / count : 1;
}

// Whether an unmeasured device should be tried: at once, one piece at a time: not starved, and not
// favoured beyond that. Not while it is suspect: perhaps nothing has ever succeeded on it.
inline bool to_be_tried(Candidate device) {
  return !device.unit_cost_ns() && device.in_flight() == 0 && !device.is_suspect();
}

}  // namespace berth::policy
