// Timer: calls functions at their time. One thread, started with the first function; a call must
// not wait.
#pragma once

#include <atomic>
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
  explicit Timer(Clock& clock) noexcept : clock_(clock) {}
  ~Timer() { stop(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // `key` tells two functions of the same time apart. False: that time has this key already.
  bool call_at(TimePoint when, const void* key, std::function<void()> function);
  // True: it was there, and will not be called.
  bool remove(TimePoint when, const void* key) noexcept;
  bool is_this_thread() const noexcept { return std::this_thread::get_id() == id_.load(std::memory_order_relaxed); }
  // Calls nothing any more.
  void stop() noexcept;

 private:
  void serve();

  Clock& clock_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::map<std::pair<TimePoint, const void*>, std::function<void()>> functions_;
  bool stopping_ = false;
  std::thread thread_;
  std::atomic<std::thread::id> id_{};
};

}  // namespace berth::scheduler
