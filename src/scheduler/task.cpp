#include "berth/task.hpp"

#include <condition_variable>
#include <mutex>
#include <string>

#include "scheduler/lanes.hpp"
#include "scheduler/scheduler_state.hpp"

namespace berth::detail {

Error thrown_error(const char* what) {
  return {ErrorCode::work_failed, what ? std::string("the work threw an exception: ") + what
                                       : std::string("the work threw something that is not a std::exception")};
}

constinit TaskState::AfterTheEnd TaskState::after_the_end;

// A thread that waits for the end.
class TaskState::Sleeper final : public Continuation {
 public:
  void task_ended() noexcept override {
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_one();
  }
  std::mutex mutex;  // guards `ended`
  std::condition_variable changed;
  bool ended = false;
};

bool TaskState::wait(Deadline deadline) {
  if (!woke_a_thread && scheduler::poll_briefly([&] { return has_ended(); })) return true;
  Sleeper sleeper;
  if (!notify(sleeper)) return true;
  std::unique_lock lock(sleeper.mutex);
  while (!sleeper.ended) {
    if (deadline.passed(clock->now())) {
      Continuation* expected = &sleeper;
      if (continuation_.compare_exchange_strong(expected, nullptr)) return false;
      deadline = {};  // it is about to be told
    }
    clock->wait_until(sleeper.changed, lock, deadline.at);
  }
  return true;
}

void TaskState::end() noexcept {
  Continuation* const continuation = continuation_.exchange(&after_the_end, std::memory_order_acq_rel);
  if (continuation) continuation->task_ended();
}

void Job::cancel() noexcept {
  cancel_requested.store(true, std::memory_order_relaxed);
  // A job that still waits keeps its scheduler alive.
  if (claim(Stage::ending)) scheduler->withdraw(*this, scheduler::withdrawn_error({}));
}

}  // namespace berth::detail
