#include "berth/scheduler.hpp"

#include <algorithm>
#include <thread>

#include "pool/internals.hpp"
#include "scheduler/lane_context.hpp"
#include "scheduler/lanes.hpp"

namespace berth {
namespace {

Error late_error(const DeviceId& device) {
  return {ErrorCode::timeout, "the deadline passed before the work began", "allow more time or submit less",
          device.text()};
}

Error withdrawn_error(const DeviceId& device) {
  return {ErrorCode::cancelled, "the work was cancelled before it began", "", device.text()};
}

Error no_thread_error(const DeviceId& device) {
  return {ErrorCode::unavailable, "cannot start a thread for a lane", "raise the limit on threads", device.text()};
}

// Settles the lease whatever happens in between; work that did not get as far
// as saying how it went has failed.
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

// Counts a piece of work as running on its device while it lives.
class Running {
 public:
  explicit Running(std::atomic<std::uint32_t>& running) noexcept
      : running_(running), at_start_(running.fetch_add(1, std::memory_order_relaxed) + 1) {}
  ~Running() { running_.fetch_sub(1, std::memory_order_relaxed); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // The part of `elapsed` that the device spent on this work: it was shared
  // with those running beside it, as many as at the start and now on average.
  // Without this a device that does four things at once would look four times
  // as slow as it is.
  Duration share(Duration elapsed) const noexcept {
    const std::uint32_t both = at_start_ + running_.load(std::memory_order_relaxed);
    return both == 2 ? elapsed : 2 * elapsed / both;
  }

 private:
  std::atomic<std::uint32_t>& running_;
  const std::uint32_t at_start_;
};

}  // namespace

Error detail::thrown_error(const char* what) {
  return {ErrorCode::work_failed, what ? std::string("the work threw an exception: ") + what
                                       : std::string("the work threw something that is not a std::exception")};
}

// --- a piece of work while it runs ----------------------------------------

Result<Stream*> scheduler::LaneContext::stream() {
  if (!used_stream()) {
    Result<scheduler::KeptStream> opened = lanes_.borrow_stream(device_, priority_);
    if (!opened) return std::move(opened).error();
    stream_ = std::move(opened).value();
    if (Result<std::shared_ptr<Event>> begun = stream_.stream->record()) begun_ = std::move(begun).value();
  }
  return stream_.stream.get();
}

Result<std::optional<Duration>> scheduler::LaneContext::drain() {
  Result<std::shared_ptr<Event>> end = stream_.stream->record();
  if (!end) return std::move(end).error();
  if (Result<void> done = (*end)->wait(deadline_); !done) return std::move(done).error();
  std::optional<Duration> busy;
  if (begun_)
    if (const Result<Duration> measured = (*end)->since(*begun_)) busy = *measured;
  begun_.reset();
  // A stream that failed or still has work on it is not used again.
  lanes_.return_stream(std::move(stream_));
  return busy;
}

// --- jobs -----------------------------------------------------------------

bool detail::Job::claim(State next) noexcept {
  std::uint32_t seen = state_.load(std::memory_order_relaxed);
  while ((seen & ~watched) == waiting)
    if (state_.compare_exchange_weak(seen, next | (seen & watched), std::memory_order_acq_rel)) return true;
  return false;
}

void detail::Job::end(std::optional<Error> error) noexcept {
  error_ = std::move(error);
  if (state_.exchange(ended, std::memory_order_acq_rel) & watched) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  after_end();
}

bool detail::Job::wait(Deadline deadline) {
  // Work that ends within a few microseconds is worth waiting for awake.
  for (int i = 0; i < 200 && !has_ended(); ++i) scheduler::pause_briefly();
  if (has_ended()) return true;
  TimePoint until = std::min(deadline.at, deadline_.at);
  std::unique_lock lock(mutex_);
  while (!has_ended()) {
    state_.fetch_or(watched, std::memory_order_acq_rel);
    if (has_ended()) break;
    const TimePoint now = clock_->now();
    if (now >= until) {
      if (deadline.passed(now)) return false;
      until = deadline.at;  // its own deadline passed: it ends now, or it is running
      if (claim(ending)) {
        lock.unlock();
        lanes_->withdraw(*this, late_error({}));
        return true;
      }
    }
    clock_->wait_until(changed_, lock, until);
  }
  return true;
}

void detail::Job::cancel() {
  cancel_requested_.store(true, std::memory_order_relaxed);
  if (claim(ending)) lanes_->withdraw(*this, withdrawn_error({}));
}

// --- the scheduler --------------------------------------------------------

Result<std::unique_ptr<Scheduler>> Scheduler::start(Pool& pool, SchedulerOptions options) {
  if (options.lanes_per_device == std::size_t{0})
    return Error{
        ErrorCode::invalid_argument, "a device needs at least one lane", "set lanes_per_device to 1 or more", "", {}};
  const Policy* policy = &pool.policy();
  if (options.policy) {
    Result<const Policy*> named = policy_named(*options.policy);
    if (!named) return std::move(named).error();
    policy = *named;
  }
  std::unique_ptr<Scheduler> scheduler(new Scheduler(pool, std::move(options), *policy));
  for (const pool::Board::Entry& entry : pool::board_of(pool).entries()) {
    if (!entry.device) continue;
    if (scheduler->make_lanes(entry.slot, entry.device->info()).lanes() == 0)
      return no_thread_error(entry.device->id());
  }
  return scheduler;
}

Scheduler::Scheduler(Pool& pool, SchedulerOptions options, const Policy& policy)
    : pool_(&pool),
      options_(std::move(options)),
      policy_(&policy),
      clock_(&pool.clock()),
      lanes_(std::make_unique<std::atomic<scheduler::DeviceLanes*>[]>(pool::board_of(pool).capacity())) {}

Scheduler::~Scheduler() {
  std::vector<std::unique_ptr<scheduler::DeviceLanes>> all;
  for (std::size_t slot = 0; slot < pool::board_of(*pool_).capacity(); ++slot)
    if (scheduler::DeviceLanes* lanes = lanes_[slot].load()) all.emplace_back(lanes);
  stopping_.store(true);
  for (const auto& lanes : all) lanes->stop();
  for (const auto& lanes : all) lanes->cancel_waiting();
  for (const auto& lanes : all) lanes->join();
  // A lane that was just failing may have handed its work to another device.
  for (const auto& lanes : all) lanes->cancel_waiting();
  // A thread that is withdrawing its work at this moment is about to leave.
  for (const auto& lanes : all)
    while (!lanes->idle()) std::this_thread::yield();
}

scheduler::DeviceLanes& Scheduler::make_lanes(std::size_t slot, const DeviceInfo& info) {
  const std::lock_guard lock(mutex_);
  if (scheduler::DeviceLanes* made = lanes_[slot].load(std::memory_order_relaxed)) return *made;
  const std::size_t count = options_.lanes_per_device.value_or(std::max<std::size_t>(1, info.concurrency));
  auto* made = new scheduler::DeviceLanes(*this, count, options_.queue_capacity);
  lanes_[slot].store(made, std::memory_order_release);
  return *made;
}

scheduler::DeviceLanes& Scheduler::lanes_of(const Lease& lease) {
  if (scheduler::DeviceLanes* made = lanes_[lease.slot()].load(std::memory_order_acquire)) return *made;
  return make_lanes(lease.slot(), lease.device().info());
}

Result<void> Scheduler::run_on(Lease& lease, scheduler::DeviceLanes& lanes, Priority priority, Deadline deadline,
                               const std::atomic<bool>* cancelled, detail::ClosureRef closure) {
  Settlement settlement(lease);
  const TimePoint start = clock_->now();
  if (deadline.passed(start)) {
    settlement.cancelled = true;
    return late_error(lease.id());
  }
  const Running running(lanes.running);
  scheduler::LaneContext execution(lanes, lease.device(), priority, deadline, cancelled);
  Result<void> result = closure(execution);
  std::optional<Duration> busy;
  if (execution.used_stream()) {
    // Also after a failure: what was enqueued may still use what the caller
    // frees when it hears of it.
    Result<std::optional<Duration>> drained = execution.drain();
    if (drained)
      busy = *drained;
    else if (result)
      result = std::move(drained).error();
  }
  if (!busy) busy = clock_->now() - start;
  settlement.outcome.busy = running.share(*busy);
  if (result) {
    settlement.outcome.error.reset();
    return result;
  }
  Error error = std::move(result).error();
  if (error.where.empty()) error.where = lease.id().text();
  settlement.outcome.error = error.code;
  settlement.cancelled = error.code == ErrorCode::cancelled && execution.cancelled();
  return error;
}

Result<Lease> Scheduler::acquire(const Requirements& requirements) const {
  return pool_->acquire(requirements, *policy_);
}

std::optional<Lease> Scheduler::acquire_another(Requirements requirements, Deadline deadline, const DeviceId& failed,
                                                const Error& failure) {
  if (!blames_device(failure.code) || stopping_.load(std::memory_order_relaxed)) return std::nullopt;
  if (deadline.passed(clock_->now())) return std::nullopt;
  requirements.avoid.push_back(failed);
  Result<Lease> lease = acquire(requirements);
  if (!lease) return std::nullopt;
  return std::move(lease).value();
}

Result<void> Scheduler::run_inline(const TaskOptions& options, detail::ClosureRef closure, DeviceId& device) {
  Result<Lease> lease = acquire(options.requirements);
  if (!lease) return std::move(lease).error();
  const Priority priority = options.requirements.priority.value_or(Priority::normal);
  device = lease->id();
  Result<void> result = run_on(*lease, lanes_of(*lease), priority, options.deadline, nullptr, closure);
  if (!result && options.may_run_twice) {
    if (std::optional<Lease> other = acquire_another(options.requirements, options.deadline, device, result.error())) {
      device = other->id();
      return run_on(*other, lanes_of(*other), priority, options.deadline, nullptr, closure);
    }
  }
  return result;
}

void Scheduler::enqueue(detail::Job& job, const TaskOptions& options) {
  Result<Lease> lease = acquire(options.requirements);
  Result<void> queued =
      lease ? enqueue(job, options, std::move(lease).value()) : Result<void>(std::move(lease).error());
  if (queued) return;
  job.end(std::move(queued).error());
  job.drop();
}

Result<void> Scheduler::enqueue(detail::Job& job, const TaskOptions& options, Lease lease) {
  job.clock_ = clock_;
  job.deadline_ = options.deadline;
  job.priority_ = options.requirements.priority.value_or(Priority::normal);
  if (options.may_run_twice) job.again_ = std::make_unique<Requirements>(options.requirements);
  return place(job, lease);
}

Result<void> Scheduler::place(detail::Job& job, Lease& lease) {
  scheduler::DeviceLanes& lanes = lanes_of(lease);
  if (lanes.lanes() == 0) return no_thread_error(lease.id());
  if (!lanes.enter(job.exempt_)) {
    return Error{ErrorCode::queue_full, "the queue of the device is full",
                 "wait for work to end, or raise queue_capacity", lease.id().text()};
  }
  job.lease_ = std::move(lease);
  job.lanes_ = &lanes;
  // The job was waiting (a new one) or running (one that failed elsewhere).
  job.state_.fetch_and(detail::Job::watched, std::memory_order_release);
  lanes.push(job);
  return {};
}

void Scheduler::run_job(detail::Job& job) {
  scheduler::DeviceLanes& lanes = *job.lanes_;
  job.device_ = job.lease_.id();
  Result<void> result;
  if (job.cancel_requested_.load(std::memory_order_relaxed)) {
    job.lease_.release();
    result = withdrawn_error(job.device_);
  } else {
    auto closure = [&](TaskContext& execution) { return job.call(execution); };
    result =
        run_on(job.lease_, lanes, job.priority_, job.deadline_, &job.cancel_requested_, detail::ClosureRef(closure));
    if (!result && job.again_ && !job.cancel_requested_.load(std::memory_order_relaxed)) {
      const std::unique_ptr<Requirements> again = std::move(job.again_);
      std::optional<Lease> other = acquire_another(*again, job.deadline_, job.device_, result.error());
      if (other && place(job, *other)) return lanes.leave();
    }
  }
  lanes.leave();
  job.end(result ? std::nullopt : std::optional<Error>(std::move(result).error()));
  job.drop();
}

Result<DeviceId> Scheduler::select(const Requirements& requirements) const {
  Result<DeviceId> chosen = pool::board_of(*pool_).select(*policy_, requirements);
  if (!chosen && detail::PoolInternals::await_first_poll(*pool_))
    chosen = pool::board_of(*pool_).select(*policy_, requirements);
  return chosen;
}
std::uint16_t Scheduler::work_class(std::string_view name) { return pool_->work_class(name); }
Statistics Scheduler::statistics() const { return pool_->statistics(); }

}  // namespace berth
