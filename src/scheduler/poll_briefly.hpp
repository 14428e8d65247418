// How long to spin: longer than a GPU launch with its completion, or than a producer's pause
// between two pieces of work; too short to be a noticeable load.
#pragma once

#include "berth/clock.hpp"

namespace berth::scheduler {

// Whether done() became true in that time, by the real clock, because real threads are waited
// for.
template <class Done>
bool poll_briefly(Done done) noexcept {
  const Clock& clock = real_clock();
  const TimePoint until = clock.now() + std::chrono::microseconds(50);
  do {
    if (done()) return true;
  } while (clock.now() < until);
  return false;
}

}  // namespace berth::scheduler
