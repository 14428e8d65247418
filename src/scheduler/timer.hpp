// Timer: calls functions at given times. It has one thread, started with the first function; a
// function must not wait.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "berth/clock.hpp"

namespace berth::scheduler {

class Timer {
 public:
  // `begin` is called first on the thread.
  Timer(Clock& clock, std::function<void()> begin) : clock_(clock), begin_(std::move(begin)) {}
  ~Timer() { stop(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // `key` distinguishes functions with the same time; the first one with a time and key stays.
  void call_at(TimePoint when, const void* key, std::function<void()> function);
  // Removes the function: it will not be called, unless the call is already in progress.
  void remove(TimePoint when, const void* key) noexcept;
  // Stops calling functions.
  void stop() noexcept;

 private:
  void serve();

  Clock& clock_;
  const std::function<void()> begin_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::map<std::pair<TimePoint, const void*>, std::function<void()>> functions_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace berth::scheduler
