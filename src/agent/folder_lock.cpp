#include "agent/folder_lock.hpp"

#include <optional>
#include <utility>

namespace berth::agent {

Result<world::ProcessLock> lock_folder(const std::string& folder) {
  std::string other;
  std::optional<world::ProcessLock> lock =
      BERTH_TRY(world::ProcessLock::take(folder + "/lock", "another agent", other));
  if (lock) return *std::move(lock);
  return Error{ErrorCode::already_exists, "an agent with this name is already running on this machine: " + other,
               "stop it first, or give this agent another --name"};
}

}  // namespace berth::agent
