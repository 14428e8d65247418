// A lock on a file that lasts as long as the process that took it, however that ends. Unlike flock() and locks of open
// files, a record lock is not inherited by fork(): a replica's supervisor that outlives its server does not keep the
// next server from leading. The kernel does not keep two users in one process apart by such a lock, so a list in the
// process does.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "berth/result.hpp"

namespace berth::store {

class LeaderLock {
 public:
  // Absent: another one has it, and `other` says who. The file is made with mode 0600 and stays.
  static Result<std::optional<LeaderLock>> take(const std::string& path, const std::string& owner, std::string& other);
  LeaderLock(LeaderLock&& other) noexcept;
  LeaderLock& operator=(LeaderLock&& other) noexcept;
  ~LeaderLock();

 private:
  LeaderLock(int file, dev_t device, ino_t inode) : file_(file), device_(device), inode_(inode) {}
  int file_;
  dev_t device_;
  ino_t inode_;
};

}  // namespace berth::store
