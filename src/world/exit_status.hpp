// Exit statuses that scripts rely on.
#pragma once

#include "berth/result.hpp"

namespace berth::world {

enum Exit : int {
  done = 0,
  environment_error = 1,  // such as a lost device or a file that cannot be read
  wrong_input = 2,        // of the command line or a file
  does_not_fit = 3,       // valid, but there is no room
};

// The exit status for an error.
int exit_status(const Error& error) noexcept;
// The same for a command that cannot be started, as shells have it: 127 there is none, 126 it cannot be executed.
int start_status(const Error& error) noexcept;

}  // namespace berth::world
