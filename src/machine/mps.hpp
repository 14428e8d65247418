// CUDA's multi-process service (MPS): whether its control daemon is running.
#pragma once

#include <optional>
#include <string>

namespace berth::machine {

// The control socket that CUDA programs of this user would use. Absent: there is
// none, no process listens on it (the file remains when the daemon ends), or it
// belongs to another user than root: in a world-writable folder any user can create it.
std::optional<std::string> mps_control_socket();

}  // namespace berth::machine
