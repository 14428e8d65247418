// A temporary folder for one test, removed when the test ends.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace berth::world {

struct TestFolder {
  std::filesystem::path path;

  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "berth-test-XXXXXX").native();
    path = mkdtemp(name.data());
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
};

}  // namespace berth::world
