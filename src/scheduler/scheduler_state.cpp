#include "scheduler/scheduler_state.hpp"

#include <pthread.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "pool/internals.hpp"
#include "scheduler/lane_context.hpp"

namespace berth::scheduler {
namespace {

Error full_error(const DeviceId& device) {
  return {ErrorCode::queue_full, "the queue of the device is full",
          "wait for work to end, raise queue_capacity, or set when_full", device.text()};
}

Error forked_error() {
  return {ErrorCode::not_supported, "the scheduler belongs to the process that forked this one",
          "open a pool and a scheduler in the child"};
}

// How often this process was made by fork() from one that had a scheduler.
std::atomic<std::uint32_t> forks{0};

Error no_thread_error(const DeviceId& device) {
  return {ErrorCode::unavailable, "cannot start a thread for a lane", "raise the limit on threads", device.text()};
}

// Settles the lease on every path; work that does not report its outcome counts as failed.
class Settlement {
 public:
  explicit Settlement(Lease& lease) noexcept : lease_(lease) {}
  ~Settlement() {
    if (cancelled)
      lease_.release();
    else
      lease_.settle(outcome);
  }
  Settlement(const Settlement&) = delete;
  Settlement& operator=(const Settlement&) = delete;

  Outcome outcome{ErrorCode::internal, {}};
  bool cancelled = false;

 private:
  Lease& lease_;
};

// Counts a piece of work as running on its device while this object exists.
class Running {
 public:
  explicit Running(std::atomic<std::uint32_t>& running) noexcept
      : running_(running), at_start_(running.fetch_add(1, std::memory_order_relaxed) + 1) {}
  ~Running() { running_.fetch_sub(1, std::memory_order_relaxed); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // The part of `elapsed` that counts for this work: the device was shared by as many pieces of work as the average of
  // their numbers at the start and now. Without this, a device that runs four pieces at once would look four times
  // slower than it is.
  Duration share(Duration elapsed) const noexcept {
    const std::uint32_t both = at_start_ + running_.load(std::memory_order_relaxed);
    return both == 2 ? elapsed : 2 * elapsed / both;
  }

 private:
  std::atomic<std::uint32_t>& running_;
  const std::uint32_t at_start_;
};

class JobReference {
 public:
  explicit JobReference(Job& job) noexcept : job_(job) { job_.hold(); }
  JobReference(const JobReference& other) noexcept : JobReference(other.job_) {}
  JobReference& operator=(const JobReference&) = delete;
  ~JobReference() { job_.drop(); }
  Job& operator*() const noexcept { return job_; }
  Job* operator->() const noexcept { return &job_; }

