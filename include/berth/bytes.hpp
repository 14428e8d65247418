// Amounts of memory as people write and read them. Exact integers inside;
// nothing is rounded on the way in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth {

// 64_MiB; `using namespace berth::literals`.
namespace literals {
constexpr std::uint64_t operator""_KiB(unsigned long long count) { return count << 10; }
constexpr std::uint64_t operator""_MiB(unsigned long long count) { return count << 20; }
constexpr std::uint64_t operator""_GiB(unsigned long long count) { return count << 30; }
}  // namespace literals

// Bytes for people: "22.0 GiB".
std::string bytes_text(std::uint64_t bytes);

// "20GiB", "20G" (the same), "20GB" (10^9), "1.5 TiB" or a plain number of bytes.
// For text that a program wrote; what people type goes through parse_amount.
Result<std::uint64_t> parse_bytes(std::string_view text);

// The same with a unit required, for options and files that people write: a bare
// 20 means 20 bytes to a program and 20 GiB to its author. "20B" is 20 bytes,
// and 0 needs no unit. The error names the amount that was probably meant.
Result<std::uint64_t> parse_amount(std::string_view text);

}  // namespace berth
