// Scheduler: what runs next. Work is a closure that gets a TaskContext (the
// device and a stream on it) and returns a value or a Result. It runs inline on
// the caller's thread (run), on a device's lane (submit), or over all
// devices at once with results in order (map, for_each).
//
// Every piece of work ends in exactly one terminal state, and always
//   dispatched = completed + failed + cancelled + in flight
// per device and in total. Work whose deadline passes before it starts counts as
// cancelled; its error is timeout.
// A closure that throws has failed; nothing leaks.
#pragma once

#include "berth/version.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "berth/pool.hpp"
#include "berth/split.hpp"
#include "berth/statistics.hpp"
#include "berth/task.hpp"

namespace berth {

namespace scheduler {
class SchedulerState;  // src/scheduler/scheduler_state.hpp
}  // namespace scheduler

// What a closure works with. Valid only while the closure runs.
class TaskContext {
 public:
  virtual ~TaskContext() = default;
  virtual Device& device() noexcept = 0;
  // A stream of the device with the priority of the work, reused or opened at the first call. If
  // the closure uses it, the work is complete when the stream has drained. If the deadline passes
  // first, the work fails with timeout while the device may still run it, so the memory that it
  // uses must outlive the call.
  virtual Result<Stream*> stream() = 0;
  virtual Deadline deadline() const noexcept = 0;
  // True after Task::cancel(), a request of the stop token, the deadline of the work, or the end of the scheduler.
  // Nothing else ends a running closure: a long one should check this between its steps and return an error with
  // `cancelled`, which, unlike `timeout`, does not count against the device.
  virtual bool cancelled() const noexcept = 0;
  // Called by work with TaskOptions::may_decline that cannot run on this device: it counts as not started and goes
  // to another device. The closure then returns an error, with which the work ends if no other device is left.
  virtual void decline() noexcept = 0;
  // Measures the time of the work from here on, for a closure that has waited for something else
  // until now. The time on the stream is measured on the device.
  virtual void restart_measurement() noexcept = 0;
  // Loads the kernel on this device, once per device.
  virtual Result<std::shared_ptr<LoadedKernel>> load(const Kernel& kernel) = 0;

  // These are queued on the stream of the work and run in order. Host memory must stay valid until the
  // work is complete; a vector that copy_out returns has its values from then on.
  Result<Buffer> allocate(std::uint64_t bytes);
  template <class Values>
  Result<Buffer> copy_in(const Values& from) {
    return copy_bytes_in(std::as_bytes(std::span(from)));
  }
  // Deleted, because a temporary does not outlive the call.
  template <class Values>
    requires(!std::ranges::enable_borrowed_range<Values>)
  Result<Buffer> copy_in(const Values&& from) = delete;
  template <class Values>
  Result<void> copy_out(const Buffer& from, Values&& to) {
    return copy_bytes_out(from, std::as_writable_bytes(std::span(to)));
  }
  template <class T>
  Result<std::vector<T>> copy_out(const Buffer& from) {
    std::vector<T> values(from.bytes() / sizeof(T));
    if (Result<void> copied = copy_out(from, values); !copied) return std::move(copied).error();
    return values;
  }
  Result<void> launch(const Kernel& kernel, const LaunchShape& shape, std::initializer_list<Argument> arguments);
  // Blocks until everything queued so far is done, or until the deadline. Call it before the closure reads values
  // that it copied out, and before variables of the closure that were copied in are destroyed.
  Result<void> wait();

