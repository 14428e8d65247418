// A flag that several threads set and one waits for.
#pragma once

#include <condition_variable>
#include <mutex>

#include "berth/clock.hpp"

namespace berth::agent {

class Signal {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    condition_.notify_all();
  }
  // Waits until it is set, or until `when`.
  void wait(TimePoint when) {
    std::unique_lock lock(mutex_);
    while (!is_set_ && real_clock().wait_until(condition_, lock, when)) {
    }
    is_set_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool is_set_ = false;
};

}  // namespace berth::agent
