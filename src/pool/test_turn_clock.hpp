// A clock for tests with threads whose steps come in the same order in each run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "berth/assert.hpp"
#include "berth/clock.hpp"

namespace berth::pool {

// Virtual time in which one thread runs at a time. A call that waits hands over
// to the test, and looks again whenever the test lets all look.
class TurnClock final : public Clock {
 public:
  ~TurnClock() override {
    for (const auto& actor : actors_) {
      hand_to(*actor, true);
      actor->thread.join();
    }
  }

  TimePoint now() const noexcept override { return TimePoint(Duration(now_ns_.load())); }
  void sleep_until(TimePoint) override { BERTH_ASSERT(!"nobody sleeps here"); }
  bool wait_until(std::condition_variable&, std::unique_lock<std::mutex>& lock, TimePoint when) override {
    BERTH_ASSERT(me != nullptr);
    lock.unlock();
    me->wakes_at = when;
    hand_back();
    lock.lock();
    return now() < when;
  }

  // Runs `work` on another thread until it ends or waits.
  void start(std::function<void()> work) {
    for (const auto& actor : actors_) {
      if (actor->work) continue;
      actor->work = std::move(work);
      return hand_to(*actor);
    }
    actors_.push_back(std::make_unique<Actor>());
    Actor& actor = *actors_.back();
    actor.work = std::move(work);
    actor.thread = std::thread([this, &actor] { live(actor); });
    hand_to(actor);
  }
  void let_all_look() {
    for (std::size_t i = 0; i < actors_.size(); ++i) {
      if (actors_[i]->work) hand_to(*actors_[i]);
    }
  }
  // Stops at each time at which a waiting thread wants to be woken.
  void advance(Duration duration, const std::function<void()>& woken) {
    const TimePoint end = now() + duration;
    for (;;) {
      TimePoint next = end;
      for (const auto& actor : actors_) {
        if (actor->work && actor->wakes_at > now()) next = std::min(next, actor->wakes_at);
      }
      now_ns_ = next.time_since_epoch().count();
      let_all_look();
      woken();
      if (next == end) return;
    }
  }

 private:
  struct Actor {
    std::function<void()> work;  // empty: idle
    TimePoint wakes_at = TimePoint::max();
    bool ends = false;
    std::thread thread;
  };

  void live(Actor& actor) {
    me = &actor;
    await([&] { return running_ == &actor; });
    while (!actor.ends) {
      actor.work();
      actor.work = nullptr;
      hand_back();
    }
  }
  void hand_to(Actor& actor, bool ends = false) {
    actor.ends = ends;
    give(&actor);
    if (!ends) await([&] { return running_ == nullptr; });
  }
  void hand_back() {
    Actor* actor = me;
    give(nullptr);
    await([&] { return running_ == actor; });
  }
  void give(Actor* to) {
    const std::lock_guard lock(mutex_);
    running_ = to;
    turned_.notify_all();
  }
  template <class Mine>
  void await(Mine mine) {
    std::unique_lock lock(mutex_);
    turned_.wait(lock, mine);
  }

  static inline thread_local Actor* me = nullptr;
  std::atomic<std::int64_t> now_ns_{0};
  std::vector<std::unique_ptr<Actor>> actors_;
  std::mutex mutex_;  // guards whose turn it is
  std::condition_variable turned_;
  Actor* running_ = nullptr;  // null: the test
};

}  // namespace berth::pool
