// Poller: polls every device for its load and passes the answers, and the time, to the board. One
// timer sets the pace. A device may take any time to answer: each has at most one poll outstanding,
// on its own thread, and the load in an answer after the deadline is dropped (but not its driver
// events, which are reported only once). A device that never answers is abandoned, even when the
// pool is destroyed.
//
// Without threads (poll = false) it polls on the caller's thread, on request.
#pragma once

#include <memory>
#include <thread>

#include "pool/board.hpp"

namespace berth::pool {

class Poller {
 public:
  // Starts the first poll at once (with threads).
  Poller(Board& board, const PoolOptions& options);
  ~Poller() { stop(); }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Stops using the board. Waits for pending polls, at most until the deadline.
  void stop();
  // Devices have joined: polls those that were never polled.
  void ask_new_devices();
  // Something happened to this device: polls it now or, if a poll is pending, as soon as that is
  // answered. Without threads, the next poll_now() does it.
  void ask_soon(std::size_t slot);
  void poll_now();
  // Whether every device has answered its first poll, or has timed out.
  bool ready() const;
  Result<void> wait_ready(Deadline deadline);

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread timer_;
};

}  // namespace berth::pool
