#include "scheduler/waiting_queue.hpp"

namespace berth::scheduler {

bool WaitingQueue::Earlier::operator()(const Job* a, const Job* b) const noexcept {
  if (a->deadline.at != b->deadline.at) return a->deadline.at < b->deadline.at;
  return a->arrival < b->arrival;
}

std::size_t WaitingQueue::level_of(const Job& job) noexcept {
  return static_cast<std::size_t>(Priority::high) - static_cast<std::size_t>(job.priority);
}

void WaitingQueue::push(Job& job) {
  Level& level = levels_[level_of(job)];
  job.arrival = arrivals_++;
  if (job.deadline.at != TimePoint::max()) level.urgent.insert(&job);
  job.next = nullptr;
  job.previous = level.last;
  (level.last ? level.last->next : level.first) = &job;
  level.last = &job;
  job.linked = true;
}

void WaitingQueue::erase(Job& job) noexcept {
  Level& level = levels_[level_of(job)];
  if (job.deadline.at != TimePoint::max()) level.urgent.erase(&job);
  (job.previous ? job.previous->next : level.first) = job.next;
  (job.next ? job.next->previous : level.last) = job.previous;
  job.linked = false;
}

Job* WaitingQueue::pop() noexcept {
  Job* next = nullptr;
  Job* oldest = nullptr;
  for (const Level& level : levels_) {
    if (!level.first) continue;
    if (!next) next = level.urgent.empty() ? level.first : *level.urgent.begin();
    if (!oldest || level.first->arrival < oldest->arrival) oldest = level.first;
  }
  if (!next) return nullptr;
  if (next != oldest && skips_ == skips_max) next = oldest;
  skips_ = next == oldest ? 0 : skips_ + 1;
  erase(*next);
  return next;
}

bool WaitingQueue::empty() const noexcept {
  for (const Level& level : levels_)
    if (level.first) return false;
  return true;
}

}  // namespace berth::scheduler
