#include "world/runtime_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace berth::world {
namespace {

class RuntimeFolder : public testing::Test {
 protected:
  RuntimeFolder() {
    std::string pattern = testing::TempDir() + "berth-folder-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    for (const char* const name : variables) {
      const char* const value = std::getenv(name);
      before_.push_back(value ? std::optional<std::string>(value) : std::nullopt);
      ::unsetenv(name);
    }
  }
  ~RuntimeFolder() override {
    for (std::size_t i = 0; i < std::size(variables); ++i) {
      ::unsetenv(variables[i]);
      if (before_[i]) ::setenv(variables[i], before_[i]->c_str(), 1);
    }
    std::filesystem::remove_all(root_);
  }
  std::string at(const std::string& name) const { return root_ + "/" + name; }
  static std::string refusal_of(const std::string& path) {
    const Result<std::string> folder = private_folder(path);
    return folder ? "" : folder.error().message;
  }

  static constexpr const char* variables[] = {"BERTH_RUNTIME_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME"};
  std::vector<std::optional<std::string>> before_;
  std::string root_;
};

TEST_F(RuntimeFolder, StateFoldersFollowTheEnvironment) {
  ::setenv("HOME", root_.c_str(), 1);
  ::setenv("XDG_RUNTIME_DIR", at("session").c_str(), 1);
  EXPECT_EQ(state_folder("decisions").value(), at(".local/state/berth/decisions"));
  std::filesystem::create_directory(at("state"));
  ::setenv("XDG_STATE_HOME", at("state").c_str(), 1);
  EXPECT_EQ(state_folder("decisions").value(), at("state/berth/decisions"));
  ::setenv("BERTH_RUNTIME_DIR", (at("own") + "/").c_str(), 1);
  const std::string uid = std::to_string(::geteuid());
  EXPECT_EQ(state_folder("decisions").value(), at("own/decisions-" + uid));
  ::setenv("BERTH_RUNTIME_DIR", "", 1);
  EXPECT_EQ(state_folder("decisions").error().to_text(), "BERTH_RUNTIME_DIR is empty; unset it, or set it to a folder");
  ::unsetenv("BERTH_RUNTIME_DIR");
  ::setenv("XDG_STATE_HOME", "state", 1);
  EXPECT_EQ(state_folder("decisions").value(), at(".local/state/berth/decisions")) << "a relative path is ignored";
}

TEST_F(RuntimeFolder, AnotherUsersHomeIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make another user's folder";
  std::filesystem::create_directory(at("theirs"));
  ASSERT_EQ(::chown(at("theirs").c_str(), 12345, 12345), 0);
  ::setenv("HOME", at("theirs").c_str(), 1);
  ::setenv("XDG_STATE_HOME", at("own").c_str(), 1);
  std::filesystem::create_directory(at("own"));
  EXPECT_EQ(state_folder("decisions").value(), at("own/berth/decisions"));
  ::setenv("XDG_STATE_HOME", at("theirs").c_str(), 1);
  ::setenv("HOME", root_.c_str(), 1);
  EXPECT_EQ(state_folder("decisions").value(), at(".local/state/berth/decisions"));
  ::setenv("XDG_STATE_HOME", at("theirs/not/yet").c_str(), 1);
  EXPECT_EQ(state_folder("decisions").value(), at(".local/state/berth/decisions"));
  EXPECT_TRUE(std::filesystem::is_empty(at("theirs")));
}

TEST_F(RuntimeFolder, IsCreatedPrivateAndReused) {
  ::setenv("BERTH_RUNTIME_DIR", at("new").c_str(), 1);
  const mode_t before = ::umask(0);
  const std::string made = state_folder("decisions").value();
  ::umask(before);
  for (const std::string& folder : {at("new"), made}) {
    struct stat status{};
    ASSERT_EQ(::stat(folder.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700U);
  }
  EXPECT_EQ(state_folder("decisions").value(), made);
}

TEST_F(RuntimeFolder, IsOfUseWhateverTheUmaskIs) {
  ::setenv("HOME", root_.c_str(), 1);
  ::setenv("XDG_STATE_HOME", at("not/yet").c_str(), 1);
  const mode_t before = ::umask(0277);
  const Result<std::string> made = state_folder("decisions");
  ::umask(before);
  EXPECT_EQ(made.value(), at("not/yet/berth/decisions")) << "made, since it is below a folder of this user";
  for (const char* const name : {"not", "not/yet", "not/yet/berth", "not/yet/berth/decisions"}) {
    struct stat status{};
    ASSERT_EQ(::stat(at(name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700U) << name;
  }
}

TEST_F(RuntimeFolder, ReadingCreatesNoFolder) {
  ::setenv("HOME", root_.c_str(), 1);
  EXPECT_EQ(state_folder("decisions", IfMissing::accept).value(), at(".local/state/berth/decisions"));
  ::setenv("BERTH_RUNTIME_DIR", at("new").c_str(), 1);
  EXPECT_EQ(state_folder("decisions", IfMissing::accept).value(), at("new/decisions-" + std::to_string(::geteuid())));
  EXPECT_TRUE(std::filesystem::is_empty(root_));
  std::ofstream(at("new")) << "text";
  EXPECT_FALSE(state_folder("decisions", IfMissing::accept)) << "an existing file is still checked";
}

TEST_F(RuntimeFolder, FoldersThatOthersControlAreRefused) {
  std::filesystem::create_directory(at("real"));
  std::filesystem::create_directory_symlink(at("real"), at("link"));
  EXPECT_NE(refusal_of(at("link")).find("is a symbolic link"), std::string::npos);
  std::ofstream(at("file")) << "text";
  EXPECT_NE(refusal_of(at("file")).find("is not a folder"), std::string::npos);
  std::filesystem::create_directory(at("open"));
  ::chmod(at("open").c_str(), 0770);
  EXPECT_NE(refusal_of(at("open")).find("written to by others"), std::string::npos);
  if (::geteuid() == 0) {
    std::filesystem::create_directory(at("theirs"));
    ASSERT_EQ(::chown(at("theirs").c_str(), 12345, 12345), 0);
    EXPECT_NE(refusal_of(at("theirs")).find("another user, 12345"), std::string::npos);
    EXPECT_NE(private_folder(at("theirs")).error().advice.find("ask root"), std::string::npos);
  }
}

// In a folder of another user or without the sticky bit, others could replace its content.
TEST_F(RuntimeFolder, AFolderForAllIsOfRootAndHasTheStickyBit) {
  std::filesystem::create_directory(at("all"));
  ::setenv("BERTH_RUNTIME_DIR", at("all").c_str(), 1);
  const auto refusal = [&](mode_t mode) {
    ::chmod(at("all").c_str(), mode);
    const Result<std::string> folder = state_folder("jobs");
    return folder ? std::string() : folder.error().message;
  };
  EXPECT_EQ(refusal(0777), at("all") + " can be written to by others");
  if (::geteuid() != 0) {
    EXPECT_EQ(refusal(01777), at("all") + " can be written to by others") << "the folder does not belong to root";
    return;
  }
  EXPECT_EQ(refusal(01777), "");
  ASSERT_EQ(::chown(at("all").c_str(), 12345, 12345), 0);
  EXPECT_EQ(refusal(01777), at("all") + " belongs to another user, 12345");
}

TEST_F(RuntimeFolder, AnImpossiblePathIsAnError) {
  EXPECT_NE(refusal_of(at("none/below")).find("cannot create the folder"), std::string::npos);
  ::setenv("BERTH_RUNTIME_DIR", "relative", 1);
  EXPECT_EQ(state_folder("decisions").error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace berth::world
