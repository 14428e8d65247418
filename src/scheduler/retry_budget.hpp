// RetryBudget: how much work may be run once more on another device. When many devices fail at once,
// repeating everything would double the load on those that are left: in any second, ten pieces of work
// and a fifth of those that the pool handed out in that time may be repeated.
#pragma once

#include <cstdint>
#include <mutex>

#include "berth/clock.hpp"

namespace berth::scheduler {

class RetryBudget {
 public:
  static constexpr Duration window = std::chrono::seconds(1);
  static constexpr std::uint64_t always = 10;

  // `dispatched` gives the pieces of work handed out so far.
  template <class Dispatched>
  bool take(TimePoint now, Dispatched dispatched) {
    const std::lock_guard lock(mutex_);
    if (now - begin_ >= window) {
      begin_ = now;
      dispatched_before_ = dispatched();
      taken_ = 0;
    }
    if (taken_ >= always && taken_ - always >= (dispatched() - dispatched_before_) / 5) return false;
    ++taken_;
    return true;
  }

 private:
  std::mutex mutex_;  // guards everything below
  TimePoint begin_{};
  std::uint64_t dispatched_before_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace berth::scheduler
