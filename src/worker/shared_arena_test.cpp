#include "worker/shared_arena.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

namespace berth::worker {
namespace {

TEST(SharedArena, BlocksNeverOverlapAndAllMemoryComesBack) {
  const auto arena = SharedArena::make(4 << 20).value();
  std::mt19937 random(20261116);
  std::vector<SharedMemory> held;
  std::size_t refused = 0;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 3 == 0 && !held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      held.pop_back();
      continue;
    }
    Result<SharedMemory> block = arena->allocate(1 + random() % (512 << 10));
    if (!block) {
      ++refused;
      EXPECT_EQ(block.error().code, ErrorCode::out_of_memory);
      held.clear();
      continue;
    }
    for (const SharedMemory& other : held) {
      const bool apart = block->bytes().data() + block->bytes().size() <= other.bytes().data() ||
                         other.bytes().data() + other.bytes().size() <= block->bytes().data();
      ASSERT_TRUE(apart);
    }
    held.push_back(*std::move(block));
  }
  EXPECT_GT(refused, 10U) << "the test must fill the memory to be meaningful";
  held.clear();
  EXPECT_TRUE(arena->allocate(4 << 20)) << "the memory is one piece again";
}

TEST(SharedArena, OutlivesItsHandleWhileABlockIsHeld) {
  auto arena = SharedArena::make(1 << 20).value();
  const SharedMemory block = arena->allocate(100).value();
  arena.reset();
  std::memset(block.bytes().data(), 1, block.bytes().size());
}

TEST(SealedMemory, KeepsItsSize) {
  const SealedMemory memory = SealedMemory::make("test", 1 << 16).value();
  EXPECT_NE(ftruncate(memory.descriptor(), 0), 0);
  EXPECT_NE(ftruncate(memory.descriptor(), 1 << 20), 0);
  EXPECT_NE(fcntl(memory.descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

}  // namespace
}  // namespace berth::worker
