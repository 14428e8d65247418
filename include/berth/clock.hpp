// Clock: the only way Berth learns the time and the only way it sleeps.
// Monotonic; wall-clock time is only for display (world/wall_time.hpp). Decisions
// never read a clock: they take a TimePoint as data.
#pragma once

#include "berth/version.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace berth {

using Duration = std::chrono::nanoseconds;
// Nanoseconds since an arbitrary start. A separate type, so that no real
// clock's time point converts into it by accident.
struct VirtualTimeTag {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<VirtualTimeTag>;
  static constexpr bool is_steady = true;
};
using TimePoint = VirtualTimeTag::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const noexcept = 0;
  // Blocks the calling thread until `when`.
  virtual void sleep_until(TimePoint when) = 0;
  void sleep_for(Duration duration) { sleep_until(now() + duration); }

  // Waits on `condition` until notified or until `when`; returns false if `when`
  // was reached. `lock` guards the state that the caller checks in its loop.
  virtual bool wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, TimePoint when) = 0;
};

// The steady clock of this machine. Thread-safe.
Clock& real_clock() noexcept;

// A point in time after which an operation gives up. Default: never.
struct Deadline {
  TimePoint at = TimePoint::max();

  static Deadline never() noexcept { return {}; }
  static Deadline after(const Clock& clock, Duration duration) noexcept {
    const TimePoint now = clock.now();
    return {duration >= TimePoint::max() - now ? TimePoint::max() : now + duration};
  }
  bool passed(TimePoint now) const noexcept { return now >= at; }
};

}  // namespace berth
