// Task: a submitted piece of work, and its future result. Wait for it (get), check whether it has
// ended (ready), continue when it has (then, co_await), or cancel it (cancel). Only get blocks, so
// an event loop can use the rest.
//
// A continuation (then, co_await) runs on the thread that ends the work: a lane of a device, the
// thread that cancels it, or at once on the caller's own thread if the work has ended or was refused.
// It should pass longer work to the caller's own loop or to the scheduler, and must not block.
#pragma once

#include "berth/version.hpp"

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "berth/clock.hpp"
#include "berth/ids.hpp"
#include "berth/result.hpp"

namespace berth {

template <class T>
class Task;

// The value of work that returns none.
struct NoValue {
  friend bool operator==(NoValue, NoValue) = default;
};

// The value of the work, and where it ran.
template <class T>
struct TaskResult {
  T value;
  DeviceId device;
};

namespace detail {

// The final value type of a closure, without Result or Task.
template <class T>
struct ValueOf {
  using type = T;
};
template <>
struct ValueOf<void> {
  using type = NoValue;
};
template <class T>
struct ValueOf<Result<T>> : ValueOf<T> {};
template <class T>
struct ValueOf<Task<T>> : ValueOf<T> {};
template <class F, class... Arguments>
using returned_t = std::remove_cvref_t<std::invoke_result_t<F, Arguments...>>;

// The error of a closure that threw.
Error thrown_error(const char* what);

// Calls f(arguments...) and keeps its value; an exception becomes work_failed.
template <class Value, class F, class... Arguments>
Result<void> call_into(std::optional<Value>& value, F& f, Arguments&&... arguments) {
  using Returned = returned_t<F&, Arguments...>;
  try {
    if constexpr (std::is_void_v<Returned>) {
      std::invoke(f, std::forward<Arguments>(arguments)...);
      value.emplace();
    } else if constexpr (std::is_same_v<Returned, Result<void>>) {
      Result<void> returned = std::invoke(f, std::forward<Arguments>(arguments)...);
      if (!returned) return returned;
      value.emplace();
    } else if constexpr (std::is_same_v<Returned, Result<Value>>) {
      Result<Value> returned = std::invoke(f, std::forward<Arguments>(arguments)...);
      if (!returned) return std::move(returned).error();
      value.emplace(std::move(returned).value());
    } else {
      value.emplace(std::invoke(f, std::forward<Arguments>(arguments)...));
    }
    return {};
  } catch (const std::exception& thrown) {
    return thrown_error(thrown.what());
  } catch (...) {
    return thrown_error(nullptr);
  }
}

// Notified that a piece of work has ended, once, on the thread that ended it.
class Continuation {
 public:
  virtual void task_ended() noexcept = 0;

 protected:
  ~Continuation() = default;
};

// The end of a piece of work, shared by its handle and the thread that runs it.
class TaskState {
 public:
  TaskState(const TaskState&) = delete;
  TaskState& operator=(const TaskState&) = delete;

  void hold() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  // For a caller that may no longer have a reference: false if none are left.
  bool try_hold() noexcept {
    std::uint32_t held = references_.load(std::memory_order_relaxed);
    while (held != 0)
      if (references_.compare_exchange_weak(held, held + 1, std::memory_order_relaxed)) return true;
    return false;
  }
  void drop() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  bool has_ended() const noexcept { return continuation_.load(std::memory_order_acquire) == &after_the_end; }
  // False if the deadline came first.
  bool wait(Deadline deadline);
  // Registers the continuation; false if the work has already ended. At most one at a time.
  bool notify(Continuation& continuation) noexcept {
    Continuation* none = nullptr;
    return continuation_.compare_exchange_strong(none, &continuation, std::memory_order_acq_rel);
  }
  // Unregisters the continuation; false if it has been notified, or is being notified now.
  bool forget(Continuation& continuation) noexcept {
    Continuation* expected = &continuation;
    return continuation_.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel);
  }
  virtual void cancel() noexcept = 0;

