// BERTH_ASSERT: our own bugs stop the program, in release builds too.
// It prints the condition, the place and the seed of the running simulation or
// property test (0 outside of one), so that a crash report can be replayed.
#pragma once

#include "berth/version.hpp"

#include <cstdint>

namespace berth {

// The seed that a failing assertion prints. Tests and simulations that draw
// their inputs from one seed set it. Thread-safe.
void set_assert_seed(std::uint64_t seed) noexcept;

[[noreturn]] void assert_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace berth

#define BERTH_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::berth::assert_failed(#condition, __FILE__, __LINE__))
