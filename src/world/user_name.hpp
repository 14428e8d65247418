// Who a user is called. Asks the user database of the machine, which may be a
// directory service; so each user is asked for once per process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace berth::world {

// The number where the user has no name. Safe for a terminal (see printable.hpp).
std::string user_name(std::uint32_t user);

// Whose process it is; absent: there is no such process, or it is hidden.
std::optional<std::uint32_t> user_of_process(std::uint32_t pid);

}  // namespace berth::world
