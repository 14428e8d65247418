#include "world/runtime_folder.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "world/user_name.hpp"

namespace berth::world {
namespace {

Error refused(const std::string& path, const std::string& what) {
  return {ErrorCode::io, path + " " + what, "set BERTH_RUNTIME_DIR to another folder, or remove this one"};
}

// Whether the folder is shared: owned by root, writable for all, with the sticky bit.
bool is_for_all(const std::string& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == 0 &&
         (status.st_mode & (S_IWOTH | S_ISVTX)) == (S_IWOTH | S_ISVTX);
}

bool is_own(const std::string& path) {
  struct stat status{};
  return path.starts_with('/') && ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid();
}

// Whether this is a folder of this user, or one that does not exist yet and that this user can create, because it is
// below the user's own folder.
bool may_become_own(std::string path) {
  if (!path.starts_with('/')) return false;
  struct stat status{};
  while (path.size() > 1 && ::lstat(path.c_str(), &status) != 0 && errno == ENOENT)
    path.resize(std::max<std::size_t>(1, path.rfind('/')));
  return is_own(path);
}

// Like mkdir with mode 0700, but independent of the umask.
int make_private(const std::string& path) {
  const int result = ::mkdir(path.c_str(), 0700);
  return result == 0 ? ::chmod(path.c_str(), 0700) : result;
}

void make_with_parents(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    make_private(path.substr(0, at));
  make_private(path);
}

std::string home_folder() {
  if (const char* const home = std::getenv("HOME"); home != nullptr && is_own(home)) return home;
  const passwd* const entry = ::getpwuid(::geteuid());
  return entry != nullptr && is_own(entry->pw_dir) ? entry->pw_dir : std::string();
}

}  // namespace

Result<std::string> private_folder(const std::string& path, IfMissing missing) {
  const bool make = missing == IfMissing::create;
  if (make && make_private(path) != 0 && errno != EEXIST) {
    return Error{ErrorCode::io, "cannot create the folder " + path + ": " + std::strerror(errno),
                 "set BERTH_RUNTIME_DIR to a folder that can be created"};
  }
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) {
    if (!make && errno == ENOENT) return path;
    return refused(path, std::string("cannot be read: ") + std::strerror(errno));
  }
  if (S_ISLNK(status.st_mode)) return refused(path, "is a symbolic link, which is not trusted");
  if (!S_ISDIR(status.st_mode)) return refused(path, "is not a folder");
  if (status.st_uid != ::geteuid())
    return Error{
        ErrorCode::io, path + " belongs to another user, " + user_name(status.st_uid),
        "set BERTH_RUNTIME_DIR to another folder, or ask root or " + user_name(status.st_uid) + " to remove this one"};
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return refused(path, "can be written to by others");
  return path;
}

Result<std::string> given_runtime_folder() {
  const char* const given = std::getenv("BERTH_RUNTIME_DIR");
  if (given != nullptr && *given == '\0')
    return Error{ErrorCode::invalid_argument, "BERTH_RUNTIME_DIR is empty", "unset it, or set it to a folder"};
  return std::string(given != nullptr ? given : "");
}

Result<std::string> state_folder(const std::string& name, IfMissing missing) {
  const Result<std::string> given = given_runtime_folder();
  if (!given) return given;
  if (!given->empty()) {
    std::string path = *given;
    if (path.front() != '/') {
      return Error{ErrorCode::invalid_argument, "the runtime folder " + path + " is not an absolute path",
                   "begin BERTH_RUNTIME_DIR with a slash"};
    }
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    if (!is_for_all(path)) {
      if (Result<std::string> own = private_folder(path, missing); !own) return own;
    }
    return private_folder(path + "/" + name + "-" + std::to_string(::geteuid()), missing);
  }
  std::string path;
  if (const char* const state = std::getenv("XDG_STATE_HOME"); state != nullptr && may_become_own(state)) {
    path = state;
    if (missing == IfMissing::create) make_with_parents(path);
  } else {
    path = home_folder();
    if (path.empty()) {
      return Error{ErrorCode::io, "this user has no home folder to keep files in",
                   "set HOME or XDG_STATE_HOME to a folder of this user"};
    }
    if (missing == IfMissing::create) {
      for (const char* const below : {"/.local", "/.local/state"}) make_private(path + below);
    }
    path += "/.local/state";
  }
  if (Result<std::string> own = private_folder(path + "/berth", missing); !own) return own;
  return private_folder(path + "/berth/" + name, missing);
}

}  // namespace berth::world
