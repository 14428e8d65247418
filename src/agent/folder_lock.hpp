// One agent per folder: two would start every replica twice. The lock lasts as long as the process that took it,
// however that ends, and is not inherited by the supervisors that it starts.
#pragma once

#include <string>

#include "berth/result.hpp"

namespace berth::agent {

class FolderLock {
 public:
  // `folder` exists. already_exists: another process has it.
  static Result<FolderLock> take(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int file) noexcept : file_(file) {}
  int file_;
};

}  // namespace berth::agent
