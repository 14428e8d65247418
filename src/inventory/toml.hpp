// toml++, configured once for the whole program. Its functions are inline, so including
// it with different settings would violate the one-definition rule. Never include toml++
// directly, and include this in as few files as possible, because it is slow to compile.
// Parse with parse_toml.
#pragma once

// Some assertions of toml++ 3.3 fail on invalid input ("[[[") that the code after them
// handles; with NDEBUG they would become compiler assumptions.
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth::inventory {

// More parts than any valid key has. toml++ limits the nesting of values (256) but not
// of dotted keys: each part is a nested table, and destroying 200,000 of them overflows
// the stack.
inline constexpr std::size_t toml_key_parts_max = 16;

// Throws toml::parse_error if a dotted key has too many parts, or for a character that is not ASCII outside strings
// and comments: TOML allows none there, and the behaviour of toml++ 3.3 is undefined. On text that is not valid TOML,
// toml++ reports an error at the same position or before.
inline void check_toml_keys(std::string_view text) {
  std::size_t parts = 1, line = 1, line_start = 0;
  const auto refuse = [&](const char* what, std::size_t i) {
    const auto at = [](std::size_t number) { return static_cast<toml::source_index>(number); };
    throw toml::parse_error(what, {at(line), at(i - line_start + 1)}, nullptr);
  };
  // After the mark of an encoding that some editors write.
  for (std::size_t i = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#') {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if (c == '"' || c == '\'') {
      // One or three quotes; a basic string (") has escapes, a literal one (') has none.
      const bool three = text.substr(i, 3) == std::string_view(c == '"' ? "\"\"\"" : "'''");
      i += three ? 3 : 1;
      for (; i < text.size(); ++i) {
        if (text[i] == '\n') {
          ++line;
          line_start = i + 1;
          if (!three) break;
        } else if (c == '"' && text[i] == '\\') {
          ++i;
        } else if (text[i] == c && (!three || text.substr(i, 3) == std::string_view(c == '"' ? "\"\"\"" : "'''"))) {
          break;
        }
      }
      if (three) i += 2;
    } else if (c == '\n') {
      parts = 1;
      ++line;
      line_start = i + 1;
    } else if (std::string_view("=,{}[]").find(c) != std::string_view::npos) {
      parts = 1;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      refuse("a non-ASCII character is outside quotes", i);
    } else if (c == '.' && ++parts > toml_key_parts_max) {
      refuse("a key has too many parts", i);
    }
  }
}

// "file:line:column: ", the beginning of every message about a file.
inline std::string toml_place(std::string_view path, const toml::source_position& position) {
  std::string place(path);
  if (position) place += ":" + std::to_string(position.line) + ":" + std::to_string(position.column);
  return place + ": ";
}

inline Error invalid_toml(std::string_view path, const toml::parse_error& error) {
  return {ErrorCode::invalid_argument,
          toml_place(path, error.source().begin) + "the text is not valid TOML: " + std::string(error.description()),
          "correct the syntax"};
}

// toml::parse for untrusted files. Throws toml::parse_error.
inline toml::table parse_toml(std::string_view text, std::string_view path = {}) {
  check_toml_keys(text);
  return toml::parse(text, path);
}

}  // namespace berth::inventory
