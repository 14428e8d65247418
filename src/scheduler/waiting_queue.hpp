// WaitingQueue: which of the jobs that wait for one device is next. Higher priority first, then the
// earlier deadline (work without one after work with one), then the earlier arrival. In strict
// order, a steady stream of high-priority work would starve low-priority work. So the job that has
// waited longest is overtaken at most seven times in a row, and then gets its turn.
//
// Not thread-safe; owns nothing. Allocates only for jobs with a deadline.
#pragma once

#include <array>
#include <set>

#include "scheduler/job.hpp"

namespace berth::scheduler {

class WaitingQueue {
 public:
  void push(Job& job);
  // Removes and returns the next job; nullptr if there is none.
  Job* pop() noexcept;
  // Precondition: the job is in the queue.
  void erase(Job& job) noexcept;
  bool empty() const noexcept;

 private:
  // One turn in eight: low-priority work gets at least an eighth of the device's pace, and
  // high-priority work loses at most an eighth.
  static constexpr unsigned skips_max = 7;

  struct Earlier {
    bool operator()(const Job* a, const Job* b) const noexcept;
  };
  struct Level {
    Job* first = nullptr;  // first of all jobs of this priority, in order of arrival
    Job* last = nullptr;
    std::set<Job*, Earlier> urgent;  // those with a deadline
  };
  static std::size_t level_of(const Job& job) noexcept;

  std::array<Level, 3> levels_;  // highest priority first
  std::uint64_t arrivals_ = 0;
  unsigned skips_ = 0;
};

}  // namespace berth::scheduler
