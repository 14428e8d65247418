#include "machine/shared_text.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "berth/clock.hpp"
#include "world/descriptor.hpp"

namespace berth::machine {
namespace {

// A text is read and written within microseconds. A process that keeps the lock longer than this does not delay
// others.
constexpr int lock_tries = 5;
constexpr Duration lock_pause = std::chrono::milliseconds(1);
// Berth does not write longer files; a longer one counts as unreadable.
constexpr std::size_t padded_bytes_max = std::size_t{64} << 10;

Error text_error(const char* what, const std::string& path, const std::string& why) {
  return {errno == ENOENT ? ErrorCode::not_found : ErrorCode::io,
          std::string("cannot ") + what + " " + path + ": " + why,
          "check the disk space and the permissions of the folder"};
}

bool try_lock(int file, short kind) {
  for (int tries = 1; !lock_file(file, kind, F_OFD_SETLK); ++tries) {
    if (errno != EAGAIN && errno != EACCES) return true;  // the file system has no locks
    if (tries == lock_tries) return false;
    real_clock().sleep_for(lock_pause);
  }
  return true;
}

bool is_regular(int file, struct stat& about) { return fstat(file, &about) == 0 && S_ISREG(about.st_mode); }

}  // namespace

bool lock_file(int file, short kind, int how) noexcept {
  struct flock lock{};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  int result = 0;
  do result = fcntl(file, how, &lock);
  while (result != 0 && errno == EINTR);
  return how == F_OFD_GETLK ? result == 0 && lock.l_type != F_UNLCK : result == 0;
}

Result<void> overwrite_text(const std::string& path, std::string text) {
  const world::Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return text_error("write", path, std::strerror(errno));
  struct stat about{};
  if (!is_regular(file.get(), about)) return Error{ErrorCode::io, path + " is not a file", "remove it"};
  try_lock(file.get(), F_WRLCK);  // without the lock, a reader may briefly see half of the text
  // Pads the text with blanks, because truncating the file would be a second step.
  text.resize(std::max(text.size(), std::min(padded_bytes_max, static_cast<std::size_t>(about.st_size))), ' ');
  if (pwrite(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) return {};
  return Error{ErrorCode::io, "cannot write " + path + ": " + std::strerror(errno), "check that the disk is not full"};
}

Result<std::string> read_shared_text(const std::string& path, std::size_t bytes_max) {
  const world::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return text_error("read", path, std::strerror(errno));
  struct stat about{};
  if (!is_regular(file.get(), about)) return Error{ErrorCode::io, path + " is not a file", "remove it"};
  if (!try_lock(file.get(), F_RDLCK)) return Error{ErrorCode::io, path + " is locked by another process"};
  std::string text(bytes_max + 1, '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), 0);
  if (size < 0) return Error{ErrorCode::io, "cannot read " + path + ": " + std::strerror(errno)};
  if (size == 0) return Error{ErrorCode::not_found, path + " is empty"};
  if (static_cast<std::size_t>(size) > bytes_max) return Error{ErrorCode::io, path + " is too large"};
  text.resize(static_cast<std::size_t>(size));
  return text;
}

}  // namespace berth::machine
