// Amounts of memory as people write and read them. Exact integers inside;
// nothing is rounded on the way in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth {

// Bytes for people: "22.0 GiB".
std::string bytes_text(std::uint64_t bytes);

// "20GiB", "20G" (the same), "20GB" (10^9), "1.5 TiB" or a plain number of bytes.
Result<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace berth
