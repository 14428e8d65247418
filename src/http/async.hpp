// Coroutines of an event loop. An Async<T> is a piece of work that waits for sockets, timers and other pieces without
// blocking the loop's thread: `const T value = co_await piece();`. It begins when it is awaited, on the loop's
// thread, and everything in it runs there. Running starts one that nothing awaits. No header of Asio is needed to
// write one.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace berth::http {

template <class T = void>
class Async;

namespace detail {

struct AsyncPromiseOf {
  std::coroutine_handle<> awaiting = nullptr;
  std::exception_ptr exception = nullptr;
  // True inside the resume() that started it: a piece that ends there returns to its awaiter instead of resuming
  // it, so that a loop over pieces that never wait does not use up the stack.
  bool is_beginning = false;

  std::suspend_always initial_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { exception = std::current_exception(); }

  struct End {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      const AsyncPromiseOf& promise = self.promise();
      if (promise.is_beginning || !promise.awaiting) return std::noop_coroutine();
      return promise.awaiting;
    }
    void await_resume() const noexcept {}
  };
  End final_suspend() noexcept { return {}; }
};

template <class T>
struct AsyncPromise : AsyncPromiseOf {
  Async<T> get_return_object() noexcept;
  template <class Value>
  void return_value(Value&& value) {
    result.emplace(std::forward<Value>(value));
  }
  T take() { return std::move(*result); }
  std::optional<T> result;
};

template <>
struct AsyncPromise<void> : AsyncPromiseOf {
  Async<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void take() const noexcept {}
};

}  // namespace detail

template <class T>
class [[nodiscard]] Async {
 public:
  using promise_type = detail::AsyncPromise<T>;

  explicit Async(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
  Async(Async&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  Async& operator=(Async&&) = delete;
  ~Async() {
    if (frame_) frame_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> awaiting) noexcept {
    promise_type& promise = frame_.promise();
    promise.awaiting = awaiting;
    promise.is_beginning = true;
    frame_.resume();
    if (frame_.done()) return false;
    promise.is_beginning = false;
    return true;
  }
  T await_resume() {
    if (frame_.promise().exception) std::rethrow_exception(frame_.promise().exception);
    return frame_.promise().take();
  }

 private:
  friend class Running;
  struct AtEnd {
    std::coroutine_handle<promise_type> frame;
    bool await_ready() const noexcept { return frame.done(); }
    void await_suspend(std::coroutine_handle<> awaiting) const noexcept { frame.promise().awaiting = awaiting; }
    void await_resume() const noexcept {}
  };
  void begin() { frame_.resume(); }
  bool is_done() const noexcept { return frame_.done(); }
  AtEnd end() const noexcept { return {frame_}; }

  std::coroutine_handle<promise_type> frame_;
};

namespace detail {

template <class T>
Async<T> AsyncPromise<T>::get_return_object() noexcept {
  return Async<T>(std::coroutine_handle<AsyncPromise<T>>::from_promise(*this));
}
inline Async<void> AsyncPromise<void>::get_return_object() noexcept {
  return Async<void>(std::coroutine_handle<AsyncPromise<void>>::from_promise(*this));
}

}  // namespace detail

// Work that nothing awaits: it starts at once, on the loop's thread, and belongs to this object. It must have ended
// before this object is destroyed, unless the loop never runs again: what it waits for would otherwise resume a
// destroyed coroutine.
class Running {
 public:
  explicit Running(Async<void> work) : work_(std::move(work)) { work_.begin(); }

  bool is_done() const noexcept { return work_.is_done(); }
  // Waits for its end. Call it once.
  Async<void> join() {
    co_await work_.end();
    work_.await_resume();  // rethrows its exception
  }

 private:
  Async<void> work_;
};

}  // namespace berth::http
