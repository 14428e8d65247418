#include "world/exit_status.hpp"

namespace berth::world {

int exit_status(const Error& error) noexcept {
  switch (error.code) {
    case ErrorCode::no_eligible_device:
    case ErrorCode::out_of_memory: return does_not_fit;
    default: return error.reaction() == Reaction::fix_the_call ? wrong_input : environment_error;
  }
}

int start_status(const Error& error) noexcept {
  constexpr int not_runnable = 126, not_there = 127;
  if (error.code == ErrorCode::not_found) return not_there;
  return error.code == ErrorCode::invalid_argument ? not_runnable : environment_error;
}

}  // namespace berth::world
