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

inline bool is_suspect(const DeviceView& view) { return view.health == Health::suspect; }

// Pieces of work on the device with the one to be placed. In 32 bits, so that
// its product with a weight fits into 64.
inline std::uint32_t load(const DeviceView& view) {
  const std::uint64_t pieces = (std::uint64_t{view.in_flight} + 1) * (is_suspect(view) ? suspect_factor : 1);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(pieces, std::numeric_limits<std::uint32_t>::max()));
}

// Positive by contract; a zero must not become a division by zero.
inline std::uint32_t weight(const DeviceView& view) { return std::max<std::uint32_t>(view.weight_milli, 1); }

// Learnt time per unit. Capped at 2^48 ns (three days), so that a sum over 65536
// devices fits into 64 bits; never 0, so that load always counts.
inline std::uint64_t unit_ns(const DeviceView& view) {
  return std::clamp<std::uint64_t>(*view.unit_cost_ns, 1, std::uint64_t{1} << 48);
}

// Whose word on speed counts. Weights that differ were set by somebody and are
// believed; otherwise what was learnt, once it is known of every candidate; else
// all are taken to be equal.
enum class SpeedSource : std::uint8_t { configured, learnt, none };
inline SpeedSource speed_source(Views eligible) {
  std::uint32_t differing = 0;
  bool all_measured = true;
  for (const DeviceView& view : eligible) {
    differing |= view.weight_milli ^ eligible[0].weight_milli;
    all_measured &= view.unit_cost_ns.has_value();
  }
  if (differing != 0) return SpeedSource::configured;
  return all_measured ? SpeedSource::learnt : SpeedSource::none;
}

// What is known of the learnt times of all candidates.
struct Measured {
  std::size_t count = 0;
  std::uint64_t mean_ns = 1;  // 1 when nothing was measured: then only counts matter
};
inline Measured measured(Views eligible) {
  Measured result;
  std::uint64_t sum_ns = 0;
  for (const DeviceView& view : eligible) {
    if (!view.unit_cost_ns) continue;
    sum_ns += unit_ns(view);
    ++result.count;
  }
  if (result.count > 0 && result.count < eligible.size()) result.mean_ns = sum_ns / result.count;
  return result;
}

// A device nobody measured is tried at once, one piece at a time: not starved,
// and not favoured beyond that. Not while it is suspect: it may be unmeasured
// because nothing ever succeeded there.
inline bool to_be_tried(const DeviceView& view) {
  return !view.unit_cost_ns && view.in_flight == 0 && !is_suspect(view);
}

}  // namespace berth::policy
