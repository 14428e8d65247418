// Scheduler: what runs next. Work is a closure that gets a TaskContext (the
// device and a stream on it) and returns a value or a Result. It runs inline on
// the caller's thread (run), on a device's lane (submit), or over all
// devices at once with results in order (map).
//
// Every piece of work ends in exactly one terminal state, and always
//   dispatched = completed + failed + cancelled + in flight
// per device and in total. Work whose deadline passes before it starts counts as
// cancelled; its error is timeout.
// A closure that throws has failed; nothing leaks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "berth/pool.hpp"
#include "berth/statistics.hpp"

namespace berth {

namespace scheduler {
class DeviceLanes;   // src/scheduler/lanes.hpp
class WaitingQueue;  // src/scheduler/waiting_queue.hpp
}  // namespace scheduler
class Scheduler;

// What a closure gets to work with.
class TaskContext {
 public:
  virtual ~TaskContext() = default;
  virtual Device& device() noexcept = 0;
  // A stream of the device with the priority of the work, reused or opened at the first call. When
  // the closure has used it, the work is complete when the stream has drained.
  // A deadline that passes first makes the work fail with timeout while the
  // device may still run it: what was enqueued must outlive the call.
  virtual Result<Stream*> stream() = 0;
  virtual Deadline deadline() const noexcept = 0;
  virtual bool cancelled() const noexcept = 0;
};

struct TaskOptions {
  Requirements requirements;
  Deadline deadline;           // not started by then: cancelled (timeout)
  bool may_run_twice = false;  // failed because of the device: tried once more elsewhere
};

struct SchedulerOptions {
  std::optional<std::string> policy;  // absent: the pool's
  // Threads per device, which share its idle streams; absent: the device's concurrency.
  std::optional<std::size_t> lanes_per_device;
  std::size_t queue_capacity = 1024;  // per device, waiting work
};

namespace detail {

// What a closure returns, without its Result; closures without a value give std::monostate.
template <class T>
struct ValueOf {
  using type = T;
};
template <>
struct ValueOf<void> {
  using type = std::monostate;
};
template <class T>
struct ValueOf<Result<T>> : ValueOf<T> {};
template <class F, class... Args>
struct ValueOfCall {
  static_assert(std::is_invocable_v<F, Args...>,
                "work must be callable as f(berth::TaskContext&), or f(berth::TaskContext&, item) in map");
  using type = typename ValueOf<std::remove_cvref_t<std::invoke_result_t<F, Args...>>>::type;
};
template <class F, class... Args>
using value_of_t = typename ValueOfCall<F, Args...>::type;

// The failure of a closure that threw.
Error thrown_error(const char* what);

// Calls f(args...) and keeps its value; an exception becomes work_failed.
template <class Value, class F, class... Args>
Result<void> call_into(std::optional<Value>& value, F& f, Args&&... args) {
  using Returned = std::remove_cvref_t<std::invoke_result_t<F&, Args...>>;
  try {
    if constexpr (std::is_void_v<Returned>) {
      std::invoke(f, std::forward<Args>(args)...);
      value.emplace();
    } else if constexpr (std::is_same_v<Returned, Result<void>>) {
      Result<void> returned = std::invoke(f, std::forward<Args>(args)...);
      if (!returned) return returned;
      value.emplace();
    } else if constexpr (std::is_same_v<Returned, Result<Value>>) {
      Result<Value> returned = std::invoke(f, std::forward<Args>(args)...);
      if (!returned) return std::move(returned).error();
      value.emplace(std::move(returned).value());
    } else {
      value.emplace(std::invoke(f, std::forward<Args>(args)...));
    }
    return {};
  } catch (const std::exception& thrown) {
    return thrown_error(thrown.what());
  } catch (...) {
    return thrown_error(nullptr);
  }
}

// A closure of any type behind two pointers; refers to it, does not own it.
class ClosureRef {
 public:
  template <class F>
    requires(!std::is_same_v<F, ClosureRef>)
  explicit ClosureRef(F& f) noexcept
      : object_(&f),
        call_([](void* object, TaskContext& context) -> Result<void> { return (*static_cast<F*>(object))(context); }) {}
  Result<void> operator()(TaskContext& context) const { return call_(object_, context); }

