// A unit of memory that tests count in.
#pragma once

#include <cstdint>

namespace berth::world {

inline constexpr std::uint64_t gib = std::uint64_t{1} << 30;

}  // namespace berth::world
