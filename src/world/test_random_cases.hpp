// How many random cases a test tries, by how slow the build makes each of them.
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
