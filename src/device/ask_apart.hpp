// Questions to drivers that may be slow, or never answer: each on a thread of its
// own. A thread that is stuck in a driver is left behind, also when the program ends.
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

namespace berth {

// Starts `work` on a thread of its own and does not wait for it. False: this
// process cannot start another thread.
bool run_apart(std::function<void()> work);
// Threads of run_apart that have not come back.
std::size_t threads_under_way() noexcept;

// What `question` answers, or `late` when the deadline comes first.
template <class T>
class Answer {
 public:
  Answer(std::function<Result<T>()> question, Error late) : late_(std::move(late)) {
    const bool started = run_apart([state = state_, question = std::move(question)] {
      Result<T> answer = question();
      const std::lock_guard lock(state->mutex);
      state->answer = std::move(answer);
      state->arrived.notify_all();
    });
    if (!started) late_.message = "there is no thread left to ask with";
  }
  Result<T> wait(Deadline deadline) {
    std::unique_lock lock(state_->mutex);
    while (!state_->answer && !deadline.passed(real_clock().now()))
      real_clock().wait_until(state_->arrived, lock, deadline.at);
    if (state_->answer) return *std::move(state_->answer);
    return late_;
  }

 private:
  struct State {
    std::mutex mutex;  // guards answer
    std::condition_variable arrived;
    std::optional<Result<T>> answer;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  Error late_;
};

}  // namespace berth
