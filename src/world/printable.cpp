#include "world/printable.hpp"

#include <cstdint>
#include <cstdio>

namespace berth::world {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: not valid UTF-8
};

// According to RFC 3629: not overlong, no surrogates, at most U+10FFFF.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (overlong || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return {};
  return {code, bytes};
}

bool is_control(std::uint32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

// Control characters of bidirectional text, line separators, and characters that are not seen: two names that differ
// in one would look the same.
bool is_layout(std::uint32_t code) {
  return code == 0x00ad || code == 0x061c || (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2060 && code <= 0x2069) || code == 0xfeff || (code >= 0xe0000 && code <= 0xe007f);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Character next = first_character(text);
    const std::size_t bytes = next.bytes == 0 ? 1 : next.bytes;
    char shown[16] = "";
    if (next.bytes == 0 || (next.bytes == 1 && is_control(next.code))) {
      std::snprintf(shown, sizeof shown, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(text[0])));
    } else if (is_control(next.code) || is_layout(next.code)) {
      std::snprintf(shown, sizeof shown, "\\u{%x}", static_cast<unsigned>(next.code));
    }
    if (*shown != '\0') {
      out += shown;
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

std::string shortened(std::string text, std::size_t bytes_max) {
  constexpr std::string_view dots = "...";
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max > dots.size() ? bytes_max - dots.size() : 0;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  text.resize(end);
  return text += dots;
}

}  // namespace berth::world
