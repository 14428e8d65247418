#include "scheduler/fair_queue.hpp"

#include <algorithm>

namespace berth::scheduler {

void FairQueue::push(Job& job) {
  const auto tenant = static_cast<std::size_t>(job.tenant);
  if (tenant >= lines_.size()) lines_.resize(tenant + 1);
  Line& line = lines_[tenant];
  if (line.queue.empty()) {
    line.start = std::max(line.start, now_);
    backlogged_.push_back(tenant);
  }
  line.queue.push(job);
}

Job* FairQueue::pop() noexcept {
  if (backlogged_.empty()) return nullptr;
  // Ties go to the tenant that was created first.
  const auto next = std::min_element(backlogged_.begin(), backlogged_.end(), [&](std::size_t a, std::size_t b) {
    return lines_[a].start != lines_[b].start ? lines_[a].start < lines_[b].start : a < b;
  });
  Line& line = lines_[*next];
  Job* const job = line.queue.pop();
  now_ = line.start;
  line.start += job->cost / weight_(job->tenant);
  if (line.queue.empty()) backlogged_.erase(next);
  return job;
}

void FairQueue::erase(Job& job) noexcept {
  const auto tenant = static_cast<std::size_t>(job.tenant);
  lines_[tenant].queue.erase(job);
  if (lines_[tenant].queue.empty()) std::erase(backlogged_, tenant);
}

}  // namespace berth::scheduler