 private:
  Result<Buffer> copy_bytes_in(std::span<const std::byte> from);
  Result<void> copy_bytes_out(const Buffer& from, std::span<std::byte> to);
};

// What submit does when the queue of the chosen device is full.
enum class WhenFull {
  reject,    // queue_full, in the task
  wait,      // block until that queue has room or the deadline of the work passes; inside a lane's work: run_here
  run_here,  // run it on the calling thread, before submit returns
};

// The tenant that work runs for; see Scheduler::tenant.
enum class TenantId : std::uint8_t { none };

struct TaskOptions {
  Requirements requirements = {};
  TenantId tenant = TenantId::none;
  Deadline deadline = {};      // unstarted work ends with timeout; running work sees TaskContext::cancelled
  bool may_run_twice = false;  // after a failure caused by the device, it runs once more on another one
  bool may_decline = false;    // it may call TaskContext::decline
  WhenFull when_full = WhenFull::reject;
  // A request to stop cancels the work, like Task::cancel; one token for all items cancels a whole map.
  std::stop_token stop = {};
  // The kernels that the work launches. The work is given to a device that can run all of them, and they are loaded
  // before it begins. If a device cannot load them, the work goes to another device.
  std::vector<Kernel> kernels = {};
};

struct SchedulerOptions {
  std::optional<std::string> policy = {};  // absent: the pool's
  // Threads per device, which share the device's idle streams, 1 to 1024; absent: the device's concurrency.
  std::optional<std::size_t> lanes_per_device = {};
  std::size_t queue_capacity = 1024;  // the most waiting work per device and tenant
};

// The result of one part of for_each.
template <class T>
struct PartResult {
  Range range;
  Result<TaskResult<T>> result;
};

namespace detail {

template <class F, class... Arguments>
struct ValueOfCall {
  static_assert(std::is_invocable_v<F, Arguments...>,
                "work must be callable as f(berth::TaskContext&), f(berth::TaskContext&, item) in map, or "
                "f(berth::TaskContext&, berth::Range) in for_each");
  static_assert(!IsTask<returned_t<F, Arguments...>>::value, "work must not return a Task: use Task::then");
  using type = typename ValueOf<returned_t<F, Arguments...>>::type;
};
template <class F, class... Arguments>
using value_of_t = typename ValueOfCall<F, Arguments...>::type;

// A closure of any type behind two pointers, which refers to the closure and does not own it.
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

class BatchQueue;  // batcher.hpp

// A closure and the value it returns.
template <class T, class F>
struct Work {
  F f;
  std::optional<T> value = {};
};

// How to make, call and destroy a Work, whatever its types. The Work follows the scheduler's own data about it, in
// the same allocation.
struct WorkType {
  std::size_t bytes, alignment;
  void (*make)(void* at, void* f);  // moves the closure
  Result<void> (*call)(void* work, TaskContext& context);
  void (*destroy)(void* work) noexcept;
};
template <class T, class F>
inline constexpr WorkType work_type = {sizeof(Work<T, F>), alignof(Work<T, F>),
                                       [](void* at, void* f) { ::new (at) Work<T, F>{std::move(*static_cast<F*>(f))}; },
                                       [](void* work, TaskContext& context) {
                                         auto& [f, value] = *static_cast<Work<T, F>*>(work);
                                         return call_into(value, f, context);
                                       },
                                       [](void* work) noexcept { static_cast<Work<T, F>*>(work)->~Work<T, F>(); }};

// A submitted piece of work: one reference to its state, for its handle.
struct SubmittedWork {
  TaskState* state = nullptr;
  void* work = nullptr;
  template <class T, class F>
  Task<T> task() const noexcept {
    return Task<T>(state, &static_cast<Work<T, F>*>(work)->value);
  }
};

// What map needs to know about its items, whatever their type.
struct Batch {
  std::size_t size = 0;
  bool uniform = true;  // every item has the same TaskOptions
  std::function<Result<TaskOptions>(std::size_t)> options;
  std::function<Result<void>(std::size_t, TaskContext&)> call;
  std::function<void(std::size_t, std::optional<Error>, DeviceId)> end;
};

// A part of for_each, with the options it runs with.
struct RangeWork {
  Range range;
  TaskOptions options;
};

}  // namespace detail

// A handle; may be used from several threads. When the scheduler and all routers and batchers on it are destroyed,
// waiting work is cancelled and running work finishes. No call may be in progress then. A closure may own the last
// handle.
class Scheduler {
 public:
  // Starts the lanes of every usable device; devices that join the pool later get their lanes with
  // their first work.
  static Result<Scheduler> start(const Pool& pool, SchedulerOptions options = {});
  Scheduler(Scheduler&&) noexcept = default;
  Scheduler& operator=(Scheduler&&) noexcept = default;

  // Selects and charges a device and runs `f(TaskContext&)` on the calling thread; blocks until the work is
  // complete. An error names the device in `where`.
  template <class F>
  Result<TaskResult<detail::value_of_t<F&, TaskContext&>>> run(F&& f, const TaskOptions& options = {}) const {
    std::optional<detail::value_of_t<F&, TaskContext&>> value;
    DeviceId device;
    auto closure = [&](TaskContext& context) { return detail::call_into(value, f, context); };
    Result<void> ended = run_inline(options, detail::ClosureRef(closure), device);
    if (!ended) return std::move(ended).error();
    return TaskResult<detail::value_of_t<F&, TaskContext&>>{*std::move(value), std::move(device)};
  }

