// Timeline: virtual time and scheduled events. Single-threaded; events at the same time run in the order in which
// they were scheduled, so that a seed always gives the same run. An event may itself advance the timeline: this is
// how one process stalls while the others continue.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "berth/fake_clock.hpp"

namespace berth::simulate {

class Timeline {
 public:
  TimePoint now{};
  FakeClock clock;  // shows `now`, for code that needs a Clock

  void at(TimePoint when, std::function<void()> what) {
    events_.emplace(std::pair(when < now ? now : when, next_++), std::move(what));
  }
  void after(Duration delay, std::function<void()> what) { at(now + delay, std::move(what)); }

  void run_until(TimePoint end) {
    while (!events_.empty() && events_.begin()->first.first <= end) {
      const auto first = events_.begin();
      move_to(first->first.first);
      const std::function<void()> what = std::move(first->second);
      events_.erase(first);
      what();
    }
    move_to(end);
  }

 private:
  void move_to(TimePoint when) {
    now = when < now ? now : when;
    clock.advance_to(now);
  }

  std::map<std::pair<TimePoint, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t next_ = 0;
};

}  // namespace berth::simulate