 private:
  void* object_;
  Result<void> (*call_)(void*, TaskContext&);
};

// A piece of submitted work inside the scheduler: closure, lease and end in one
// allocation, shared by its handle and the queue it waits in. The thread that moves its
// state away from waiting owns it until it has ended; the end is final.
class Job {
 public:
  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  virtual Result<void> call(TaskContext& context) = 0;
  // Called once, on the thread that ended the job, after the end is visible to all threads.
  virtual void after_end() noexcept {}

  bool has_ended() const noexcept { return (state_.load(std::memory_order_acquire) & ~watched) == ended; }
  // False when the deadline came first. Work whose own deadline passes while it
  // waits ends here and now, not when its turn would have come.
  bool wait(Deadline deadline);
  void cancel();
  void drop() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // How it ended, and where it last was; only to be read after the end.
  std::optional<Error>& error() noexcept { return error_; }
  DeviceId& device() noexcept { return device_; }

 protected:
  explicit Job(std::uint32_t references) noexcept : references_(references) {}

 private:
  friend class scheduler::DeviceLanes;
  friend class berth::Scheduler;
  friend class scheduler::WaitingQueue;
  enum State : std::uint32_t { waiting, running, ending, ended };
  static constexpr std::uint32_t watched = 4;  // beside the state: a thread sleeps on `changed_`

  bool claim(State next) noexcept;
  void end(std::optional<Error> error) noexcept;

  std::atomic<std::uint32_t> references_;
  std::atomic<std::uint32_t> state_{waiting};
  std::atomic<bool> cancel_requested_{false};
  Priority priority_ = Priority::normal;
  bool exempt_ = false;  // bounded by its map, not by the queue's capacity
  bool linked_ = false;  // guarded by the queue's lock, as the next three
  std::uint64_t arrival_ = 0;
  Job* next_ = nullptr;
  Job* previous_ = nullptr;
  Deadline deadline_;
  scheduler::DeviceLanes* lanes_ = nullptr;
  Clock* clock_ = nullptr;
  std::unique_ptr<Requirements> again_;  // how to ask for another device; null: runs once
  Lease lease_;
  std::optional<Error> error_;
  DeviceId device_;
  std::mutex mutex_;  // guards nothing but the sleepers' wake-up
  std::condition_variable changed_;
};

template <class T>
class JobFor : public Job {
 public:
  using Job::Job;
  std::optional<T> value;
};

template <class T, class F>
class ClosureJob final : public JobFor<T> {
 public:
  // One reference for the handle, one for the queue.
  explicit ClosureJob(F f) : JobFor<T>(2), f_(std::move(f)) {}
  Result<void> call(TaskContext& context) override { return call_into(this->value, f_, context); }
  // A closure with an after_end() of its own is told, however it ended.
  void after_end() noexcept override {
    if constexpr (requires(F& f) { f.after_end(); }) f_.after_end();
  }