  // Selects and charges a device and hands `f(TaskContext&)` to one of its lanes. For each tenant, a queue serves
  // the higher priority first, then the earlier deadline, then the earlier arrival; every eighth turn takes the job
  // that has waited longest, so no job starves. Without the task, the caller cannot learn how the work ended.
  template <class F>
  [[nodiscard]] Task<detail::value_of_t<F&, TaskContext&>> submit(F f, const TaskOptions& options = {}) const {
    using Value = detail::value_of_t<F&, TaskContext&>;
    return submit_work(detail::work_type<Value, F>, &f, options).template task<Value, F>();
  }

  // Runs f(TaskContext&, const Item&) for every item, over all devices at once, and blocks until all have ended; one
  // result per item, in the order of the items. A failing item does not stop the others. `f` is called from several
  // threads at a time. `options` apply to every item, or are a function that returns the TaskOptions of an item;
  // items with a higher cost start first. Called from inside a lane's work it runs inline.
  template <class Items, class F, class OptionsOrFunction = TaskOptions>
  [[nodiscard]] auto map(const Items& items, F f, const OptionsOrFunction& options = {}) const
      -> std::vector<Result<TaskResult<detail::value_of_t<F&, TaskContext&, decltype(*std::begin(items))>>>>;

  // Runs f(TaskContext&, Range) for the parts of [0, count), and blocks until all have ended: one part per eligible
  // device, all at once, in proportion to the speeds learnt for `requirements.work_class`; one result per part, in
  // the order of the ranges. A device that has not been measured yet counts as the mean of the others. The
  // requirements apply to each part, except that `cost` is per item and `prefer` has no effect. A part runs on
  // another device if its own is no longer eligible, or fails (with may_run_twice). If no device is eligible, the
  // only part is the whole range with the error. Called from inside a lane's work it runs inline.
  template <class F>
  [[nodiscard]] auto for_each(std::uint64_t count, F f, const TaskOptions& options = {},
                              const SplitOptions& split = {}) const
      -> std::vector<PartResult<detail::value_of_t<F&, TaskContext&, const Range&>>>;

  // The device the policy would choose now; charges nothing, but a policy that
  // takes turns takes one.
  Result<DeviceId> select(const Requirements& requirements = {}) const;
  // Returns the tenant of this name and sets its weight, from 0.000001 to 1000000. While several tenants have work
  // waiting for a device, each gets work in proportion to its weight, measured by Requirements::cost. Work without a
  // tenant has weight 1.
  Result<TenantId> tenant(std::string_view name, double weight = 1) const;
  // See Pool::work_class.
  std::uint16_t work_class(std::string_view name) const;
  Statistics statistics() const;
  // The errors of kernels that a device could not load. Work that uses these kernels goes to other devices.
  std::vector<Error> kernel_errors() const;
  const Pool& pool() const noexcept;
  const Policy& policy() const noexcept;
  // Applies to decisions from now on; a map in progress keeps its policy.
  Result<void> set_policy(std::string_view name) const;

 private:
  friend class Router;
  friend class Workers;
  friend class detail::BatchQueue;
  explicit Scheduler(std::shared_ptr<scheduler::SchedulerState> state) noexcept : state_(std::move(state)) {}
  Result<void> run_inline(const TaskOptions& options, detail::ClosureRef closure, DeviceId& device) const;
  detail::SubmittedWork submit_work(const detail::WorkType& type, void* f, const TaskOptions& options) const;
  void run_batch(const detail::Batch& batch) const;
  std::vector<detail::RangeWork> split_among_devices(std::uint64_t count, const TaskOptions& options,
                                                     const SplitOptions& split) const;

  std::shared_ptr<scheduler::SchedulerState> state_;
};

template <class Items, class F, class OptionsOrFunction>
auto Scheduler::map(const Items& items, F f, const OptionsOrFunction& options) const
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

  detail::Batch batch;
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
    auto call = [&](TaskContext& on) -> decltype(auto) { return f(on, *at[i]); };
    return detail::call_into(ends[i].value, call, context);
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

template <class F>
auto Scheduler::for_each(std::uint64_t count, F f, const TaskOptions& options, const SplitOptions& split) const
    -> std::vector<PartResult<detail::value_of_t<F&, TaskContext&, const Range&>>> {
  using Work = detail::RangeWork;
  const std::vector<Work> parts = split_among_devices(count, options, split);
  auto ends = map(
      parts, [&](TaskContext& context, const Work& part) -> decltype(auto) { return f(context, part.range); },
      [](const Work& part) { return part.options; });
  std::vector<PartResult<detail::value_of_t<F&, TaskContext&, const Range&>>> results;
  results.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) results.push_back({parts[i].range, std::move(ends[i])});
  return results;
}

}  // namespace berth
