#include "store/leader_lock.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace berth::store {
namespace {

struct HeldLocks {
  std::mutex mutex;  // guards `owners`, and every open and close of a lock's file
  // By file. The process is part of it because a child of fork() has a copy of the list, but not the locks.
  std::map<std::pair<dev_t, ino_t>, std::pair<pid_t, std::string>> owners;
};
HeldLocks& held() {
  static HeldLocks& all = *new HeldLocks;
  return all;
}

Error failed(const std::string& path, int code) {
  return {ErrorCode::io, "cannot lock " + path + ": " + std::strerror(code), "check the file and its permissions"};
}

}  // namespace

Result<std::optional<LeaderLock>> LeaderLock::take(const std::string& path, const std::string& owner,
                                                   std::string& other) {
  HeldLocks& all = held();
  const std::lock_guard guard(all.mutex);
  struct stat status{};
  // Before it is opened: closing any descriptor of the file would let go of the lock that this process has.
  if (::stat(path.c_str(), &status) == 0) {
    const auto at = all.owners.find({status.st_dev, status.st_ino});
    if (at != all.owners.end() && at->second.first == ::getpid()) {
      other = at->second.second;
      return std::optional<LeaderLock>();
    }
  }
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return failed(path, errno);
  struct flock range{};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  if (::fstat(file, &status) != 0 || ::fcntl(file, F_SETLK, &range) != 0) {
    const int code = errno;
    char written[256];
    const ssize_t size = ::pread(file, written, sizeof written, 0);
    ::close(file);
    if (code != EACCES && code != EAGAIN) return failed(path, code);
    other = size > 0 ? std::string(written, static_cast<std::size_t>(size)) : "another process";
    return std::optional<LeaderLock>();
  }
  // For the message above alone; on a full disk the lock holds all the same.
  const std::string text = owner + " (process " + std::to_string(::getpid()) + ")";
  if (::ftruncate(file, 0) == 0) static_cast<void>(::pwrite(file, text.data(), text.size(), 0) < 0);
  all.owners[{status.st_dev, status.st_ino}] = {::getpid(), text};
  return std::optional(LeaderLock(file, status.st_dev, status.st_ino));
}

LeaderLock::LeaderLock(LeaderLock&& other) noexcept
    : file_(std::exchange(other.file_, -1)), device_(other.device_), inode_(other.inode_) {}

LeaderLock& LeaderLock::operator=(LeaderLock&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  return *this;
}

LeaderLock::~LeaderLock() {
  if (file_ < 0) return;
  HeldLocks& all = held();
  const std::lock_guard guard(all.mutex);
  all.owners.erase({device_, inode_});
  ::close(file_);
}

}  // namespace berth::store
