#include "world/user_name.hpp"

#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

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

namespace {

std::vector<gid_t> groups_of(const char* name, gid_t group) {
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  if (getgrouplist(name, group, groups.data(), &count) < 0) {
    groups.resize(static_cast<std::size_t>(count));
    getgrouplist(name, group, groups.data(), &count);
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

}  // namespace

std::set<std::string> groups_of(std::uint32_t user) {
  // A group may have thousands of members, all of which are put into the buffer.
  std::vector<char> buffer(std::size_t{1} << 16), members(std::size_t{1} << 20);
  passwd entry{};
  passwd* found = nullptr;
  std::set<std::string> groups;
  if (getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) != 0 || !found) return groups;
  for (const gid_t number : groups_of(entry.pw_name, entry.pw_gid)) {
    groups.insert(std::to_string(number));
    struct group about{};
    struct group* named = nullptr;
    if (getgrgid_r(number, &about, members.data(), members.size(), &named) == 0 && named) groups.insert(named->gr_name);
  }
  return groups;
}

Result<UserAccount> find_user(const std::string& name) {
  std::vector<char> buffer(std::size_t{1} << 16);
  passwd entry{};
  passwd* found = nullptr;
  const int failed = getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found)
    return UserAccount{entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir, groups_of(entry.pw_name, entry.pw_gid)};
  if (failed != 0 && failed != ENOENT && failed != ESRCH)
    return Error{ErrorCode::io, "the user '" + printable(name) + "' cannot be looked up: " + std::strerror(failed)};
  return Error{ErrorCode::not_found, "there is no user '" + printable(name) + "'", "see getent passwd"};
}

bool become(const UserAccount& account) noexcept {
  if (geteuid() == account.user) return true;
  return setgroups(account.groups.size(), account.groups.data()) == 0 && setgid(account.group) == 0 &&
         setuid(account.user) == 0;
}

std::optional<std::uint32_t> user_of_process(std::uint32_t pid) {
  struct stat status{};
  if (stat(("/proc/" + std::to_string(pid)).c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

}  // namespace berth::world
