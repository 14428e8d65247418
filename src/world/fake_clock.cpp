#include "berth/fake_clock.hpp"

namespace berth {

void FakeClock::advance_to(TimePoint when) {
  const std::int64_t wanted = when.time_since_epoch().count();
  std::int64_t current = now_ns_.load();
  while (current < wanted && !now_ns_.compare_exchange_weak(current, wanted)) {
  }
  const std::lock_guard lock(mutex_);
  moved_.notify_all();
}

void FakeClock::sleep_until(TimePoint when) {
  if (sleepers_ == Sleepers::advance) return advance_to(when);
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return now() >= when; });
}

bool FakeClock::wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, TimePoint when) {
  if (now() >= when) return false;
  // The real millisecond only bounds how late an advance() from another thread
  // is noticed; it never counts as virtual time.
  constexpr auto real_step = std::chrono::milliseconds(1);
  if (condition.wait_for(lock, real_step) == std::cv_status::no_timeout) return true;
  if (sleepers_ == Sleepers::advance && when != TimePoint::max()) advance_to(when);
  // A notification at the end of the step is lost, so this is a spurious wake-up and the
  // caller checks its condition.
  return now() < when;
}

}  // namespace berth