  // How the work ended, and where it last ran; to be read only after the end.
  std::optional<Error> error;
  DeviceId device;
  Clock* clock = &real_clock();  // by which its waiters measure time
  // A thread had to be woken for this work. That takes longer than a waiter spins, and a spinning
  // waiter may keep the woken thread off its processor.
  std::atomic<bool> woke_a_thread{false};

 protected:
  // `references`: how many references exist from the beginning.
  explicit TaskState(std::uint32_t references) noexcept : references_(references) {}
  virtual ~TaskState() = default;
  // Called when everything above is final; the last call of the owner, except for drop().
  void end() noexcept;

 private:
  class Sleeper;
  class AfterTheEnd final : public Continuation {
    void task_ended() noexcept override {}
  };
  static AfterTheEnd after_the_end;  // in place of a continuation: it has ended

  std::atomic<std::uint32_t> references_;
  std::atomic<Continuation*> continuation_{nullptr};
};

// The value of a task that has ended.
template <class T>
Result<TaskResult<T>> result_of(TaskState& state, std::optional<T>& value) {
  if (state.error) return *std::move(state.error);
  return TaskResult<T>{*std::move(value), state.device};
}

template <class T>
struct IsTask : std::false_type {};
template <class T>
struct IsTask<Task<T>> : std::true_type {};

template <class T, class F>
class Chained;

}  // namespace detail

// A handle to submitted work, for one thread at a time. Dropping it does not cancel the work. It may
// outlive the scheduler, whose work has all ended by then.
template <class T>
class Task {
 public:
  using value_type = T;

  Task() = default;
  Task(detail::TaskState* state, std::optional<T>* value) noexcept : state_(state), value_(value) {}
  Task(Task&& other) noexcept : state_(std::exchange(other.state_, nullptr)), value_(other.value_) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(value_, other.value_);
    return *this;
  }
  ~Task() {
    if (state_) state_->drop();
  }

  // Blocks until the work has ended; after a timeout the work keeps running. The result can be taken
  // once; a second call returns invalid_argument. Do not call it inside a lane's work, which might
  // wait for its own lane.
  Result<TaskResult<T>> get(Deadline deadline = {}) {
    if (!state_)
      return Error{ErrorCode::invalid_argument, "the result was already taken, or the task is empty", "call get once"};
    if (!state_->wait(deadline))
      return Error{ErrorCode::timeout, "the work has not ended by the deadline of get", "call get again"};
    return take();
  }
  // Whether get would return immediately.
  bool ready() const { return !state_ || state_->has_ended(); }
  // Withdraws work that has not started; running work sees TaskContext::cancelled().
  void cancel() {
    if (!state_) return;
    detail::TaskState& state = *state_;
    state.hold();  // a continuation may drop this handle
    state.cancel();
    state.drop();
  }

  // Calls f(Result<TaskResult<T>>) when the work has ended, immediately if it already has, and
  // returns a task for f's value (if f returns a task, for that task's value). An exception becomes
  // work_failed. If the new task is dropped, f is still called; cancelling the new task cancels this
  // work. Asserts that this task is not empty.
  template <class F>
  auto then(F f) && {
    static_assert(std::is_invocable_v<F&, Result<TaskResult<T>>>,
                  "then takes a function that is callable as f(berth::Result<berth::TaskResult<T>>)");
    BERTH_ASSERT(state_);
    auto* const chained = new detail::Chained<T, F>(std::exchange(state_, nullptr), value_, std::move(f));
    Task<typename detail::Chained<T, F>::Value> task(chained, &chained->value);
    chained->start();
    return task;
  }

  template <class F>
  void then(F) & {
    static_assert(!sizeof(F), "a task is continued once: write std::move(task).then(f)");
  }

  // co_await std::move(task) returns what get would, and blocks no thread.
  auto operator co_await() && {
    struct Awaiter final : detail::Continuation {
      explicit Awaiter(Task awaited) : task(std::move(awaited)) {}
      ~Awaiter() {
        if (suspended && task.state_) task.state_->forget(*this);  // the coroutine was destroyed
      }
      bool await_ready() const { return task.ready(); }
      bool await_suspend(std::coroutine_handle<> coroutine) {
        suspended = coroutine;
        return task.state_->notify(*this);
      }
      Result<TaskResult<T>> await_resume() { return task.get(); }
      void task_ended() noexcept override { suspended.resume(); }
      Task task;
      std::coroutine_handle<> suspended;
    };
    return Awaiter(std::move(*this));
  }
  void operator co_await() & = delete;  // write co_await std::move(task)

 private:
  template <class, class>
  friend class detail::Chained;

  Result<TaskResult<T>> take() {
    Result<TaskResult<T>> result = detail::result_of(*state_, *value_);
    std::exchange(state_, nullptr)->drop();
    return result;
  }

  detail::TaskState* state_ = nullptr;
  std::optional<T>* value_ = nullptr;
};

