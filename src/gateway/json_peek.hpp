// Looks into a JSON body for the model that a request asks for, or for its key. Pure. Copies only that one text,
// whatever the body contains.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace berth::gateway {

struct Peeked {
  enum class Outcome : std::uint8_t {
    found,
    absent,     // a JSON object without it, or in which it is neither a string nor an integer
    not_json,   // or not an object, or not UTF-8
    ambiguous,  // the member occurs twice, and engines differ in which one they use
    too_long,   // a text of more than 1,024 bytes
  };
  Outcome outcome = Outcome::absent;
  std::string text;
};
// Finds the member `name` in a whole body.
Peeked peek_member(std::string_view body, std::string_view name);

inline constexpr std::size_t peeked_bytes_max = 1024;

}  // namespace berth::gateway
