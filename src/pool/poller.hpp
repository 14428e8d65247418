// Poller: asks every device for its load and brings the answers, and the time,
// to the board. One timer sets the pace. A device may take any time
// to answer: each has at most one question outstanding, on a thread that waits
// for no other device, and the load in an answer later than the deadline is dropped
// (what the driver reported in it is not, it is told only once). A device
// that never answers is left alone, also when the pool goes away.
//
// Without threads (poll = false) it asks on the caller's thread, when told to.
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

  // The board is not used any more. Waits for questions under way, at most for the deadline.
  void stop();
  // Devices have joined: those never asked are asked now.
  void ask_new_devices();
  // Something happened to this one: it is asked now, or (a question is under way)
  // as soon as it has answered. Without threads, by the next poll_now().
  void ask_soon(std::size_t slot);
  void poll_now();
  // Every device has answered its first question, or was given up on.
  bool ready() const;
  Result<void> wait_ready(Deadline deadline);

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread timer_;
};

}  // namespace berth::pool
