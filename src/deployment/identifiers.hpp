// Words that people write in files: which are names, and what to tell somebody
// whose word is not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace berth::deployment {

// Letters, digits, '.', '_' and '-': safe in a path, a table and a terminal.
bool is_name(std::string_view text);

// "did you mean "replicas"?" when one of `known` is near, else "known are ...".
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

}  // namespace berth::deployment
