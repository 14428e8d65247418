#include "world/runtime_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace berth {
namespace {

Error refused(const std::string& path, const std::string& what) {
  return {ErrorCode::io, path + " " + what, "name another folder in BERTH_RUNTIME_DIR, or remove this one", {}, {}};
}

// Made by root for everybody, and no file in it can be replaced by others.
bool is_for_all(const std::string& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == 0 &&
         (status.st_mode & (S_IWOTH | S_ISVTX)) == (S_IWOTH | S_ISVTX);
}

}  // namespace

Result<std::string> private_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error{ErrorCode::io,
                 "cannot make the folder " + path + ": " + std::strerror(errno),
                 "name a folder that can be made in BERTH_RUNTIME_DIR",
                 {},
                 {}};
  }
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return refused(path, std::string("cannot be read: ") + std::strerror(errno));
  if (S_ISLNK(status.st_mode)) return refused(path, "is a link, which could lead anywhere");
  if (!S_ISDIR(status.st_mode)) return refused(path, "is not a folder");
  if (status.st_uid != ::geteuid()) return refused(path, "belongs to another user");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return refused(path, "can be written to by others");
  return path;
}

Result<std::string> runtime_folder() {
  const char* const own = std::getenv("BERTH_RUNTIME_DIR");
  const char* const session = std::getenv("XDG_RUNTIME_DIR");
  std::string path;
  if (own != nullptr && *own != '\0') {
    path = own;
  } else if (is_for_all("/run/berth")) {
    return std::string("/run/berth");
  } else if (session != nullptr && *session != '\0') {
    path = std::string(session) + "/berth";
  } else {
    path = "/dev/shm/berth-" + std::to_string(::geteuid());
  }
  // Relative, two processes of one machine would have two ledgers.
  if (path.front() != '/') {
    return Error{ErrorCode::invalid_argument,
                 "the runtime folder " + path + " is not an absolute path",
                 "begin BERTH_RUNTIME_DIR or XDG_RUNTIME_DIR with a slash",
                 {},
                 {}};
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return is_for_all(path) ? path : private_folder(path);
}

}  // namespace berth
