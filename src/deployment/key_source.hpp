// Where a request carries the key that keeps it on one replica: `serving.key`, "header:x-session", "cookie:sid" or
// "json:user" (a member of the body). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth::deployment {

struct KeySource {
  enum class Kind : std::uint8_t { header, cookie, json };
  Kind kind = Kind::header;
  std::string name;  // of a header in lower case

  friend bool operator==(const KeySource&, const KeySource&) = default;
};

// invalid_argument: it has another form.
Result<KeySource> parse_key_source(std::string_view text);
// "the header x-session", for messages.
std::string to_text(const KeySource& source);

// With this limit each replica has a few of the 4,096 shards.
inline constexpr std::uint32_t keyed_replicas_max = 1000;
inline constexpr std::uint32_t key_shards = 4096;

}  // namespace berth::deployment
