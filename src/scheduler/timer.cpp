#include "scheduler/timer.hpp"

#include <system_error>

namespace berth::scheduler {

void Timer::call_at(TimePoint when, const void* key, std::function<void()> function) {
  const std::lock_guard lock(mutex_);
  const auto [place, added] = functions_.try_emplace(std::pair(when, key), std::move(function));
  if (!added) return;
  try {
    if (!thread_.joinable() && !stopping_) thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error&) {
    // Without a thread, the deadline is checked only when it is the work's turn.
  }
  if (place == functions_.begin()) changed_.notify_one();
}

void Timer::remove(TimePoint when, const void* key) noexcept {
  decltype(functions_)::node_type removed;  // destroyed after the lock is released, because it may call back
  const std::lock_guard lock(mutex_);
  removed = functions_.extract({when, key});
}

void Timer::serve() {
  begin_();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (functions_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto next = functions_.begin();
    if (const TimePoint when = next->first.first; !Deadline{when}.passed(clock_.now())) {
      clock_.wait_until(changed_, lock, when);
      continue;
    }
    std::function<void()> function = std::move(next->second);
    functions_.erase(next);
    lock.unlock();
    function();
    function = nullptr;
    lock.lock();
  }
}

void Timer::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace berth::scheduler
