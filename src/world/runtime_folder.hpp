// Private folders of one user: for the ledger, if BERTH_RUNTIME_DIR names one, and for the
// records of the user's decisions. A folder that another user can write to or has created
// is refused.
#pragma once

#include <cstdint>
#include <string>

#include "berth/result.hpp"

namespace berth::world {

// What to do if the folder does not exist. Readers accept that.
enum class IfMissing : std::uint8_t { create, accept };

// BERTH_RUNTIME_DIR; empty text if it is not set. invalid_argument: it is set but empty,
// probably by mistake.
Result<std::string> given_runtime_folder();

// The folder for this user's files called `name`: `name`-UID in $BERTH_RUNTIME_DIR if that is set;
// otherwise berth/`name` in $XDG_STATE_HOME, or in .local/state of the home folder. If a variable
// names another user's folder (after su or sudo), the home folder from the user database is used.
// invalid_argument: BERTH_RUNTIME_DIR is empty or not an absolute path; io: the folder cannot be
// created, or is not private (BERTH_RUNTIME_DIR itself may be shared by all users if root owns it).
Result<std::string> state_folder(const std::string& name, IfMissing missing = IfMissing::create);

// `path` as a private folder of this user, created with mode 0700. io: it is a symbolic
// link, belongs to another user, or other users may write to it.
Result<std::string> private_folder(const std::string& path, IfMissing missing = IfMissing::create);

}  // namespace berth::world
