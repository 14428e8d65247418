// A lock on a file that lasts as long as the process that took it, however that ends. Unlike flock() and open-file
// locks, a record lock is not inherited by fork(): a supervisor that outlives the process that started it does not
// keep a successor from taking the lock. The kernel lets one process take such a lock twice, so a list in the process
// refuses the second time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "berth/result.hpp"
#include "world/descriptor.hpp"

namespace berth::world {

class ProcessLock {
 public:
  // Returns nullopt if the lock is taken; `other` then names its holder. The file is created with mode 0600 and is
  // never removed.
  static Result<std::optional<ProcessLock>> take(const std::string& path, const std::string& owner, std::string& other);
  // The process that has the lock, which is not this one; nullopt if no visible process has it.
  static std::optional<pid_t> holder(const std::string& path);
  ProcessLock(ProcessLock&& other) noexcept = default;
  ProcessLock& operator=(ProcessLock&& other) noexcept;
  ~ProcessLock();

 private:
  ProcessLock(Descriptor file, dev_t device, ino_t inode) : file_(std::move(file)), device_(device), inode_(inode) {}
  Descriptor file_;
  dev_t device_;
  ino_t inode_;
};

}  // namespace berth::world