namespace detail {

// The task that Task::then gives: it follows one task, and a second one if f returns one.
template <class T, class F>
class Chained final : public TaskState, private Continuation {
  using Returned = returned_t<F&, Result<TaskResult<T>>>;

 public:
  using Value = typename ValueOf<Returned>::type;

  // One reference for the handle, one for the end of the task it follows.
  Chained(TaskState* first, std::optional<T>* first_value, F f)
      : TaskState(2), follows_(first), first_value_(first_value), f_(std::move(f)) {
    clock = first->clock;
  }

  void start() {
    if (!follows_->notify(*this)) task_ended();
  }
  void cancel() noexcept override {
    TaskState* followed = nullptr;
    {
      const std::lock_guard lock(mutex_);
      cancel_requested_ = true;
      followed = follows_;
      if (followed) followed->hold();
    }
    if (!followed) return;
    followed->cancel();
    followed->drop();
  }

  std::optional<Value> value;

 private:
  // Takes the outcome of the task that this one follows, and releases that task, so that a long chain
  // does not pile up.
  template <class V>
  Result<TaskResult<V>> take_result(std::optional<V>& from) {
    Result<TaskResult<V>> result = result_of(*follows_, from);
    TaskState* followed = nullptr;
    {
      const std::lock_guard lock(mutex_);
      followed = std::exchange(follows_, nullptr);
    }
    followed->drop();
    return result;
  }

  void task_ended() noexcept override {
    if (second_value_) return finish(take_result(*second_value_));
    device = follows_->device;
    Result<TaskResult<T>> first = take_result(*first_value_);
    if constexpr (IsTask<Returned>::value) {
      std::optional<Returned> task;
      if (Result<void> called = call_into(task, f_, std::move(first)); !called)
        return finish(std::move(called).error());
      follow(*std::move(task));
    } else {
      Result<void> called = call_into(value, f_, std::move(first));
      if (!called) error = std::move(called).error();
      end();
      drop();
    }
  }
  void follow(Task<Value> second) {
    if (!second.state_)
      return finish(Error{ErrorCode::invalid_argument, "the function given to then returned an empty task",
                          "return a task whose result was not taken"});
    second_value_ = second.value_;
    TaskState* const followed = std::exchange(second.state_, nullptr);
    bool cancel = false;
    {
      const std::lock_guard lock(mutex_);
      follows_ = followed;
      cancel = cancel_requested_;
    }
    if (cancel) followed->cancel();
    if (!followed->notify(*this)) task_ended();
  }
  void finish(Result<TaskResult<Value>> result) noexcept {
    if (result) {
      device = result->device;
      value = std::move(result->value);
    } else {
      error = std::move(result).error();
    }
    end();
    drop();
  }

  std::mutex mutex_;    // guards the next two against cancel()
  TaskState* follows_;  // null: it has ended
  bool cancel_requested_ = false;
  std::optional<T>* const first_value_;
  F f_;
  std::optional<Value>* second_value_ = nullptr;  // null: it still follows the first
};

}  // namespace detail
}  // namespace berth
