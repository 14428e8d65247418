// Words that people write in files: which are names, and which known word a
// misspelt one was meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace berth {

// Letters, digits, '.', '_' and '-': safe in a path, a table and a terminal.
bool is_name(std::string_view text);

// "Did you mean "replicas"?" when one of `known` is near, else "Known are ...".
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

}  // namespace berth
