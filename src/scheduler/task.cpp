#include "berth/task.hpp"

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "scheduler/lanes.hpp"
#include "scheduler/scheduler_state.hpp"

namespace berth::detail {

Error thrown_error(const char* what) {
  return {ErrorCode::work_failed, what ? std::string("the work threw an exception: ") + what
                                       : std::string("the work threw something that is not a std::exception")};
}

constinit TaskState::AfterTheEnd TaskState::after_the_end;

// A thread that waits for the end of the task.
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
  if (!woke_a_thread.load(std::memory_order_relaxed) && scheduler::poll_briefly([&] { return has_ended(); }))
    return true;
  Sleeper sleeper;
  if (!notify(sleeper)) return true;
  std::unique_lock lock(sleeper.mutex);
  while (!sleeper.ended) {
    if (deadline.passed(clock->now())) {
      if (forget(sleeper)) return false;
      deadline = {};  // it is about to be notified
    }
    clock->wait_until(sleeper.changed, lock, deadline.at);
  }
  return true;
}

void TaskState::end() noexcept {
  Continuation* const continuation = continuation_.exchange(&after_the_end, std::memory_order_acq_rel);
  if (!continuation) return;
  // Tasks that end because this one has ended are notified afterwards, not recursively, because a chain may be long.
  thread_local std::vector<Continuation*>* to_notify = nullptr;
  if (to_notify) return to_notify->push_back(continuation);
  std::vector<Continuation*> following;
  to_notify = &following;
  continuation->task_ended();
  for (std::size_t i = 0; i < following.size(); ++i) following[i]->task_ended();
  to_notify = nullptr;
}

}  // namespace berth::detail

void berth::scheduler::Job::cancel() noexcept {
  cancel_requested.store(true, std::memory_order_relaxed);
  if (claim(Stage::ending)) SchedulerState::withdraw(*this, withdrawn_error({}));
}
