// Workers: tasks in separate processes, one per device. A task that crashes, hangs past its
// deadline or leaves its GPU unusable ends one worker, which is replaced; the program continues.
//
//   struct Number { float x; };
//   BERTH_TASK(square, [](berth::WorkerContext&, const Number& in) { return in.x * in.x; });
//
//   int main(int argc, char** argv) {
//     berth::worker_entry(argc, argv);  // first thing in main; does not return in a worker
//     ...
//     const auto workers = BERTH_TRY(berth::Workers::start(scheduler));
//     berth::Task<float> task = workers.submit(square, {3});
//
// The scheduler decides where and in which order work runs, and handles tenants, deadlines and statistics, as
// for work in the program itself.
#pragma once

#include "berth/version.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "berth/bytes.hpp"
#include "berth/scheduler.hpp"

namespace berth {

namespace worker {
class WorkersState;  // src/worker/workers_state.hpp
}

// Values in memory that the program and its workers share (Workers::share): plain data, to be sent
// in the arguments of a task.
template <class T>
struct SharedSpan {
  std::uint64_t block = 0;        // the SharedMemory that it belongs to
  std::uint64_t block_bytes = 0;  // the size of that block
  std::uint64_t first = 0;        // index of its first value in the block
  std::uint64_t count = 0;

  SharedSpan subspan(std::uint64_t from, std::uint64_t values) const {
    BERTH_ASSERT(from <= count && values <= count - from);
    return {block, block_bytes, first + from, values};
  }
};

// Shared handle. After the last copy is gone, the memory may be reused without being cleared, so keep a copy
// until the tasks that use the memory have ended. Every task can write to all shared memory.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(std::span<std::byte> bytes, std::uint64_t block, std::shared_ptr<void> owner)
      : bytes_(bytes), block_(block), owner_(std::move(owner)) {}
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  // The values, for use in the program itself.
  template <class T>
  std::span<T> as() const noexcept {
    static_assert(std::is_trivially_copyable_v<T>, "shared memory holds plain data");
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  // An argument for a task, in which WorkerContext::shared returns the values.
  template <class T>
  SharedSpan<T> as_argument() const noexcept {
    return {block_, bytes_.size(), 0, bytes_.size() / sizeof(T)};
  }

 private:
  std::span<std::byte> bytes_;
  std::uint64_t block_ = 0;
  std::shared_ptr<void> owner_;
};

// What a task works with, in the worker. Valid only while the task runs.
class WorkerContext final : public TaskContext {
 public:
  // Finds a block of shared memory, and prepares it for copies with the device.
  using Find = std::function<Result<std::span<std::byte>>(std::uint64_t block, std::uint64_t bytes)>;
  WorkerContext(TaskContext& on, const Find& find, const std::atomic<std::uint32_t>* cancelled) noexcept
      : on_(on), find_(find), cancelled_(cancelled) {}

  Device& device() noexcept override { return on_.device(); }
  Result<Stream*> stream() override {
    used_stream_ = true;
    return on_.stream();
  }
  bool used_stream() const noexcept { return used_stream_; }
  void decline() noexcept override { declined_ = true; }
  bool has_declined() const noexcept { return declined_; }
  void restart_measurement() noexcept override { on_.restart_measurement(); }
  Deadline deadline() const noexcept override { return on_.deadline(); }
  bool cancelled() const noexcept override {
    return (cancelled_ && cancelled_->load(std::memory_order_relaxed) != 0) || on_.cancelled();
  }
  // If this device cannot load the kernel, a task that ends with the returned error is given to another device.
  Result<std::shared_ptr<LoadedKernel>> load(const Kernel& kernel) override {
    auto loaded = on_.load(kernel);
    if (!loaded && loaded.error().code == ErrorCode::not_supported) decline();
    return loaded;
  }

  // Copies with the device reach these values at the full rate of the link. A span that is not
  // within the shared memory is invalid_argument.
  template <class T>
  Result<std::span<T>> shared(const SharedSpan<T>& span) {
    static_assert(std::is_trivially_copyable_v<T>, "shared memory holds plain data");
    const std::span<std::byte> bytes = BERTH_TRY(find_(span.block, span.block_bytes));
    const std::uint64_t values = bytes.size() / sizeof(T);
    if (span.first > values || span.count > values - span.first)
      return Error{ErrorCode::invalid_argument, "the span is not within its shared memory",
                   "send SharedMemory::as_argument() or a subspan of it"};
    return std::span<T>(reinterpret_cast<T*>(bytes.data()) + span.first, span.count);
  }