 private:
  F f_;
};

}  // namespace detail

// What work gave, and where it ran.
template <class T>
struct TaskResult {
  T value;
  DeviceId device;
};

// A piece of submitted work. Dropping the handle does not cancel the work. The
// handle may outlive the scheduler: everything has ended then.
template <class T>
class Task {
 public:
  Task() = default;
  explicit Task(detail::JobFor<T>* job) noexcept : job_(job) {}
  Task(Task&& other) noexcept : job_(std::exchange(other.job_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(job_, other.job_);
    return *this;
  }
  ~Task() {
    if (job_) job_->drop();
  }

  // Waits; timeout leaves the work running. The result is given once: asked
  // again after that, invalid_argument. Not for use inside a lane's work, which
  // might wait for its own lane.
  Result<TaskResult<T>> get(Deadline deadline = {}) {
    if (!job_)
      return Error{
          ErrorCode::invalid_argument, "the result was already taken, or the task is empty", "call get once", "", {}};
    if (!job_->wait(deadline))
      return Error{ErrorCode::timeout, "the work has not ended by the deadline of get", "call get again"};
    detail::JobFor<T>* const job = std::exchange(job_, nullptr);
    Result<TaskResult<T>> result = job->error() ? Result<TaskResult<T>>(std::move(*job->error()))
                                                : TaskResult<T>{std::move(*job->value), std::move(job->device())};
    job->drop();
    return result;
  }
  // Whether get would answer at once.
  bool ready() const { return !job_ || job_->has_ended(); }
  // Withdraws work that has not started; running work sees TaskContext::cancelled().
  void cancel() {
    if (job_) job_->cancel();
  }

 private:
  detail::JobFor<T>* job_ = nullptr;
};

// May be used from several threads; must not be destroyed while a call is under way.
class Scheduler {
 public:
  // Starts the lanes of every usable device; devices that join the pool later
  // get theirs with their first work. The pool outlives the scheduler.
  static Result<std::unique_ptr<Scheduler>> start(Pool& pool, SchedulerOptions options = {});
  // Cancels what waits, finishes what runs.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Selects, charges and runs `f(TaskContext&)` on the calling thread. An error
  // names the device in `where`.
  template <class F>
  Result<TaskResult<detail::value_of_t<F&, TaskContext&>>> run(F&& f, const TaskOptions& options = {}) {
    std::optional<detail::value_of_t<F&, TaskContext&>> value;
    DeviceId device;
    auto closure = [&](TaskContext& context) { return detail::call_into(value, f, context); };
    Result<void> ended = run_inline(options, detail::ClosureRef(closure), device);
    if (!ended) return std::move(ended).error();
    return TaskResult<detail::value_of_t<F&, TaskContext&>>{*std::move(value), std::move(device)};
  }

  // Selects, charges and hands `f(TaskContext&)` to a lane of the device. A full
  // queue is queue_full, in the task. A queue serves higher priority first, then
  // the earlier deadline, then the earlier arrival; every eighth turn takes
  // the job that has waited longest, so no job starves.
  template <class F>
  Task<detail::value_of_t<F&, TaskContext&>> submit(F f, const TaskOptions& options = {}) {
    auto* job = new detail::ClosureJob<detail::value_of_t<F&, TaskContext&>, F>(std::move(f));
    enqueue(*job, options);
    return Task<detail::value_of_t<F&, TaskContext&>>(job);
  }

  // f(TaskContext&, const Item&) for every item, over all devices at once; one
  // result per item, in the order of the items. A failing item stops no other.
  // `f` is called from several threads at a time. `options` are those of every item,
  // or a function that gives the TaskOptions of an item: items with a higher cost start
  // first. Called from inside a lane's work it runs inline.
  template <class Items, class F, class OptionsOrFunction = TaskOptions>
  auto map(const Items& items, F f, const OptionsOrFunction& options = {})
      -> std::vector<Result<TaskResult<detail::value_of_t<F&, TaskContext&, decltype(*std::begin(items))>>>>;

  // The device the policy would choose now; charges nothing, but a policy that
  // takes turns takes one.
  Result<DeviceId> select(const Requirements& requirements = {}) const;
  // A number for a class of work whose cost is learnt apart from other classes.
  std::uint16_t work_class(std::string_view name);
  Statistics statistics() const;
  Pool& pool() noexcept { return *pool_; }
  const Policy& policy() const noexcept { return *policy_; }

 private:
  friend class scheduler::DeviceLanes;
  friend class detail::Job;
  class Mapping;

