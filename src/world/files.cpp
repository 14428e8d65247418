#include "world/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "world/descriptor.hpp"

namespace berth::world {
namespace {

// Larger than any text of Berth; bounds endless files such as /dev/zero.
constexpr std::size_t text_bytes_max = std::size_t{1} << 30;

Error failed(const std::string& what, const std::string& path, int code) {
  std::string advice = "check the path and its permissions";
  if (code == ENOSPC || code == EDQUOT) advice = "free some space; the previous contents are unchanged";
  if (code == ENOENT) advice = "check the name of the file and of its folder";
  return {code == ENOENT ? ErrorCode::not_found : ErrorCode::io,
          "cannot " + what + " " + path + ": " + std::strerror(code),
          std::move(advice),
          {},
          {}};
}

// 0, or the errno of the write or sync that failed.
int write_all(Descriptor& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  // Pipes and devices cannot be synced, and need not be.
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS) return errno;
  return file.close() == 0 ? 0 : errno;
}

// Writes a temporary file in the same folder, then renames it.
Result<void> replace(const std::string& path, std::string temporary, mode_t mode, std::string_view text) {
  Descriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file) return failed("write", path, errno);
  ::fchmod(file.get(), mode);
  int code = write_all(file, text);
  if (code == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) code = errno;
  if (code == 0) return {};
  ::unlink(temporary.c_str());
  return failed("write", path, code);
}

Result<std::string> read_all(const Descriptor& file, const std::string& path, std::size_t bytes_max) {
  std::string text;
  char block[1 << 16];
  for (;;) {
    const ssize_t count = ::read(file.get(), block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("read", path, errno);
    if (count == 0) return text;
    text.append(block, static_cast<std::size_t>(count));
    if (text.size() > bytes_max) return failed("read", path, EFBIG);
  }
}

}  // namespace

Result<std::string> read_text(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return failed("read", path, errno);
  return read_all(file, path, text_bytes_max);
}

Result<std::string> read_plain_text(const std::string& path, std::size_t bytes_max) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return failed("read", path, errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return failed("read", path, errno);
  if (!S_ISREG(status.st_mode)) return Error{ErrorCode::io, path + " is not a file", "remove it"};
  return read_all(file, path, bytes_max);
}

Result<void> write_text(const std::string& path, std::string_view text) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file) return failed("write", path, errno);
    if (const int code = write_all(file, text); code != 0) return failed("write", path, code);
    return {};
  }
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return replace(path, path + ".XXXXXX", 0666 & ~mask, text);
}

Result<void> write_private_text(const std::string& path, std::string_view text) {
  const std::size_t name = path.rfind('/') + 1;
  return replace(path, path.substr(0, name) + "." + path.substr(name) + ".XXXXXX", 0600, text);
}

namespace {

Result<void> create(const std::string& path, mode_t mode, std::string_view text) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file && errno == EEXIST)
    return Error{ErrorCode::already_exists, path + " already exists", "give another name, or remove the file first"};
  if (!file) return failed("write", path, errno);
  const int code = write_all(file, text);
  if (code == 0) return {};
  ::unlink(path.c_str());
  return failed("write", path, code);
}

}  // namespace

Result<void> create_text(const std::string& path, std::string_view text) { return create(path, 0666, text); }

Result<void> create_private_text(const std::string& path, std::string_view text) { return create(path, 0600, text); }

}  // namespace berth::world
