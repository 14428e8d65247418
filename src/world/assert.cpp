#include "berth/assert.hpp"

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace berth {
namespace {
std::atomic<std::uint64_t> current_seed{0};
}  // namespace

void set_assert_seed(std::uint64_t seed) noexcept { current_seed.store(seed); }

void assert_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "berth: assertion failed: %s at %s:%d (seed %" PRIu64 ")\n", condition, file, line,
               current_seed.load());
  std::abort();
}

}  // namespace berth
