// WaitingLine: requests that wait for a device, by priority and then in order of arrival. A request
// that cannot be satisfied yet does not delay those behind it.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "berth/pool.hpp"

namespace berth::pool {

// How an attempt to charge a device ended.
struct Attempt {
  // `unclaimed`: the pool's claim for these bytes of the device must grow first.
  enum Kind : std::uint8_t { charged, lost, none_eligible, full, unclaimed } kind = none_eligible;
  std::size_t slot = 0;
  std::uint64_t bytes = 0;
};

struct Waiter {
  const Policy& policy;
  const Requirements& requirements;
  Ticket ticket = 0;
  Lease lease = {};
  Attempt last = {};
  std::condition_variable ready = {};

  // Its own thread continues, with the lease or by enlarging the pool's claim.
  bool is_ready() const { return last.kind == Attempt::charged || last.kind == Attempt::unclaimed; }
  Priority priority() const { return requirements.priority.value_or(Priority::normal); }
};

class WaitingLine {
 public:
  // Needs no lock. Whether a release must be offered to the line.
  bool is_empty(std::memory_order order = std::memory_order_seq_cst) const noexcept { return count_.load(order) == 0; }
  std::size_t size() const noexcept { return count_.load(std::memory_order_relaxed); }

  // A place in the line, until the end of the scope. `lock` is the board's; it is held when the
  // place is taken.
  class Place {
   public:
    Place(WaitingLine& line, Waiter& waiter, std::unique_lock<std::mutex>& lock)
        : line_(line), waiter_(waiter), lock_(lock) {
      const auto after = [](const Waiter* a, const Waiter* b) { return a->priority() > b->priority(); };
      auto& waiters = line.waiters_;
      waiters.insert(std::upper_bound(waiters.begin(), waiters.end(), &waiter, after), &waiter);
      // If a release does not see this count, the following attempt sees the release, and vice
      // versa.
      line.count_.fetch_add(1);
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    ~Place() {
      if (!lock_.owns_lock()) lock_.lock();
      line_.count_.fetch_sub(1, std::memory_order_relaxed);
      line_.waiters_.erase(std::find(line_.waiters_.begin(), line_.waiters_.end(), &waiter_));
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    WaitingLine& line_;
    Waiter& waiter_;
    std::unique_lock<std::mutex>& lock_;
  };

  // Calls attempt(waiter) in order for those that are not ready, and wakes those that are
  // afterwards. The board's lock must be held.
  template <class Try>
  void serve(Try attempt) {
    for (Waiter* waiter : waiters_) {
      if (waiter->is_ready()) continue;
      waiter->last = attempt(*waiter);
      if (waiter->is_ready()) waiter->ready.notify_one();
    }
  }

 private:
  std::vector<Waiter*> waiters_;
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace berth::pool
