// RetryBudget: limits how much work may be repeated on another device. If many devices fail at once,
// repeating everything would double the load on the rest: in any second, ten pieces of work and a
// fifth of those that the pool dispatched in that time may be repeated.
#pragma once

#include <cstdint>
#include <mutex>

#include "berth/clock.hpp"

namespace berth::scheduler {

class RetryBudget {
 public:
  static constexpr Duration window = std::chrono::seconds(1);
  static constexpr std::uint64_t always = 10;

  // `dispatched` returns the number of pieces dispatched so far.
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
