// CUDA's multi-process service (MPS): whether its control daemon runs.
#pragma once

#include <optional>
#include <string>

namespace berth::machine {

// The control socket that CUDA programs of this user would use. Absent: there is
// none, no process listens on it (the file stays when the daemon ends), or another
// user made it, who could be anybody in a folder that all may write to.
std::optional<std::string> mps_control_socket();

}  // namespace berth::machine
