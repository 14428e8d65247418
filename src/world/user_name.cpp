#include "world/user_name.hpp"

#include <pwd.h>
#include <sys/stat.h>

#include <map>
#include <mutex>

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

std::optional<std::uint32_t> user_of_process(std::uint32_t pid) {
  struct stat status{};
  if (stat(("/proc/" + std::to_string(pid)).c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

}  // namespace berth::world
