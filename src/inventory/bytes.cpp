#include "berth/bytes.hpp"

#include <array>
#include <cstddef>
#include <limits>

namespace berth {

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  static constexpr std::array units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  // Tenths of the unit, rounded; 1023.95 KiB and above is 1.0 MiB.
  const auto tenths = [&] {
    const std::uint64_t shift = 10 * (unit + 1);
    const std::uint64_t whole = bytes >> shift;
    const std::uint64_t rest = (bytes & ((std::uint64_t{1} << shift) - 1)) >> (shift - 10);
    return whole * 10 + (rest * 10 + 512) / 1024;
  };
  while (unit + 1 < units.size() && tenths() >= 10240) ++unit;
  return std::to_string(tenths() / 10) + "." + std::to_string(tenths() % 10) + " " + units[unit];
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  const std::string advice = "write a whole number of bytes, or a number with a unit such as \"20GiB\" or \"512M\"";
  const Error bad{
      ErrorCode::invalid_argument, "\"" + std::string(text) + "\" is not an amount of memory", advice, "", {}};
  constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();  // the largest integer of TOML and JSON

  // Whole part and up to nine decimals, in integers, so nothing is rounded.
  std::size_t at = 0;
  std::uint64_t whole = 0, part = 0, part_scale = 1;
  const auto digit = [&] { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  if (!digit()) return bad;
  for (; digit(); ++at) {
    if (whole > limit / 10) return bad;
    whole = whole * 10 + static_cast<std::uint64_t>(text[at] - '0');
  }
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!digit()) return bad;
    for (; digit(); ++at) {
      if (part_scale >= 1'000'000'000) return bad;
      part = part * 10 + static_cast<std::uint64_t>(text[at] - '0');
      part_scale *= 10;
    }
  }
  while (at < text.size() && text[at] == ' ') ++at;
  std::string unit(text.substr(at));
  for (char& letter : unit) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }

  std::uint64_t scale = 1;
  if (!unit.empty() && unit != "b") {
    static constexpr std::string_view letters = "kmgt";
    const std::size_t power = letters.find(unit[0]);
    const std::string rest = unit.substr(1);
    if (power == std::string_view::npos || !(rest.empty() || rest == "i" || rest == "ib" || rest == "b")) return bad;
    const std::uint64_t step = rest == "b" ? 1000 : 1024;
    for (std::size_t i = 0; i <= power; ++i) scale *= step;
  }
  __extension__ using u128 = unsigned __int128;
  const u128 bytes = static_cast<u128>(whole) * scale + static_cast<u128>(part) * scale / part_scale;
  if (bytes > limit) return bad;
  return static_cast<std::uint64_t>(bytes);
}

Result<std::uint64_t> parse_amount(std::string_view text) {
  if (text.empty()) {
    return Error{ErrorCode::invalid_argument, "an amount of memory is empty",
                 "write a number with a unit, such as 20G or 512M"};
  }
  Result<std::uint64_t> bytes = parse_bytes(text);
  if (!bytes) {
    Error error = std::move(bytes).error();
    error.advice = "write it with its unit, as in 20G or 500M";
    return error;
  }
  const bool has_unit = text.find_first_not_of("0123456789. ") != std::string_view::npos;
  if (has_unit || *bytes == 0) return bytes;
  // No GPU has more than a few thousand GiB, and no program asks for a few thousand bytes.
  const std::string_view number = text.substr(0, text.find_last_not_of(' ') + 1);
  const char* const unit = *bytes < 4096 ? "G" : *bytes < (1u << 20) ? "M" : "B";
  return Error{ErrorCode::invalid_argument, "\"" + std::string(text) + "\" is an amount of memory without a unit",
               "did you mean " + std::string(number) + unit + "?"};
}

}  // namespace berth
