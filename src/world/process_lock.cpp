#include "world/process_lock.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace berth::world {
namespace {

struct HeldLocks {
  std::mutex mutex;  // guards `owners`, and every open and close of a lock's file
  // By file. The process is part of the value because a child of fork() has a copy of the list, but not the locks.
  std::map<std::pair<dev_t, ino_t>, std::pair<pid_t, std::string>> owners;
};
HeldLocks& held_locks() {
  static HeldLocks& all = *new HeldLocks;
  return all;
}

Error cannot_lock(const std::string& path, int code) {
  return {ErrorCode::io, "cannot lock " + path + ": " + std::strerror(code), "check the file and its permissions"};
}

}  // namespace

Result<std::optional<ProcessLock>> ProcessLock::take(const std::string& path, const std::string& owner,
                                                     std::string& other) {
  HeldLocks& all = held_locks();
  const std::lock_guard guard(all.mutex);
  struct stat status{};
  // Checked before the file is opened, because closing any descriptor of the file would release the lock that this
  // process holds.
  if (::stat(path.c_str(), &status) == 0) {
    const auto at = all.owners.find({status.st_dev, status.st_ino});
    if (at != all.owners.end() && at->second.first == ::getpid()) {
      other = at->second.second;
      return std::optional<ProcessLock>();
    }
  }
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) return cannot_lock(path, errno);
  struct flock range{};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  if (::fstat(file.get(), &status) != 0 || ::fcntl(file.get(), F_SETLK, &range) != 0) {
    const int code = errno;
    if (code != EACCES && code != EAGAIN) return cannot_lock(path, code);
    char written[256];
    const ssize_t size = ::pread(file.get(), written, sizeof written, 0);
    other = size > 0 ? std::string(written, static_cast<std::size_t>(size)) : "another process";
    return std::optional<ProcessLock>();
  }
  // The text is only for the message above, so a full disk does not matter.
  const std::string text = owner + " (process " + std::to_string(::getpid()) + ")";
  if (::ftruncate(file.get(), 0) == 0) static_cast<void>(::pwrite(file.get(), text.data(), text.size(), 0) < 0);
  all.owners[{status.st_dev, status.st_ino}] = {::getpid(), text};
  return std::optional(ProcessLock(std::move(file), status.st_dev, status.st_ino));
}

std::optional<pid_t> ProcessLock::holder(const std::string& path) {
  const std::lock_guard guard(held_locks().mutex);
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct flock range{};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  if (!file || ::fcntl(file.get(), F_GETLK, &range) != 0 || range.l_type == F_UNLCK || range.l_pid <= 0)
    return std::nullopt;
  return range.l_pid;
}

ProcessLock& ProcessLock::operator=(ProcessLock&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  return *this;
}

ProcessLock::~ProcessLock() {
  if (!file_) return;
  HeldLocks& all = held_locks();
  const std::lock_guard guard(all.mutex);
  all.owners.erase({device_, inode_});
  file_.close();
}

}  // namespace berth::world
