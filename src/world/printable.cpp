#include "world/printable.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>

namespace berth::world {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: not valid UTF-8
};

// The size of a character that begins with this byte; 0 if there is none.
std::size_t bytes_from(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  return lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// According to RFC 3629: not overlong, no surrogates, at most U+10FFFF.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t bytes = bytes_from(byte(0));
  if (bytes == 1) return {byte(0), 1};
  if (bytes == 0 || text.size() < bytes) return {};
  std::uint32_t code = byte(0) & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[i])) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (overlong || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return {};
  return {code, bytes};
}

bool is_control(std::uint32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

// Control characters of bidirectional text, line separators, and invisible characters: two names that differ only in
// one would look the same.
bool is_layout(std::uint32_t code) {
  return code == 0x00ad || code == 0x061c || (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2060 && code <= 0x2069) || code == 0xfeff || (code >= 0xe0000 && code <= 0xe007f);
}

// Appends the first character of `text`, or its code if it is not `plain`, and returns its size.
template <class IsPlain>
std::size_t append_first(std::string& out, std::string_view text, const IsPlain& is_plain) {
  const Character next = first_character(text);
  char shown[16] = "";
  if (next.bytes != 0 && is_plain(next.code)) {
    out += text.substr(0, next.bytes);
  } else if (next.bytes > 1) {
    std::snprintf(shown, sizeof shown, "\\u{%x}", static_cast<unsigned>(next.code));
  } else {
    std::snprintf(shown, sizeof shown, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(text[0])));
  }
  out += shown;
  return next.bytes == 0 ? 1 : next.bytes;
}

constexpr std::size_t incomplete = std::string_view::npos;

// The size of the sequence that sets colours (SGR of ECMA-48) at the beginning of `text`; 0 if there is none.
std::size_t colour_sequence(std::string_view text) {
  constexpr std::size_t bytes_max = 64;  // those in use have about twenty
  constexpr std::string_view start = "\033[";
  if (!text.starts_with(start.substr(0, text.size()))) return 0;
  const std::size_t end = text.find_first_not_of("0123456789:;", std::min(start.size(), text.size()));
  if (end == text.npos) return text.size() < bytes_max ? incomplete : 0;
  return text[end] == 'm' && end < bytes_max ? end + 1 : 0;
}

// Whether the text ends, or seems to end, within a character.
bool is_cut_character(std::string_view text) {
  const std::size_t bytes = bytes_from(static_cast<unsigned char>(text[0]));
  return text.size() < bytes && std::all_of(text.begin() + 1, text.end(), is_continuation);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  const auto is_plain = [](std::uint32_t code) { return !is_control(code) && !is_layout(code); };
  while (!text.empty()) text.remove_prefix(append_first(out, text, is_plain));
  return out;
}

std::string PrintableOutput::put(std::string_view piece) {
  const std::string all = std::exchange(held_, {}) + std::string(piece);
  std::string out;
  const auto is_plain = [](std::uint32_t code) {
    return !is_control(code) || code == '\n' || code == '\r' || code == '\t';
  };
  for (std::string_view text = all; !text.empty();) {
    const std::size_t colour = colour_sequence(text);
    if (colour == incomplete || is_cut_character(text)) {
      held_ = text;
      break;
    }
    if (colour == 0) {
      text.remove_prefix(append_first(out, text, is_plain));
      continue;
    }
    out += text.substr(0, colour);
    has_colour_ = text.substr(0, colour) != "\033[m" && text.substr(0, colour) != "\033[0m";
    text.remove_prefix(colour);
  }
  return out;
}

std::string PrintableOutput::end() {
  return printable(std::exchange(held_, {})) + (std::exchange(has_colour_, false) ? "\033[0m" : "");
}

std::string shortened(std::string text, std::size_t bytes_max) {
  constexpr std::string_view dots = "...";
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max > dots.size() ? bytes_max - dots.size() : 0;
  while (end > 0 && is_continuation(text[end])) --end;
  text.resize(end);
  return text += dots;
}

}  // namespace berth::world
