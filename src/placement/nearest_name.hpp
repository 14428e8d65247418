// The name that was probably meant: for errors about unknown names.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace berth::placement {

// The candidate with the fewest letters to change, ignoring case, or one that begins with `word`.
// Absent when none is near enough to be worth a suggestion.
std::optional<std::string_view> nearest_name(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace berth::placement
