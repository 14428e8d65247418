#include "world/process_lock.hpp"

#include <gtest/gtest.h>

#include "world/test_folder.hpp"

namespace berth::world {
namespace {

// The kernel would let the same process take a record lock twice, and release it with any close of the file.
TEST(ProcessLock, ASecondHolderInTheSameProcessIsRefusedByName) {
  const TestFolder folder;
  const std::string path = folder.path / "lock";
  std::string other;
  auto first = ProcessLock::take(path, "the first", other);
  ASSERT_TRUE(first && *first);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto second = ProcessLock::take(path, "the second", other);
    ASSERT_TRUE(second);
    EXPECT_FALSE(*second);
    EXPECT_EQ(other, "the first (process " + std::to_string(::getpid()) + ")");
  }
  const ProcessLock moved = *std::move(*first);
  first->reset();  // the moved-from lock releases nothing
  const auto still_held = ProcessLock::take(path, "the second", other);
  ASSERT_TRUE(still_held);
  EXPECT_FALSE(*still_held);
}

TEST(ProcessLock, IsFreeAfterItsEnd) {
  const TestFolder folder;
  std::string other;
  {
    const auto lock = ProcessLock::take(folder.path / "lock", "the first", other);
  }
  const auto next = ProcessLock::take(folder.path / "lock", "the next", other);
  EXPECT_TRUE(next && *next);
}

}  // namespace
}  // namespace berth::world
