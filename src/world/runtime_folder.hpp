// Folders of one user, in which no other user may write: for the ledger, where
// BERTH_RUNTIME_DIR names one, and for what is kept of each user's own decisions.
// A folder that another user could have prepared is refused, never repaired.
#pragma once

#include <cstdint>
#include <string>

#include "berth/result.hpp"

namespace berth::world {

// What happens to a folder that is not there. Reading makes none.
enum class IfMissing : std::uint8_t { create, accept };

// BERTH_RUNTIME_DIR; nothing where it is not set. invalid_argument: it is empty,
// which is a variable that a script forgot to fill in.
Result<std::string> given_runtime_folder();

// The folder for this user's files called `name`: `name`-UID in $BERTH_RUNTIME_DIR
// where that is set; else berth/`name` in $XDG_STATE_HOME, or in .local/state of the
// home folder. A variable that names another user's folder (after su or sudo) is
// passed over for the home folder in the user database.
// invalid_argument: BERTH_RUNTIME_DIR is empty or no absolute path; io: it cannot be made, or
// is neither this user's alone nor, of BERTH_RUNTIME_DIR, root's for all.
Result<std::string> state_folder(const std::string& name, IfMissing missing = IfMissing::create);

// `path` as a folder of this user alone: made with mode 0700, or found so. A
// link, another user's folder, or one that others may write to: io.
Result<std::string> private_folder(const std::string& path, IfMissing missing = IfMissing::create);

}  // namespace berth::world
