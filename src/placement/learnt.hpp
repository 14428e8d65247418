// Learnt: what one unit of a class of work costs on a device, as an exponential mean together with
// the number of measurements, in one 64-bit word so that it is read and replaced whole. Pure.
// Samples that cannot be a time (not finite, zero, negative) are ignored.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace berth::placement {

// The mean of rates that the parity policies rank by (S3-3): the first rate counts whole,
// every later one a tenth.
constexpr double mean_rate_after(double mean, double rate) { return 0.1 * rate + 0.9 * mean; }

struct Learnt {
  double unit_cost_ns = 0;         // meaningless without measurements
  std::uint32_t measurements = 0;  // stops counting at 65,535

  friend bool operator==(const Learnt&, const Learnt&) = default;

  // The first sample counts whole, later ones a tenth: a changed speed is accepted after about ten
  // pieces of work, and a single outlier has little effect.
  static constexpr double weight_of_new = 0.1;
  // A sample counts as at most this many times the mean (or this fraction of
  // it), so that no single one pins the mean; ten in a row still move it 600x.
  static constexpr double sample_spread = 10.0;
  // A femtosecond to eleven days: outside this range, the clock must be wrong.
  static constexpr double unit_cost_ns_min = 1e-6;
  static constexpr double unit_cost_ns_max = 1e15;

  [[nodiscard]] Learnt after(double sample_ns) const noexcept {
    if (!std::isfinite(sample_ns) || sample_ns <= 0) return *this;
    double sample = std::clamp(sample_ns, unit_cost_ns_min, unit_cost_ns_max);
    if (measurements == 0) return {sample, 1};
    sample = std::clamp(sample, unit_cost_ns / sample_spread, unit_cost_ns * sample_spread);
    const double mean = weight_of_new * sample + (1 - weight_of_new) * unit_cost_ns;
    return {mean, std::min<std::uint32_t>(measurements + 1, 0xffff)};
  }

  // Rounded, and at least one.
  std::uint64_t whole_ns() const noexcept {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(unit_cost_ns + 0.5));
  }

  // Time a piece of work of this size is expected to take; 0 while nothing is
  // known. Bounded (10,000 s), so that the sum of all in flight cannot overflow.
  static constexpr std::uint64_t expected_ns_max = 10'000'000'000'000;
  std::uint64_t expected_ns(double cost) const noexcept {
    return measurements ? static_cast<std::uint64_t>(std::min<double>(cost * unit_cost_ns, expected_ns_max)) : 0;
  }

  // 48 bits of the mean (a relative error below 1e-10), 16 of the count. Zero
  // is "never measured".
  std::uint64_t pack() const noexcept {
    return (std::bit_cast<std::uint64_t>(unit_cost_ns) & ~std::uint64_t{0xffff}) | measurements;
  }
  static Learnt unpack(std::uint64_t word) noexcept {
    return {std::bit_cast<double>(word & ~std::uint64_t{0xffff}), static_cast<std::uint32_t>(word & 0xffff)};
  }
};

}  // namespace berth::placement
