// DeviceLanes: the threads that run work on one device, the queue they take it from, and the
// streams they use. Producers push onto a lock-free list, so that submitting work costs one
// exchange; the lanes sort it into the waiting queue under their lock. A lane that finds nothing
// stays awake for a moment before it sleeps, because waking a thread costs more than most work.
//
// A lane is not bound to one Device object: a job brings its lease, so the work of a device that
// has left is finished while the same slot serves its successor.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "scheduler/fair_queue.hpp"
#include "scheduler/job.hpp"
#include "scheduler/poll_briefly.hpp"
#include "scheduler/tenants.hpp"

namespace berth::scheduler {

// A stream, and the device it must not outlive.
struct KeptStream {
  std::shared_ptr<Device> device;  // null: the device has left the pool, and its lease keeps it alive
  std::unique_ptr<Stream> stream;
};

class DeviceLanes {
 public:
  DeviceLanes(SchedulerState& scheduler, std::size_t lanes, std::size_t capacity);
  ~DeviceLanes();

  SchedulerState& scheduler() noexcept { return scheduler_; }
  // How many are running; fewer than requested if the system could not start more threads.
  std::size_t lanes() const noexcept { return threads_.size(); }

  // Takes a place in the queue; false if it is full. A place keeps the lanes alive until leave().
  bool enter(const Job& job) noexcept;
  // Waits for a place; false if the job's deadline or a request to stop came first.
  bool enter_when_possible(const Job& job, const std::stop_token& stop, Clock& clock);
  void leave(TenantId tenant) noexcept;

  void push(Job& job) noexcept;
  // Removes a job from the queue; false if it is not in the queue.
  bool unlink(Job& job) noexcept;
  // Keeps all lanes from starting another job.
  void stop() noexcept;
  void cancel_waiting() noexcept;
  void join() noexcept;
  bool idle() const noexcept;

  // Streams are opened when first needed and kept for the next piece of work.
  Result<KeptStream> borrow_stream(Device& device, Priority priority);
  void return_stream(KeptStream stream);

  // Whether work that uses a stream now is measured: the first sixteen pieces, then one every ten
  // milliseconds. An event at its start keeps copies and kernels of other lanes from overlapping
  // with it: with one per frame, a GPU processes a fifth fewer frames.
  bool measures_next(TimePoint now) noexcept;

  // Pieces of work that share the device at this moment, inline ones included.
  std::atomic<std::uint32_t> running{0};

 private:
  void serve() noexcept;
  Job* next();
  Job* take(std::unique_lock<std::mutex>& lock);
  void sort_inbox();
  bool stay_awake() const noexcept;

  SchedulerState& scheduler_;
  const std::size_t capacity_;  // waiting and running, per tenant

  // What producers write.
  alignas(64) std::atomic<Job*> inbox_{nullptr};                         // last come first
  std::array<std::atomic<std::uint32_t>, Tenants::count_max> places_{};  // taken, by tenant

  std::atomic<std::uint32_t> waiting_for_room_{0};  // producers
  std::mutex room_mutex_;                           // guards nothing but their wake-up
  std::condition_variable room_made_;

  // Tells producers whether a lane must be woken.
  alignas(64) std::atomic<std::uint32_t> parked_{0};
  std::atomic<std::uint32_t> awake_{0};
  std::atomic<bool> stopping_{false};

  alignas(64) std::mutex mutex_;  // guards the queue and the links of the jobs in it
  std::condition_variable pushed_;
  FairQueue queue_;

  std::atomic<std::uint32_t> measured_{0};  // up to sixteen
  std::atomic<TimePoint> measured_at_{};
  std::mutex streams_mutex_;  // guards the idle streams
  std::vector<KeptStream> streams_;
  std::vector<std::thread> threads_;
};

// Whether this thread is a lane or the timer of that scheduler, which may be gone.
bool on_thread_of(const SchedulerState* scheduler) noexcept;
void mark_thread_of(const SchedulerState& scheduler) noexcept;

}  // namespace berth::scheduler
