// split: cuts [0, count) into one contiguous part per device, in proportion to weights such as measured
// speed. Pure; the same input gives the same parts.
#pragma once

#include "berth/version.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace berth {

// The numbers from begin up to but not including end.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const noexcept { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

struct SplitOptions {
  std::uint64_t unit = 1;     // every part but the last has a multiple of this length
  std::uint64_t minimum = 1;  // no part is shorter, unless there is only one
};

struct Part {
  std::size_t index = 0;  // index of its weight
  Range range;
  friend bool operator==(const Part&, const Part&) = default;
};

// The parts in the order of the weights; they cover [0, count) without gap or overlap, and none is
// empty. A part differs from its exact share by less than `unit`. While a part is shorter than
// `minimum`, the smallest weight (the last of equal ones) gets no part and the others share everything.
// A weight that is not finite or not positive gets no part; if there is no other, all weights are taken
// to be equal. Without items or weights there are no parts. A unit or minimum of 0 counts as 1. Weights
// that are smaller than the greatest by more than the precision of a double may count as 0.
std::vector<Part> split(std::uint64_t count, std::span<const double> weights, const SplitOptions& options = {});

}  // namespace berth
