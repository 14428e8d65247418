#include "world/user_name.hpp"

#include <pwd.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "world/printable.hpp"

namespace berth::world {

std::string user_name(std::uint32_t user) {
  static std::mutex mutex;  // guards known, and getpwuid, which uses a static buffer
  static std::map<std::uint32_t, std::string> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(user);
  if (found != known.end()) return found->second;
  const passwd* const entry = getpwuid(user);
  return known[user] = entry != nullptr ? printable(entry->pw_name) : std::to_string(user);
}

Result<UserAccount> find_user(const std::string& name) {
  std::vector<char> buffer(std::size_t{1} << 16);
  passwd entry{};
  passwd* found = nullptr;
  const int failed = getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found) return UserAccount{entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir};
  if (failed != 0 && failed != ENOENT && failed != ESRCH)
    return Error{ErrorCode::io, "the user '" + printable(name) + "' cannot be looked up: " + std::strerror(failed)};
  return Error{ErrorCode::not_found, "there is no user '" + printable(name) + "'", "getent passwd lists them"};
}

std::optional<std::uint32_t> user_of_process(std::uint32_t pid) {
  struct stat status{};
  if (stat(("/proc/" + std::to_string(pid)).c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

}  // namespace berth::world
