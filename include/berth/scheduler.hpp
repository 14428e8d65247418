// Scheduler: what runs next. Work is a closure that gets an Execution (the
// device and a stream on it) and returns a value or a Result. It runs inline on
// the caller's thread (dispatch), on a device's lane (submit), or over all
// devices at once with results in order (map).
//
// Every piece of work ends in exactly one terminal state, and always
//   dispatched = completed + failed + cancelled + in flight
// per device and in total. Work deadline passed before it started: cancelled.
// A closure that throws has failed; nothing leaks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "berth/pool.hpp"
#include "berth/statistics.hpp"

namespace berth {

// What a closure gets to work with.
class Execution {
 public:
  virtual ~Execution() = default;
  virtual Device& device() noexcept = 0;
  // The lane's stream, opened on first use with the priority of the work. When
  // the closure has used it, the work is complete when the stream has drained.
  virtual Result<Stream*> stream() = 0;
  virtual Deadline deadline() const noexcept = 0;
  virtual bool cancelled() const noexcept = 0;
};

struct Work {
  Hints hints;
  Deadline deadline;           // not started by then: cancelled (timeout)
  bool may_run_twice = false;  // failed on the device's account: tried once more elsewhere
};

struct SchedulerOptions {
  std::optional<std::string> policy;  // absent: the pool's
  // Threads per device, each with its stream; absent: the device's concurrency.
  std::optional<std::size_t> lanes_per_device;
  std::size_t queue_capacity = 1024;  // per device, waiting work
};

// What a closure returns, without its Result; closures without a value give Done.
struct Done {};
template <class T>
struct ValueOf {
  using type = T;
};
template <>
struct ValueOf<void> {
  using type = Done;
};
template <class T>
struct ValueOf<Result<T>> : ValueOf<T> {};
template <class F, class... Args>
using value_of_t = typename ValueOf<std::invoke_result_t<F, Args...>>::type;

template <class T>
struct Dispatched {
  T value;
  DeviceId device;
};

// A piece of submitted work. Dropping the handle does not cancel the work.
template <class T>
class Task {
 public:
  // Waits; timeout leaves the work running. May be called once.
  Result<Dispatched<T>> get(Deadline deadline = {});
  bool ready() const;
  // Withdraws work that has not started; running work sees Execution::cancelled().
  void cancel();
};

class Scheduler {
 public:
  // Starts the lanes of every usable device. The pool outlives the scheduler.
  static Result<std::unique_ptr<Scheduler>> start(Pool& pool, SchedulerOptions options = {});
  // Cancels what waits, finishes what runs.
  ~Scheduler();

  // Selects, charges and runs `f(Execution&)` on the calling thread.
  template <class F>
  Result<Dispatched<value_of_t<F, Execution&>>> dispatch(F&& f, const Work& work = {});
  // Selects, charges and hands `f(Execution&)` to a lane of the device. A full
  // queue is queue_full, in the task.
  template <class F>
  Task<value_of_t<F, Execution&>> submit(F f, Work work = {});
  // f(Execution&, const Item&) for every item, over all devices at once; one
  // result per item, in the order of the items. A failing item stops no other.
  template <class Items, class F>
  auto map(const Items& items, F f, const Work& work = {})
      -> std::vector<Result<Dispatched<value_of_t<F, Execution&, decltype(*std::begin(items))>>>>;

  // The slot the policy would choose now; changes nothing.
  Result<DeviceId> select(const Hints& hints = {}) const;
  // A number for a class of work whose cost is learnt apart from other classes.
  std::uint16_t work_class(std::string_view name);
  Statistics statistics() const;
  Pool& pool() noexcept;
};

}  // namespace berth
