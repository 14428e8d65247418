#include "agent/folder_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace berth::agent {

Result<FolderLock> FolderLock::take(const std::string& folder) {
  const std::string path = folder + "/lock";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0)
    return Error{ErrorCode::io, "cannot open " + path + ": " + std::strerror(errno), "check the folder's permissions"};
  FolderLock lock(file);
  // A record lock belongs to the process: a child of fork() does not have it.
  struct flock range{};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  if (fcntl(file, F_SETLK, &range) == 0) return lock;
  if (errno != EACCES && errno != EAGAIN)
    return Error{ErrorCode::io, "cannot lock " + path + ": " + std::strerror(errno), "check the file system"};
  std::string who = "another process";
  if (fcntl(file, F_GETLK, &range) == 0 && range.l_type != F_UNLCK && range.l_pid > 0)
    who = "process " + std::to_string(range.l_pid);
  return Error{ErrorCode::already_exists, "an agent with this name runs already on this machine: " + who,
               "end that one first, or give this one another --name"};
}

FolderLock::FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

}  // namespace berth::agent
