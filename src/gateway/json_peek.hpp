// Looks at the beginning of a JSON body for the model that a request asks for. Pure. Reads nothing into memory but that
// one text, whatever the body holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace berth::gateway {

struct Peeked {
  enum class Outcome : std::uint8_t {
    found,
    absent,     // a JSON object without it
    not_json,   // or not an object, or not UTF-8
    ambiguous,  // two of them: engines differ in which one counts
  };
  Outcome outcome = Outcome::absent;
  std::string model;
};
// Of a whole body.
Peeked peek_model(std::string_view body);

}  // namespace berth::gateway