 private:
  Job& job_;
};

// Counts the caller while this object exists.
class Counted {
 public:
  explicit Counted(std::atomic<std::uint32_t>& count) noexcept : count_(count) { count_.fetch_add(1); }
  ~Counted() { count_.fetch_sub(1); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::uint32_t>& count_;
};

}  // namespace

Error late_error(const DeviceId& device) {
  return {ErrorCode::timeout, "the deadline passed before the work began", "allow more time or submit less",
          device.text()};
}

Error withdrawn_error(const DeviceId& device) {
  return {ErrorCode::cancelled, "the work was cancelled before it began", "", device.text()};
}

SchedulerState::SchedulerState(const Pool& pool, SchedulerOptions options, const Policy& policy)
    : pool_(pool),
      options_(std::move(options)),
      policy_(&policy),
      clock_(pool.clock()),
      lanes_(std::make_unique<std::atomic<DeviceLanes*>[]>(pool::board_of(pool).capacity())),
      timer_(clock_, [this] { mark_thread_of(*this); }),
      kernels_(pool) {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  forks_ = forks.load(std::memory_order_relaxed);
}

bool SchedulerState::is_of_another_process() const noexcept { return forks.load(std::memory_order_relaxed) != forks_; }

SchedulerState::~SchedulerState() {
  stopping_.store(true);
  timer_.stop();
  // Repeated, because a lane that was just failing may have passed its work to a device that had no lanes.
  std::vector<DeviceLanes*> all;
  do {
    all = made_lanes();
    for (DeviceLanes* lanes : all) lanes->stop();
    for (DeviceLanes* lanes : all) lanes->cancel_waiting();
    for (DeviceLanes* lanes : all) lanes->join();
    for (DeviceLanes* lanes : all) lanes->cancel_waiting();
  } while (made_lanes().size() != all.size());
  // A thread that is just withdrawing its work will leave soon.
  for (DeviceLanes* lanes : all)
    while (!lanes->idle()) std::this_thread::yield();
  while (withdrawing_.load() != 0) std::this_thread::yield();
  for (DeviceLanes* lanes : all) delete lanes;
}

std::vector<DeviceLanes*> SchedulerState::made_lanes() const {
  std::vector<DeviceLanes*> all;
  for (std::size_t slot = 0; slot < pool::board_of(pool_).capacity(); ++slot)
    if (DeviceLanes* lanes = lanes_[slot].load()) all.push_back(lanes);
  return all;
}

Result<void> SchedulerState::start_lanes() {
  for (const pool::Board::Entry& entry : pool::board_of(pool_).entries()) {
    if (entry.device && make_lanes(entry.slot, entry.device->info()).lanes() == 0)
      return no_thread_error(entry.device->id());
  }
  return {};
}

DeviceLanes& SchedulerState::make_lanes(std::size_t slot, const DeviceInfo& info) {
  const std::lock_guard lock(mutex_);
  if (DeviceLanes* made = lanes_[slot].load(std::memory_order_relaxed)) return *made;
  const std::size_t count = options_.lanes_per_device.value_or(std::max<std::size_t>(1, info.concurrency));
  auto* made = new DeviceLanes(*this, count, options_.queue_capacity);
  lanes_[slot].store(made, std::memory_order_release);
  return *made;
}

DeviceLanes& SchedulerState::lanes_of(const Lease& lease) {
  if (DeviceLanes* made = lanes_[lease.slot()].load(std::memory_order_acquire)) return *made;
  return make_lanes(lease.slot(), lease.device().info());
}

// --- running ----------------------------------------------------------------

Result<Stream*> LaneContext::stream() {
  if (!used_stream()) {
    Result<KeptStream> opened = lanes_.borrow_stream(device_, priority_);
    if (!opened) return std::move(opened).error();
    stream_ = std::move(opened).value();
    measured_ = lanes_.measures_next(lanes_.scheduler().clock().now());
    if (measured_)
      if (Result<std::shared_ptr<Event>> begun = stream_.stream->record()) begun_ = std::move(begun).value();
  }
  return stream_.stream.get();
}

bool LaneContext::cancelled() const noexcept {
  return (cancelled_ && cancelled_->load(std::memory_order_relaxed)) || stop_.stop_requested() ||
         lanes_.scheduler().is_stopping() ||
         (deadline_.at != TimePoint::max() && deadline_.passed(lanes_.scheduler().clock().now()));
}

void LaneContext::restart_measurement() noexcept { start_ = lanes_.scheduler().clock().now(); }

Result<std::shared_ptr<LoadedKernel>> LaneContext::load(const Kernel& kernel) {
  return lanes_.scheduler().kernels().load(kernel, device_);
}

Result<std::optional<Duration>> LaneContext::drain() {
  Result<std::shared_ptr<Event>> end = stream_.stream->record();
  if (!end) return std::move(end).error();
  if (Result<void> done = (*end)->wait(deadline_); !done) return std::move(done).error();
  std::optional<Duration> busy;
  if (begun_)
    if (const Result<Duration> measured = (*end)->since(*begun_)) busy = *measured;
  begun_.reset();
  // A stream that failed or still has work on it is not reused.
  lanes_.return_stream(std::move(stream_));
  return busy;
}

// Work that has not started may go elsewhere, unless it is late or cancelled. Started work may do
// so if it may run twice and its device failed.
bool SchedulerState::Attempt::may_repeat(const Error& error, bool may_run_twice) const {
  if (!begun) return error.code != ErrorCode::timeout && error.code != ErrorCode::cancelled;
  return may_run_twice && blames_device(error.code);
}

std::optional<Error> SchedulerState::Attempt::end_before_begin(const DeviceId& device, TimePoint now) const {
  if (deadline.passed(now)) return late_error(device);
  if (stop.stop_requested() || (cancelled && cancelled->load(std::memory_order_relaxed)))
    return withdrawn_error(device);
  return std::nullopt;
}

Result<void> SchedulerState::run_on(Lease& lease, DeviceLanes& lanes, Attempt& attempt, detail::ClosureRef closure) {
  const Running running(lanes.running);  // kept until settled, so that other work sees this one running or measured
  Settlement settlement(lease);
  settlement.cancelled = true;  // until the work has begun
  TimePoint start = clock_.now();
  if (std::optional<Error> ended = attempt.end_before_begin(lease.id(), start)) return *std::move(ended);
  if (!attempt.kernels.empty()) {
    if (Result<void> loaded = kernels_.load_all(attempt.kernels, lease.device()); !loaded) {
      Error error = std::move(loaded).error();
      if (error.where.empty()) error.where = lease.id().text();
      return error;
    }
    start = clock_.now();  // compiling may have taken a long time
    if (std::optional<Error> ended = attempt.end_before_begin(lease.id(), start)) return *std::move(ended);
  }
  settlement.cancelled = false;
  attempt.begun = true;
  LaneContext execution(lanes, lease.device(), attempt.priority, attempt.deadline, attempt.cancelled, attempt.stop,
                        start);
  Result<void> result = closure(execution);
  std::optional<Duration> busy;
  if (execution.used_stream()) {
    // Drained even after a failure, because enqueued work may still use memory that the caller frees as soon as it
    // learns of the failure.
    Result<std::optional<Duration>> drained = execution.drain();
    if (drained)
      busy = *drained;
    else if (result)
      result = std::move(drained).error();
  }
  if (!busy && execution.is_measured()) busy = clock_.now() - execution.start();
  if (busy) settlement.outcome.busy = running.share(*busy);
  if (result) {
    settlement.outcome.error.reset();
    return result;
  }
  Error error = std::move(result).error();
  if (error.where.empty()) error.where = lease.id().text();
  settlement.outcome.error = error.code;
  settlement.cancelled = error.code == ErrorCode::cancelled && execution.cancelled();
  if (execution.has_declined() && attempt.may_decline) {
    attempt.begun = false;
    settlement.cancelled = error.code == ErrorCode::cancelled || error.code == ErrorCode::timeout;
  }
  return error;
}

Result<Lease> SchedulerState::acquire_for(const TaskOptions& given, std::unique_ptr<TaskOptions>& limited) {
  if (is_of_another_process()) return forked_error();
  if (given.kernels.empty()) return acquire(given.requirements);
  limited = std::make_unique<TaskOptions>(given);
  if (std::optional<Error> error = limit(*limited)) return *std::move(error);
  return acquire(limited->requirements);
}

std::optional<Lease> SchedulerState::acquire_another(Requirements& requirements, Deadline deadline,
                                                     const DeviceId& failed, bool begun) {
  const TimePoint now = clock_.now();
  if (deadline.passed(now) || stopping_.load(std::memory_order_relaxed)) return std::nullopt;
  if (begun && !retries_.take(now, [&] { return pool_.statistics().total().dispatched; })) return std::nullopt;
  requirements.avoid.push_back(failed);
  Result<Lease> lease = acquire(requirements);
  if (!lease) return std::nullopt;
  return std::move(lease).value();
}

Result<void> SchedulerState::run_inline(const TaskOptions& given, detail::ClosureRef closure, DeviceId& device) {
  std::unique_ptr<TaskOptions> limited;
  Result<Lease> lease = acquire_for(given, limited);
  if (!lease) return std::move(lease).error();
  return run_inline(*std::move(lease), limited ? *limited : given, closure, device);
}

Result<void> SchedulerState::run_inline(Lease lease, const TaskOptions& options, detail::ClosureRef closure,
                                        DeviceId& device) {
  std::optional<Requirements> again;
  for (bool may_run_twice = options.may_run_twice;;) {
    device = lease.id();
    Attempt attempt{options.requirements.priority.value_or(Priority::normal),
                    options.deadline,
                    nullptr,
                    options.stop,
                    options.kernels,
                    options.may_decline};
    Result<void> result = run_on(lease, lanes_of(lease), attempt, closure);
    if (result || !attempt.may_repeat(result.error(), may_run_twice)) return result;
    if (!again) again = options.requirements;
    std::optional<Lease> other = acquire_another(*again, options.deadline, device, attempt.begun);
    if (!other) return result;
    if (attempt.begun) may_run_twice = false;
    lease = *std::move(other);
  }
}

// --- queueing ---------------------------------------------------------------

void SchedulerState::enqueue(Job& job, const TaskOptions& options) {
  set_owner(job);
  Result<void> queued = try_enqueue(job, options);
  if (queued) return;
  end(job, std::move(queued).error());
  job.drop();
}

Result<void> SchedulerState::try_enqueue(Job& job, const TaskOptions& given) {
  std::unique_ptr<TaskOptions> limited;
  Result<Lease> lease = acquire_for(given, limited);
  if (!lease) return std::move(lease).error();
  const TaskOptions& options = limited ? *limited : given;
  return enqueue(job, options, *std::move(lease), std::move(limited));
}

Result<void> SchedulerState::enqueue(Job& job, const TaskOptions& options, Lease lease,
                                     std::unique_ptr<TaskOptions> kept) {
  set_owner(job);
  job.deadline = options.deadline;
  job.priority = options.requirements.priority.value_or(Priority::normal);
  job.tenant = options.tenant;
  if (const double cost = options.requirements.cost; cost > 0 && cost <= 1e12) job.cost = cost;
  job.may_run_twice = options.may_run_twice;
  job.may_decline = options.may_decline;
  if (kept)
    job.again = std::move(kept);
  else if (options.may_run_twice || options.may_decline || !options.kernels.empty())
    job.again = std::make_unique<TaskOptions>(options);

  DeviceLanes& lanes = lanes_of(lease);
  if (lanes.lanes() == 0) return no_thread_error(lease.id());
  if (options.stop.stop_requested()) return withdrawn_error(lease.id());
  if (!tenants_.has(job.tenant))
    return Error{ErrorCode::invalid_argument, "the tenant does not belong to this scheduler", "use Scheduler::tenant"};
  if (!lanes.enter(job)) {
    if (options.when_full == WhenFull::reject) return full_error(lease.id());
    if (options.when_full == WhenFull::run_here || is_on_own_thread()) {
      auto closure = [&](TaskContext& context) { return job.call(context); };
      Result<void> result = run_inline(std::move(lease), options, detail::ClosureRef(closure), job.device);
      end(job, result ? std::nullopt : std::optional<Error>(std::move(result).error()));
      job.drop();
      return {};
    }
    if (!lanes.enter_when_possible(job, options.stop, clock_))
      return options.stop.stop_requested() ? withdrawn_error(lease.id()) : late_error(lease.id());
  }
  if (options.stop.stop_possible()) {
    // If stop was already requested, the job is not withdrawn here, where the caller may hold a lock, but cancelled
    // when its turn comes.
    job.stage.store(Job::Stage::running, std::memory_order_relaxed);
    job.stop = std::make_unique<std::stop_callback<CancelJob>>(options.stop, CancelJob{&job});
  }
  place(job, lanes, std::move(lease));
  return {};
}

// The owner is not written again, because the user may already see the job.
void SchedulerState::set_owner(Job& job) noexcept {
  if (job.scheduler) return;
  job.scheduler = this;
  job.clock = &clock_;
}

void SchedulerState::place(Job& job, DeviceLanes& lanes, Lease lease) {
  job.lease = std::move(lease);
  job.lanes = &lanes;
  // The job was waiting (a new one) or running (one that failed elsewhere, or waited in a router).
  // From here on another thread may withdraw it; a lane then finds it in the queue and drops it.
  job.stage.store(Job::Stage::waiting, std::memory_order_release);
  watch_deadline(job);
  lanes.push(job);
}

void SchedulerState::run_job(Job& job) {
  DeviceLanes& lanes = *job.lanes;
  job.device = job.lease.id();
  Result<void> result;
  if (job.cancel_requested.load(std::memory_order_relaxed)) {
    job.lease.release();
    result = withdrawn_error(job.device);
  } else {
    auto closure = [&](TaskContext& context) { return job.call(context); };
    static const std::stop_token no_stop;  // the job's own stop callback sets cancel_requested
    std::span<const Kernel> kernels;
    if (job.again) kernels = job.again->kernels;
    Attempt attempt{job.priority, job.deadline, &job.cancel_requested, no_stop, kernels, job.may_decline};
    result = run_on(job.lease, lanes, attempt, detail::ClosureRef(closure));
    if (!result && job.again && attempt.may_repeat(result.error(), job.may_run_twice) &&
        !job.cancel_requested.load(std::memory_order_relaxed)) {
      if (attempt.begun) job.may_run_twice = false;
      std::optional<Lease> other = acquire_another(job.again->requirements, job.deadline, job.device, attempt.begun);
      if (other && lanes_of(*other).lanes() > 0 && lanes_of(*other).enter(job)) {
        const TenantId tenant = job.tenant;  // the job may have ended once it is placed
        DeviceLanes& others = lanes_of(*other);
        place(job, others, *std::move(other));
        return lanes.leave(tenant);
      }
    }
  }
  lanes.leave(job.tenant);
  end(job, result ? std::nullopt : std::optional<Error>(std::move(result).error()));
  job.drop();
}

void SchedulerState::watch_deadline(Job& job) {
  if (job.deadline.at == TimePoint::max()) return;
  timer_.call_at(job.deadline.at, &job, [held = JobReference(job)] {
    if (held->claim(Job::Stage::ending)) withdraw(*held, late_error({}));
  });
}

void SchedulerState::forget_deadline(Job& job) noexcept {
  if (job.deadline.at != TimePoint::max()) timer_.remove(job.deadline.at, &job);
}

void SchedulerState::end(Job& job, std::optional<Error> error) noexcept {
  forget_deadline(job);
  job.finish(std::move(error));
}

void SchedulerState::withdraw(Job& job, Error error) noexcept {
  bool was_queued = false;
  // A job in the queue of a device keeps the scheduler alive. A job that waits in a router does not, so nothing of the
  // scheduler is used for it, and the timer drops it at its deadline.
  if (job.lanes) {
    const Counted counted(job.scheduler->withdrawing_);
    job.scheduler->forget_deadline(job);
    was_queued = job.lanes->unlink(job);
    job.device = job.lease.id();
    job.lease.release();
    job.lanes->leave(job.tenant);
  }
  error.where = job.device.text();
  job.finish(std::move(error));
  if (was_queued) job.drop();
}

}  // namespace berth::scheduler
