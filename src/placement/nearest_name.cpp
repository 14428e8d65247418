#include "placement/nearest_name.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace berth::placement {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// Levenshtein's distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string_view> nearest_name(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty()) return std::nullopt;
  const std::string wanted = lower(word);
  std::optional<std::string_view> best;
  std::size_t best_distance = 0;
  for (const std::string_view candidate : candidates) {
    const std::string name = lower(candidate);
    const std::size_t distance = name.starts_with(wanted) ? 0 : edit_distance(wanted, name);
    // A third of the letters, or two in a short word, still looks like a typo.
    if (distance > std::max<std::size_t>(2, name.size() / 3) || distance >= std::max(wanted.size(), name.size()))
      continue;
    if (!best || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace berth::placement
