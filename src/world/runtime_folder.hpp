// The folder for what lives as long as the machine runs: the ledger, and the
// decisions beside it. One per user, and nobody else may write there; or one for
// all users, where an administrator made it. A folder that anybody could have
// prepared is refused, never mended.
#pragma once

#include <string>

#include "berth/result.hpp"

namespace berth {

// $BERTH_RUNTIME_DIR; else /run/berth, where root made it for all users (mode
// 1777, so that nobody replaces another's file); else berth in $XDG_RUNTIME_DIR;
// else /dev/shm/berth-<uid>. Made if it is not there (its parent must be).
// invalid_argument: the variable is no absolute path; io: it cannot be made, or
// is neither root's for all nor this user's alone.
Result<std::string> runtime_folder();

// `path` as a folder of this user alone: made with mode 0700, or found so. A
// link, another user's folder, or one that others may write to: io.
Result<std::string> private_folder(const std::string& path);

}  // namespace berth
