// FakeClock: virtual time for tests and simulations.
// Time moves only by advance(). With Sleepers::advance, a sleep moves it to its
// wake-up time (for single-threaded programs, where no other thread could).
#pragma once

#include "berth/version.hpp"

#include <atomic>

#include "berth/clock.hpp"

namespace berth {

class FakeClock final : public Clock {
 public:
  enum class Sleepers { block, advance };
  explicit FakeClock(Sleepers sleepers = Sleepers::advance) : sleepers_(sleepers) {}

  TimePoint now() const noexcept override { return TimePoint(Duration(now_ns_.load(std::memory_order_acquire))); }
  void sleep_until(TimePoint when) override;
  // Returns true at once if notified; otherwise advances to `when` (advance), or
  // wakes up spuriously every real millisecond (block), so that neither an
  // advance() nor a notification just before the wait is missed.
  bool wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, TimePoint when) override;

  void advance(Duration duration) { advance_to(now() + duration); }
  // Never moves backwards.
  void advance_to(TimePoint when);

 private:
  const Sleepers sleepers_;
  std::atomic<std::int64_t> now_ns_{0};
  std::mutex mutex_;  // guards nothing but the sleepers' wake-up
  std::condition_variable moved_;
};

}  // namespace berth
