// SchedulerState: the lanes of every device, and the path of a piece of work through it: acquire a
// device, take a place in its queue, run on a lane or inline, settle, end.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "berth/scheduler.hpp"
#include "scheduler/kernel_cache.hpp"
#include "scheduler/lanes.hpp"
#include "scheduler/retry_budget.hpp"
#include "scheduler/tenants.hpp"
#include "scheduler/timer.hpp"

namespace berth::scheduler {

class SchedulerState {
 public:
  SchedulerState(const Pool& pool, SchedulerOptions options, const Policy& policy);
  // Cancels waiting work and finishes running work.
  ~SchedulerState();
  SchedulerState(const SchedulerState&) = delete;
  SchedulerState& operator=(const SchedulerState&) = delete;

  // The lanes of every device that is usable now.
  Result<void> start_lanes();

  Result<void> run_inline(const TaskOptions& options, detail::ClosureRef closure, DeviceId& device);
  // Queues a new job; one that cannot be queued ends with the reason.
  void enqueue(Job& job, const TaskOptions& options);
  // The same with a lease that the caller has acquired; after an error, the caller still owns the
  // job. `kept`: the same options, for the job to keep; null: it copies what it needs.
  Result<void> enqueue(Job& job, const TaskOptions& options, Lease lease, std::unique_ptr<TaskOptions> kept = nullptr);
  void run_batch(const detail::Batch& batch);
  // Runs a job that the calling lane has claimed, to its end or into another queue.
  void run_job(Job& job);
  // Ends the job at its deadline if it is still waiting then; the watch lasts until the job has ended.
  void watch_deadline(Job& job);
  // Ends a job that the caller claimed while it waited.
  static void withdraw(Job& job, Error error) noexcept;
  // Ends a job that the caller owns.
  void end(Job& job, std::optional<Error> error) noexcept;

  // Adds to the requirements of a piece of work what its kernels need from a device; returns an
  // error if no device qualifies.
  std::optional<Error> limit(TaskOptions& options) const {
    return kernels_.limit(options.requirements, options.kernels);
  }
  // Whether this process was forked from the one that created the scheduler, and so has no lanes.
  bool is_of_another_process() const noexcept;
  Result<Lease> acquire(const Requirements& requirements) const { return pool_.acquire(requirements, policy()); }
  KernelCache& kernels() noexcept { return kernels_; }
  const DeviceLanes* lanes_at(std::size_t slot) const noexcept { return lanes_[slot].load(std::memory_order_acquire); }

  // Whether the caller is a lane or the timer.
  bool is_on_own_thread() const noexcept { return on_thread_of(this); }

  bool is_stopping() const noexcept { return stopping_.load(std::memory_order_relaxed); }

  const Pool& pool() const noexcept { return pool_; }
  const Policy& policy() const noexcept { return *policy_.load(std::memory_order_acquire); }
  void set_policy(const Policy& policy) noexcept { policy_.store(&policy, std::memory_order_release); }
  Clock& clock() const noexcept { return clock_; }
  Timer& timer() noexcept { return timer_; }
  Tenants& tenants() noexcept { return tenants_; }

 private:
  void set_owner(Job& job) noexcept;
  Result<void> try_enqueue(Job& job, const TaskOptions& given);
  void forget_deadline(Job& job) noexcept;
  std::vector<DeviceLanes*> made_lanes() const;
  DeviceLanes& make_lanes(std::size_t slot, const DeviceInfo& info);
  DeviceLanes& lanes_of(const Lease& lease);
  Result<void> run_inline(Lease lease, const TaskOptions& options, detail::ClosureRef closure, DeviceId& device);
  // The first device for a piece of work. `limited` receives its options including what its kernels
  // need, and stays empty for work without kernels.
  Result<Lease> acquire_for(const TaskOptions& given, std::unique_ptr<TaskOptions>& limited);
  // A device for work that failed on another, which it avoids from now on; empty if there is none, or
  // if started work must not be repeated now.
  std::optional<Lease> acquire_another(Requirements& requirements, Deadline deadline, const DeviceId& failed,
                                       bool begun);
  // A piece of work on one device.
  struct Attempt {
    Priority priority;
    Deadline deadline;
    const std::atomic<bool>* cancelled;  // null: only by `stop`
    const std::stop_token& stop;
    std::span<const Kernel> kernels;
    bool may_decline;
    bool begun = false;  // the closure was called
    bool may_repeat(const Error& error, bool may_run_twice) const;
    std::optional<Error> end_before_begin(const DeviceId& device, TimePoint now) const;
  };
  // Loads the kernels, runs the closure on the lease, waits for the work that it enqueued, and settles.
  Result<void> run_on(Lease& lease, DeviceLanes& lanes, Attempt& attempt, detail::ClosureRef closure);
  // Puts a job into the queue of its lease's device, in which it already has a place.
  void place(Job& job, DeviceLanes& lanes, Lease lease);

  const Pool pool_;
  const SchedulerOptions options_;
  std::atomic<const Policy*> policy_;
  Clock& clock_;
  std::mutex mutex_;                                    // guards the creation of lanes
  std::unique_ptr<std::atomic<DeviceLanes*>[]> lanes_;  // by slot of the board
  std::atomic<bool> stopping_{false};
  std::uint32_t forks_ = 0;  // fork count of this process when the scheduler was created
  Tenants tenants_;
  Timer timer_;
  KernelCache kernels_;
  RetryBudget retries_;

  std::atomic<std::uint32_t> withdrawing_{0};  // threads in withdraw
};

// The error of work that ended before it started.
Error late_error(const DeviceId& device);
Error withdrawn_error(const DeviceId& device);

}  // namespace berth::scheduler