 private:
  TaskContext& on_;
  const Find& find_;
  const std::atomic<std::uint32_t>* const cancelled_;
  bool used_stream_ = false;
  bool declined_ = false;
};

namespace detail {

// The largest size of a task's arguments, and of its value; larger data goes through shared memory.
inline constexpr std::size_t worker_message_bytes_max = 4096;
inline constexpr std::size_t task_name_bytes_max = 128;

template <class T>
concept PlainData = std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> && !std::is_pointer_v<T> &&
                    sizeof(T) <= worker_message_bytes_max;

struct TaskDefinition {
  std::string name;
  std::string source;  // file and line
  std::size_t argument_bytes = 0;
  std::size_t value_bytes = 0;
  // Both run in a worker only. `state` is what `init` returned; null without an init.
  std::function<Result<void>(WorkerContext&, std::span<const std::byte> arguments, std::span<std::byte> value,
                             void* state)>
      call;
  std::function<Result<std::shared_ptr<void>>(WorkerContext&)> init;
};
// Two tasks with the same name stop the program. A task that a header defines in several files counts once.
void define_task(TaskDefinition definition);

struct WorkerCall {
  std::string_view task;
  std::span<const std::byte> arguments;
  std::span<std::byte> value;
  bool may_run_twice = false;
  Priority priority = Priority::normal;
  // The runs of this piece of work, on all devices that received it.
  struct Runs {
    int begun = 0;
    int deaths = 0;  // of workers that were running it
  };
  Runs* runs = nullptr;
};
// Runs the task in the worker of the context's device and blocks until it has ended.
Result<void> call_worker(const std::weak_ptr<worker::WorkersState>& workers, TaskContext& context,
                         const WorkerCall& call);

}  // namespace detail

namespace detail {
struct TaskSource;
}

// A task with this name, defined by BERTH_TASK in this program, or in a library that its workers load.
template <class Arguments, class Value>
class WorkerTask {
  static_assert(detail::PlainData<Arguments> && detail::PlainData<Value>,
                "the arguments and the value of a task are plain data of at most 4096 bytes: trivially copyable, "
                "default constructible, no pointer; larger data goes through Workers::share");

 public:
  template <std::size_t size>
  consteval explicit WorkerTask(const char (&name)[size]) noexcept : name_(name, size - 1) {}
  explicit WorkerTask(const detail::TaskSource& task) noexcept;
  std::string_view name() const noexcept { return name_; }

