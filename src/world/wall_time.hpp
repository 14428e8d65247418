// Wall-clock time, for display and file names. No decision uses it, because it can jump.
#pragma once

#include <cstdint>
#include <string>

namespace berth::world {

// Microseconds since 1970, UTC.
std::uint64_t wall_time_us() noexcept;
inline std::uint64_t wall_time_ms() noexcept { return wall_time_us() / 1000; }

// "2026-11-15 12:01:02" (UTC), whole seconds.
std::string utc_text(std::uint64_t wall_time_us);
// "12:01:02" in the time zone of this process.
std::string time_of_day_text(std::uint64_t wall_time_us);

}  // namespace berth::world
