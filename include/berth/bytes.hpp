// Amounts of memory as text. Parsing is exact: nothing is rounded.
#pragma once

#include "berth/version.hpp"

#include <cstdint>
#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth {

// `using namespace berth::literals;` enables 64_MiB.
namespace literals {
constexpr std::uint64_t operator""_KiB(unsigned long long count) { return count << 10; }
constexpr std::uint64_t operator""_MiB(unsigned long long count) { return count << 20; }
constexpr std::uint64_t operator""_GiB(unsigned long long count) { return count << 30; }
}  // namespace literals

// For display: "22.0 GiB".
std::string bytes_text(std::uint64_t bytes);

// Reads "20GiB", "20G" (the same), "20GB" (20 * 10^9), "1.5 TiB" or a plain number
// of bytes. For text written by a program; use parse_amount for user input.
Result<std::uint64_t> parse_bytes(std::string_view text);

// The same with a required unit, for options and hand-written files, where a bare 20
// usually means 20 GiB. "20B" is 20 bytes, and 0 needs no unit. The error names the
// amount that was probably meant.
Result<std::uint64_t> parse_amount(std::string_view text);

}  // namespace berth
