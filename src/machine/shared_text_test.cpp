#include "machine/shared_text.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "ledger/test_folder.hpp"
#include "world/descriptor.hpp"
#include "world/files.hpp"

namespace berth::machine {
namespace {

struct SharedText : testing::Test {
  ledger::TestFolder folder;
  std::string path(const char* name) const { return (folder.path / name).string(); }
};

TEST_F(SharedText, IsOverwrittenInPlaceAndReadBack) {
  const std::string file = path("state");
  EXPECT_EQ(read_shared_text(file, 100).error().code, ErrorCode::not_found);
  EXPECT_EQ(overwrite_text(file, "x").error().code, ErrorCode::not_found) << "only its owner creates it";
  ASSERT_TRUE(world::create_text(file, ""));
  EXPECT_EQ(read_shared_text(file, 100).error().code, ErrorCode::not_found) << "nothing was written yet";
  struct stat before{}, after{};
  ASSERT_EQ(stat(file.c_str(), &before), 0);
  ASSERT_TRUE(overwrite_text(file, "a long text"));
  ASSERT_TRUE(overwrite_text(file, "short"));
  EXPECT_EQ(read_shared_text(file, 100).value(), "short      ");
  ASSERT_EQ(stat(file.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(read_shared_text(file, 10).error().code, ErrorCode::io) << "longer than it may be";
}

TEST_F(SharedText, NeitherSideWaitsForALockForLong) {
  const std::string file = path("state");
  ASSERT_TRUE(world::create_text(file, "old"));
  const world::Descriptor kept(open(file.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(lock_file(kept.get(), F_WRLCK, F_OFD_SETLK));
  EXPECT_EQ(read_shared_text(file, 100).error().code, ErrorCode::io);
  EXPECT_TRUE(overwrite_text(file, "new"));
  ASSERT_TRUE(lock_file(kept.get(), F_UNLCK, F_OFD_SETLK));
  EXPECT_EQ(read_shared_text(file, 100).value(), "new");
}

TEST_F(SharedText, PipesAndLinksAreRefusedAtOnce) {
  ASSERT_TRUE(world::create_text(path("target"), "of another"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink(path("target"), path("link"));
  for (const char* const name : {"pipe", "link"}) {
    EXPECT_EQ(read_shared_text(path(name), 100).error().code, ErrorCode::io) << name;
    EXPECT_FALSE(overwrite_text(path(name), "x")) << name;
  }
  EXPECT_EQ(world::read_text(path("target")).value(), "of another");
}

}  // namespace
}  // namespace berth::machine
