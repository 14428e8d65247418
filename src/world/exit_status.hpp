// Exit statuses that scripts rely on.
#pragma once

#include "berth/result.hpp"

namespace berth::world {

enum Exit : int {
  done = 0,
  environment_error = 1,  // such as a lost device or a file that cannot be read
  wrong_input = 2,        // wrong input on the command line or in a file
  does_not_fit = 3,       // the request is valid, but there is no room
};

// The exit status for an error.
int exit_status(const Error& error) noexcept;
// The same for a command that cannot be started, as in shells: 127 if there is no such command, 126 if it cannot be
// executed.
int start_status(const Error& error) noexcept;

}  // namespace berth::world
