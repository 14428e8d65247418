#include "deployment/identifiers.hpp"

#include <algorithm>
#include <cctype>

#include "placement/nearest_name.hpp"

namespace berth::deployment {

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 253 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  if (const auto nearest = nearest_name(word, known)) return "did you mean \"" + std::string(*nearest) + "\"?";
  std::string list;
  for (const std::string_view entry : known) list += (list.empty() ? "" : ", ") + std::string(entry);
  return "known are " + list;
}

}  // namespace berth::deployment
