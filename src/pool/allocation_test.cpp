// A plain request allocates nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "pool/board.hpp"
#include "pool/test_device.hpp"

namespace {
thread_local std::size_t allocations = 0;
}  // namespace

// Not inlined: the compiler would see malloc on one side and delete on the other.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
// Replaced as well; otherwise memory from the sanitizer's operator new would reach our delete.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size > 0 ? size : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace berth::pool {
namespace {

TEST(Board, ARequestAllocatesNothingForUpToSixtyFourDevices) {
  Board board;
  for (int i = 0; i < 64; ++i) {
    const Result<std::size_t> slot = board.join(test::make_device("d" + std::to_string(i)));
    ASSERT_TRUE(slot);
    LoadSample sample;
    sample.memory_bytes_free = 1000;
    ASSERT_TRUE(board.apply_sample(*slot, 1, sample, board.clock().now()));
  }
  for (const Policy& policy : policies()) {
    for (const Requirements& requirements : {Requirements(), test::bytes(10), test::on("d7")}) {
      ASSERT_TRUE(board.acquire(policy, requirements)) << "the first call allocates what a thread keeps";
      const std::size_t before = allocations;
      Result<Lease> lease = board.acquire(policy, requirements);
      lease->settle({{}, std::chrono::microseconds(1)});
      EXPECT_EQ(allocations, before) << policy.name;
    }
  }
}

}  // namespace
}  // namespace berth::pool
