#include "berth/split.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "placement/saturating.hpp"

namespace berth {
namespace {

struct Share {
  std::size_t index;
  std::uint64_t weight;
};

bool is_positive(double weight) { return std::isfinite(weight) && weight > 0; }

// The positive weights as whole numbers whose sum is below 2^63. All are scaled by the same power of two, which keeps
// their ratios.
std::vector<Share> shares_of(std::span<const double> weights) {
  double greatest = 0;
  for (const double weight : weights) {
    if (is_positive(weight)) greatest = std::max(greatest, weight);
  }
  int exponent = 0;
  std::frexp(greatest, &exponent);
  const int bits = 63 - static_cast<int>(std::bit_width(weights.size()));
  std::vector<Share> shares;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (greatest == 0)
      shares.push_back({i, 1});
    else if (is_positive(weights[i]))
      shares.push_back({i, static_cast<std::uint64_t>(std::ldexp(weights[i], bits - exponent))});
  }
  return shares;
}

// Each part ends at the exact end of its share, rounded down to a multiple of the unit.
std::vector<Part> parts_of(std::uint64_t count, std::uint64_t unit, std::span<const Share> shares) {
  std::uint64_t total = 0, sum = 0, begin = 0;
  for (const Share& share : shares) total += share.weight;
  std::vector<Part> parts;
  for (const Share& share : shares) {
    sum += share.weight;
    std::uint64_t end = count;
    if (parts.size() + 1 < shares.size()) {
      end = static_cast<std::uint64_t>(policy::u128{count} * sum / total);
      end -= end % unit;
    }
    parts.push_back({share.index, {begin, end}});
    begin = end;
  }
  return parts;
}

}  // namespace

std::vector<Part> split(std::uint64_t count, std::span<const double> weights, const SplitOptions& options) {
  if (count == 0 || weights.empty()) return {};
  const std::uint64_t unit = std::max<std::uint64_t>(options.unit, 1);
  const std::uint64_t minimum = std::max<std::uint64_t>(options.minimum, 1);
  std::vector<Share> shares = shares_of(weights);
  // More than this many parts cannot all be long enough. The smallest are dropped first, and among equal ones the
  // last.
  const std::uint64_t parts_max = std::max<std::uint64_t>(count / minimum, 1);
  if (shares.size() > parts_max) {
    std::stable_sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.weight > b.weight; });
    shares.resize(parts_max);
    std::sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.index < b.index; });
  }
  for (;;) {
    std::vector<Part> parts = parts_of(count, unit, shares);
    const bool fits = std::all_of(parts.begin(), parts.end(), [&](const Part& p) { return p.range.size() >= minimum; });
    if (fits || shares.size() == 1) return parts;
    // Shares are dropped one at a time, because if equal shares are all too small, some must remain.
    const auto smallest = std::min_element(shares.rbegin(), shares.rend(),
                                           [](const Share& a, const Share& b) { return a.weight < b.weight; });
    shares.erase(std::next(smallest).base());
  }
}

}  // namespace berth
