// A unit of memory for tests.
#pragma once

#include <cstdint>

namespace berth::world {

inline constexpr std::uint64_t gib = std::uint64_t{1} << 30;

}  // namespace berth::world
