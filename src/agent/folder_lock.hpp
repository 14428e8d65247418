// One agent per folder: two would start every replica twice.
#pragma once

#include <string>

#include "world/process_lock.hpp"

namespace berth::agent {

// `folder` must exist. already_exists: another process has the lock.
Result<world::ProcessLock> lock_folder(const std::string& folder);

}  // namespace berth::agent