  // What map needs to know about its items, whatever their type.
  struct Batch {
    std::size_t size = 0;
    bool uniform = true;  // every item has the same TaskOptions
    std::function<Result<TaskOptions>(std::size_t)> options;
    std::function<Result<void>(std::size_t, TaskContext&)> call;
    std::function<void(std::size_t, std::optional<Error>, DeviceId)> end;
  };

  Scheduler(Pool& pool, SchedulerOptions options, const Policy& policy);
  scheduler::DeviceLanes& make_lanes(std::size_t slot, const DeviceInfo& info);
  scheduler::DeviceLanes& lanes_of(const Lease& lease);
  Result<Lease> acquire(const Requirements& requirements) const;
  // A second device for work that failed on its first; none when it may not or cannot.
  std::optional<Lease> acquire_another(Requirements requirements, Deadline deadline, const DeviceId& failed,
                                       const Error& failure);
  // Runs the closure on the lease, waits for what it enqueued, and settles.
  Result<void> run_on(Lease& lease, scheduler::DeviceLanes& lanes, Priority priority, Deadline deadline,
                      const std::atomic<bool>* cancelled, detail::ClosureRef closure);
  Result<void> run_inline(const TaskOptions& options, detail::ClosureRef closure, DeviceId& device);
  void enqueue(detail::Job& job, const TaskOptions& options);
  Result<void> enqueue(detail::Job& job, const TaskOptions& options, Lease lease);
  // Puts a job into the queue of its lease's device, or says why not.
  Result<void> place(detail::Job& job, Lease& lease);
  void run_job(detail::Job& job);
  void run_batch(const Batch& batch);

  Pool* pool_;
  SchedulerOptions options_;
  const Policy* policy_;
  Clock* clock_;
  std::mutex mutex_;                                               // guards the making of lanes
  std::unique_ptr<std::atomic<scheduler::DeviceLanes*>[]> lanes_;  // by slot of the board
  std::atomic<bool> stopping_{false};
};

template <class Items, class F, class OptionsOrFunction>
auto Scheduler::map(const Items& items, F f, const OptionsOrFunction& options)
    -> std::vector<Result<TaskResult<detail::value_of_t<F&, TaskContext&, decltype(*std::begin(items))>>>> {
  using Value = detail::value_of_t<F&, TaskContext&, decltype(*std::begin(items))>;
  struct Ended {
    std::optional<Value> value;
    std::optional<Error> error;
    DeviceId device;
  };
  std::vector<decltype(std::begin(items))> at;
  for (auto item = std::begin(items); item != std::end(items); ++item) at.push_back(item);
  std::vector<Ended> ends(at.size());

  Batch batch;
  batch.size = at.size();
  batch.uniform = std::is_convertible_v<const OptionsOrFunction&, TaskOptions>;
  batch.options = [&](std::size_t i) -> Result<TaskOptions> {
    if constexpr (std::is_convertible_v<const OptionsOrFunction&, TaskOptions>) {
      static_cast<void>(i);
      return TaskOptions(options);
    } else {
      std::optional<TaskOptions> own;
      if (Result<void> called = detail::call_into(own, options, *at[i]); !called) return std::move(called).error();
      return *std::move(own);
    }
  };
  batch.call = [&](std::size_t i, TaskContext& context) {
    return detail::call_into(ends[i].value, f, context, *at[i]);
  };
  batch.end = [&](std::size_t i, std::optional<Error> error, DeviceId device) {
    ends[i].error = std::move(error);
    ends[i].device = std::move(device);
  };
  run_batch(batch);

  std::vector<Result<TaskResult<Value>>> results;
  results.reserve(ends.size());
  for (Ended& end : ends) {
    if (end.error)
      results.emplace_back(std::move(*end.error));
    else
      results.emplace_back(TaskResult<Value>{*std::move(end.value), std::move(end.device)});
  }
  return results;
}

}  // namespace berth
