// Timeline: virtual time and what is to happen when. One thread; what falls on one moment happens in the order in
// which it was planned, so that a seed always gives the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "berth/clock.hpp"

namespace berth::simulate {

class Timeline {
 public:
  TimePoint now{};

  void at(TimePoint when, std::function<void()> what) {
    events_.emplace(std::pair(when < now ? now : when, next_++), std::move(what));
  }
  void after(Duration delay, std::function<void()> what) { at(now + delay, std::move(what)); }

  void run_until(TimePoint end) {
    while (!events_.empty() && events_.begin()->first.first <= end) {
      const auto first = events_.begin();
      now = first->first.first;
      const std::function<void()> what = std::move(first->second);
      events_.erase(first);
      what();
    }
    now = end;
  }

 private:
  std::map<std::pair<TimePoint, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t next_ = 0;
};

}  // namespace berth::simulate
