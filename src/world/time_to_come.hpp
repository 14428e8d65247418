// Times that a user names, in the time zone of this process.
#pragma once

#include <cstdint>
#include <string>

#include "berth/result.hpp"

namespace berth::world {

// Microseconds since 1970: "20:00" (the next one), "2026-11-20T08:00", or "2h" from now. invalid_argument: none of
// these, or in the past.
Result<std::uint64_t> parse_time_to_come(const std::string& text, std::uint64_t now_us);
// The same for a time that has passed: "20:00" (the last one), "2026-11-20T08:00", or "2h" ago.
Result<std::uint64_t> parse_time_passed(const std::string& text, std::uint64_t now_us);
// "2026-11-20 08:00:00"
std::string local_text(std::uint64_t wall_time_us);

}  // namespace berth::world
