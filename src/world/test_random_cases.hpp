// How many random cases a test tries, depending on how slow the build is.
#pragma once

#include <cstdint>

namespace berth::world {

// Sanitizers make a case ten to thirty times slower, and look for other mistakes than the tests of
// laws do.
constexpr std::uint64_t random_cases(std::uint64_t count) {
#ifdef BERTH_SANITIZED
  return count / 5;
#else
  return count;
#endif
}

}  // namespace berth::world
