// Durations as written on the command line and in files.
#pragma once

#include <string>

#include "berth/clock.hpp"
#include "berth/result.hpp"

namespace berth::world {

// "90s", "5m", "1h30m", "1d", "500ms", "0". invalid_argument: none of these, or more than 366 days.
Result<Duration> parse_duration(const std::string& text);
// "200 ms", "90 s", "5 min".
std::string duration_text(Duration duration);

}  // namespace berth::world
