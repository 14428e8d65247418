#include "deployment/words.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <vector>

namespace berth {
namespace {

// Insertions, deletions and replacements that lead from one word to the other
// (Levenshtein), one row of the table at a time.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, above + 1, diagonal + (a[i] != b[j])});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 253 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  const auto nearest = std::min_element(known.begin(), known.end(), [&](std::string_view a, std::string_view b) {
    return distance(word, a) < distance(word, b);
  });
  // Half of the word may be wrong before the guess is worse than the list.
  if (nearest != known.end() && distance(word, *nearest) * 2 <= std::max(word.size(), nearest->size()))
    return "Did you mean \"" + std::string(*nearest) + "\"?";
  std::string list;
  for (const std::string_view entry : known) list += (list.empty() ? "" : ", ") + std::string(entry);
  return "Known are " + list + ".";
}

}  // namespace berth
