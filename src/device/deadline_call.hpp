// Calls to drivers that may be slow or never return, each on its own thread. A thread that hangs in
// a driver is abandoned, even when the program ends.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "berth/clock.hpp"
#include "berth/result.hpp"

namespace berth::device {

// Runs `work` on a detached thread. False: the process cannot start another thread.
bool start_detached(std::function<void()> work);
// The threads of start_detached that have not finished.
std::size_t detached_threads() noexcept;

// A call that is started by the constructor and waited for with a deadline.
template <class T>
class DeadlineCall {
 public:
  // `late` is the error of wait() when the deadline passes first.
  DeadlineCall(std::function<Result<T>()> call, Error late) : late_(std::move(late)) {
    const bool started = start_detached([state = state_, call = std::move(call)]() mutable {
      Result<T> result = call();
      call = nullptr;  // release what it owns before the answer
      const std::lock_guard lock(state->mutex);
      state->result = std::move(result);
      state->finished.notify_all();
    });
    if (!started) late_.message = "the process cannot start another thread to call the driver";
  }
  Result<T> wait(Deadline deadline) {
    std::unique_lock lock(state_->mutex);
    while (!state_->result && !deadline.passed(real_clock().now()))
      real_clock().wait_until(state_->finished, lock, deadline.at);
    if (state_->result) return *std::move(state_->result);
    return late_;
  }

 private:
  struct State {
    std::mutex mutex;  // guards result
    std::condition_variable finished;
    std::optional<Result<T>> result;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  Error late_;
};

}  // namespace berth::device
