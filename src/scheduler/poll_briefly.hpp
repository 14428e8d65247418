// Waiting awake: longer than a launch on a GPU with its completion, or than a producer's pause
// between two pieces of work it waits for; shorter than a noticeable load.
#pragma once

#include <chrono>

namespace berth::scheduler {

// Whether done() became true in that time. The clock is the machine's: this is about its threads.
template <class Done>
bool poll_briefly(Done done) noexcept {
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
  do {
    if (done()) return true;
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

}  // namespace berth::scheduler
