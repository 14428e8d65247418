#include "agent/last_epoch.hpp"

#include <gtest/gtest.h>

#include "world/files.hpp"
#include "world/test_folder.hpp"

namespace berth::agent {
namespace {

TEST(LastEpoch, OutlivesTheAgentUntilItIsForgotten) {
  const world::TestFolder folder;
  EXPECT_EQ(last_epoch(folder.path.string()), 0u);
  ASSERT_TRUE(keep_epoch(folder.path.string(), 7));
  ASSERT_TRUE(keep_epoch(folder.path.string(), 1'000'008));
  EXPECT_EQ(last_epoch(folder.path.string()), 1'000'008u);
  forget_epoch(folder.path.string());
  EXPECT_EQ(last_epoch(folder.path.string()), 0u);
}

TEST(LastEpoch, AFileThatIsNoNumberCountsAsNone) {
  const world::TestFolder folder;
  ASSERT_TRUE(world::write_text(folder.path.string() + "/epoch", "x\n"));
  EXPECT_EQ(last_epoch(folder.path.string()), 0u);
}

}  // namespace
}  // namespace berth::agent
