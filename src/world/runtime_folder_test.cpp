#include "world/runtime_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace berth {
namespace {

class RuntimeFolder : public testing::Test {
 protected:
  RuntimeFolder() {
    std::string pattern = testing::TempDir() + "berth-folder-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    ::unsetenv("BERTH_RUNTIME_DIR");
    ::unsetenv("XDG_RUNTIME_DIR");
  }
  ~RuntimeFolder() override {
    ::unsetenv("BERTH_RUNTIME_DIR");
    ::unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(root_);
  }
  std::string at(const std::string& name) const { return root_ + "/" + name; }
  static std::string refusal_of(const std::string& path) {
    const Result<std::string> folder = private_folder(path);
    return folder ? "" : folder.error().message;
  }

  std::string root_;
};

TEST_F(RuntimeFolder, IsTheUsersOwnThenTheSessionsThenInSharedMemory) {
  ::setenv("XDG_RUNTIME_DIR", root_.c_str(), 1);
  EXPECT_EQ(runtime_folder().value(), at("berth"));
  ::setenv("BERTH_RUNTIME_DIR", (at("own") + "/").c_str(), 1);
  EXPECT_EQ(runtime_folder().value(), at("own"));
  ::setenv("BERTH_RUNTIME_DIR", "", 1);
  EXPECT_EQ(runtime_folder().value(), at("berth")) << "empty is unset";
  ::setenv("XDG_RUNTIME_DIR", "", 1);
  const Result<std::string> shared = runtime_folder();
  if (shared) {
    EXPECT_EQ(*shared, "/dev/shm/berth-" + std::to_string(::geteuid()));
    ::rmdir(shared->c_str());  // stays where somebody uses it
  }
}

TEST_F(RuntimeFolder, IsMadeForOneUserAndFoundAgain) {
  ::setenv("BERTH_RUNTIME_DIR", at("new").c_str(), 1);
  const mode_t before = ::umask(0);
  EXPECT_EQ(runtime_folder().value(), at("new"));
  ::umask(before);
  struct stat status{};
  ASSERT_EQ(::stat(at("new").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700U);
  EXPECT_EQ(runtime_folder().value(), at("new"));
}

TEST_F(RuntimeFolder, WhatOthersCouldHavePreparedIsRefused) {
  std::filesystem::create_directory(at("real"));
  std::filesystem::create_directory_symlink(at("real"), at("link"));
  EXPECT_NE(refusal_of(at("link")).find("is a link"), std::string::npos);
  std::ofstream(at("file")) << "text";
  EXPECT_NE(refusal_of(at("file")).find("is not a folder"), std::string::npos);
  std::filesystem::create_directory(at("open"));
  ::chmod(at("open").c_str(), 0770);
  EXPECT_NE(refusal_of(at("open")).find("written to by others"), std::string::npos);
  if (::geteuid() == 0) {
    std::filesystem::create_directory(at("theirs"));
    ASSERT_EQ(::chown(at("theirs").c_str(), 12345, 12345), 0);
    EXPECT_NE(refusal_of(at("theirs")).find("another user"), std::string::npos);
  }
}

TEST_F(RuntimeFolder, APathThatCannotBeIsOneSentence) {
  EXPECT_NE(refusal_of(at("none/below")).find("cannot make the folder"), std::string::npos);
  ::setenv("BERTH_RUNTIME_DIR", "relative", 1);
  EXPECT_EQ(runtime_folder().error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace berth