 private:
  std::string_view name_;  // static
};

namespace detail {

template <class T>
using value_of_task = typename ValueOf<std::remove_cvref_t<T>>::type;

struct TaskSource {
  std::string_view name;  // static
  std::string source;
};

}  // namespace detail

template <class Arguments, class Value>
WorkerTask<Arguments, Value>::WorkerTask(const detail::TaskSource& task) noexcept : name_(task.name) {}

namespace detail {

template <class Arguments, class Returned, class Call>
WorkerTask<Arguments, value_of_task<Returned>> defined_task(
    const TaskSource& task, Call call, std::function<Result<std::shared_ptr<void>>(WorkerContext&)> init) {
  using Value = value_of_task<Returned>;
  auto on_bytes = [call](WorkerContext& context, std::span<const std::byte> arguments, std::span<std::byte> value,
                         void* state) -> Result<void> {
    Arguments in;
    std::memcpy(&in, arguments.data(), sizeof in);
    std::optional<Value> out;
    auto with_state = [&]() -> Returned { return call(context, in, state); };
    BERTH_TRY(call_into(out, with_state));
    std::memcpy(value.data(), &*out, sizeof(Value));
    return {};
  };
  define_task(
      {std::string(task.name), task.source, sizeof(Arguments), sizeof(Value), std::move(on_bytes), std::move(init)});
  return WorkerTask<Arguments, Value>(task);
}

template <class Returned, class Arguments>
auto define(const TaskSource& task, Returned (*call)(WorkerContext&, const Arguments&)) {
  return defined_task<Arguments, Returned>(
      task, [call](WorkerContext& context, const Arguments& in, void*) { return call(context, in); }, {});
}
template <class Returned, class Arguments, class State>
auto define(const TaskSource& task, Returned (*call)(WorkerContext&, const Arguments&, State&),
            Result<State> (*init)(WorkerContext&)) {
  auto make_state = [init](WorkerContext& context) -> Result<std::shared_ptr<void>> {
    std::optional<State> state;
    auto call_init = [&] { return init(context); };
    BERTH_TRY(call_into(state, call_init));
    return std::shared_ptr<void>(std::make_shared<State>(*std::move(state)));
  };
  return defined_task<Arguments, Returned>(
      task,
      [call](WorkerContext& context, const Arguments& in, void* state) {
        return call(context, in, *static_cast<State*>(state));
      },
      make_state);
}
// Accepts functions and lambdas without captures.
template <class Call>
auto make_task(const TaskSource& task, Call call) {
  static_assert(
      requires { define(task, +call); },
      "a task is a function, or a lambda without captures and without auto: "
      "Value f(berth::WorkerContext&, const Arguments&)");
  return define(task, +call);
}
template <class Call, class Init>
auto make_task(const TaskSource& task, Call call, Init init) {
  static_assert(
      requires { define(task, +call, +init); },
      "a task with an init is two functions, or lambdas without captures and without auto: "
      "Value f(berth::WorkerContext&, const Arguments&, State&), "
      "berth::Result<State> init(berth::WorkerContext&)");
  return define(task, +call, +init);
}

}  // namespace detail

// Defines a task, at namespace scope: BERTH_TASK(name, function) or BERTH_TASK(name, function, init).
//   Value | Result<Value> function(WorkerContext&, const Arguments&)
//   Value | Result<Value> function(WorkerContext&, const Arguments&, State&)   with an init:
//   Result<State> init(WorkerContext&)
// init runs in every worker before its first task, also in a replacement: it creates what the tasks need on the
// device (buffers, kernels, weights). If init fails with not_supported, the task does not run on that device;
// another error stops the worker. A worker runs several tasks at a time, and they share the State. Workers are
// killed without running destructors.
//
// Task names do not include a namespace; a second task of the same name stops the program at its
// start. A broken task may return bits that are not valid for its type, such as a bool of 7.
#define BERTH_TASK(name, ...)               \
  [[maybe_unused]] static const auto name = \
      ::berth::detail::make_task({#name, __FILE__ ":" + std::to_string(__LINE__)}, __VA_ARGS__)

// In a worker, which is another process of this program, runs tasks until the program has ended, and does not
// return. Elsewhere it returns immediately.
void worker_entry(int argc, char** argv);

struct WorkerOptions {
  // The program that a worker executes. Empty: this program, whose main must begin with worker_entry. Otherwise
  // the path of berth-worker, which loads `libraries` that define the tasks. PATH is not searched.
  std::string program = {};
  std::vector<std::string> libraries = {};
  // The size of the memory for share(); pages take up memory only once they are written.
  std::uint64_t shared_bytes = std::uint64_t{1} << 30;
  // A worker is replaced if its private host memory exceeds this. Absent: no limit.
  std::optional<std::uint64_t> host_memory_bytes_max = {};
  // How long a worker may take to start, until its device is open and every init has returned.
  Duration start_deadline = std::chrono::seconds(30);
  // How long a killed worker may take to end; after that its device is not used until it has ended.
  Duration kill_deadline = std::chrono::seconds(10);
};

struct WorkerStatus {
  DeviceId device;
  std::optional<std::uint32_t> pid;  // absent: it is being replaced, or its device is out of service
  std::uint64_t starts = 0;          // of workers for this device
  std::uint64_t deaths = 0;          // how many of those workers have died
  std::optional<Error> last_death;   // why the last one died
  std::optional<Error> out_of_service;
};

// Thread-safe. Workers also end with the program, however it ends.
//
// When a worker dies, work that it had begun and that may run twice (TaskOptions::may_run_twice) runs
// once more, alone in the next worker; other work that it had begun ends with worker_lost. Work that
// was running when two workers died ends with poison_task, and the device is not blamed for these
// deaths. When four workers of a device have died within a minute, and no task is known to be the
// cause, the device is out of service for a minute. It is also out of service while a worker cannot be
// ended. Work then goes to other devices, or ends with `unavailable`.
class Workers {
 public:
  // Starts a worker for every usable device of the pool and waits until they are ready. Simulated devices and
  // partitions of a GPU cannot have workers: not_supported.
  static Result<Workers> start(const Scheduler& scheduler, WorkerOptions options = {});
  Workers(Workers&&) noexcept = default;
  Workers& operator=(Workers&& other) noexcept {
    Workers old(std::move(other));
    std::swap(scheduler_, old.scheduler_);
    std::swap(state_, old.state_);
    return *this;
  }
  // Waiting work ends with `cancelled`. Running tasks are cancelled, and killed with their worker if
  // they do not stop within a second.
  ~Workers();

  // If the deadline passes while the task runs and the task does not return by itself, its worker is killed.
  template <class Arguments, class Value>
  [[nodiscard]] Task<Value> submit(const WorkerTask<Arguments, Value>& task,
                                   const std::type_identity_t<Arguments>& arguments,
                                   const TaskOptions& options = {}) const {
    auto closure = [workers = std::weak_ptr(state_), what = call_of(task, options), arguments,
                    runs = detail::WorkerCall::Runs()](TaskContext& context) mutable {
      return call<Value>(workers, context, what, arguments, runs);
    };
    return scheduler_.submit(std::move(closure), limited(options));
  }
  // The same without a lane: blocks the calling thread until the worker has answered.
  template <class Arguments, class Value>
  Result<TaskResult<Value>> run(const WorkerTask<Arguments, Value>& task,
                                const std::type_identity_t<Arguments>& arguments,
                                const TaskOptions& options = {}) const {
    detail::WorkerCall::Runs runs;
    auto closure = [&](TaskContext& context) {
      return call<Value>(state_, context, call_of(task, options), arguments, runs);
    };
    return scheduler_.run(closure, limited(options));
  }
  // Runs the task for every item, over all devices, and blocks until all have ended; the results are in the
  // order of the items.
  template <class Arguments, class Value>
  [[nodiscard]] std::vector<Result<TaskResult<Value>>> map(const WorkerTask<Arguments, Value>& task,
                                                           std::span<const std::type_identity_t<Arguments>> items,
                                                           const TaskOptions& options = {}) const {
    std::vector<detail::WorkerCall::Runs> runs(items.size());
    auto on_item = [&, what = call_of(task, options)](TaskContext& context, const Arguments& item) {
      return call<Value>(state_, context, what, item, runs[static_cast<std::size_t>(&item - items.data())]);
    };
    return scheduler_.map(items, on_item, limited(options));
  }

  // Allocates memory that all workers can access; out_of_memory if WorkerOptions::shared_bytes are all in use.
  Result<SharedMemory> share(std::uint64_t bytes) const;
  std::vector<WorkerStatus> status() const;

 private:
  Workers(Scheduler scheduler, std::shared_ptr<worker::WorkersState> state) noexcept
      : scheduler_(std::move(scheduler)), state_(std::move(state)) {}
  // Kernels are loaded in the worker; here they only determine which devices can run the work.
  TaskOptions limited(TaskOptions options) const;

  template <class Arguments, class Value>
  static detail::WorkerCall call_of(const WorkerTask<Arguments, Value>& task, const TaskOptions& options) {
    return {task.name(), {}, {}, options.may_run_twice, options.requirements.priority.value_or(Priority::normal), {}};
  }
  template <class Value, class Arguments>
  static Result<Value> call(const std::weak_ptr<worker::WorkersState>& workers, TaskContext& context,
                            detail::WorkerCall what, const Arguments& arguments, detail::WorkerCall::Runs& runs) {
    Value value;
    what.arguments = std::as_bytes(std::span(&arguments, 1));
    what.value = std::as_writable_bytes(std::span(&value, 1));
    what.runs = &runs;
    BERTH_TRY(detail::call_worker(workers, context, what));
    return value;
  }

  Scheduler scheduler_;
  std::shared_ptr<worker::WorkersState> state_;
};

}  // namespace berth
