// Looks into a JSON body for the model that a request asks for, or for its key. Pure. Reads nothing into memory but
// that one text, whatever the body holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace berth::gateway {

struct Peeked {
  enum class Outcome : std::uint8_t {
    found,
    absent,     // a JSON object without it, or with something else than a text or a whole number
    not_json,   // or not an object, or not UTF-8
    ambiguous,  // two of them: engines differ in which one counts
    too_long,   // a text of more than 1,024 bytes
  };
  Outcome outcome = Outcome::absent;
  std::string text;
};
// The member `name` of a whole body.
Peeked peek_member(std::string_view body, std::string_view name);

inline constexpr std::size_t peeked_bytes_max = 1024;

}  // namespace berth::gateway
