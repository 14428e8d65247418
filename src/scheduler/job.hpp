// Job: a piece of work inside the scheduler, shared by its handle and the queue it waits in. The thread that changes
// its stage from `waiting` owns it until it waits again or has ended.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <utility>

#include "berth/scheduler.hpp"

namespace berth::scheduler {

class DeviceLanes;
class Job;

struct CancelJob {
  Job* job;
  void operator()() const noexcept;
};

class Job : public detail::TaskState {
 public:
  enum class Stage : std::uint8_t { waiting, running, ending };

  virtual Result<void> call(TaskContext& context) = 0;
  void begin() noexcept {}  // a kind of job may have its own; see JobWithWork
  // Called once, on the thread that ends the job, before others can see the end.
  virtual void before_end() noexcept {}
  void cancel() noexcept override;

  // Changes the stage from `waiting` to `next`; false if another thread was first.
  bool claim(Stage next) noexcept {
    Stage seen = Stage::waiting;
    return stage.compare_exchange_strong(seen, next, std::memory_order_acq_rel);
  }
  // Ends the job, which the caller owns, with this outcome.
  void finish(std::optional<Error> how) noexcept {
    stage.store(Stage::ending, std::memory_order_relaxed);
    error = std::move(how);
    before_end();
    end();
  }

  std::atomic<Stage> stage{Stage::waiting};
  std::atomic<bool> cancel_requested{false};
  Priority priority = Priority::normal;
  TenantId tenant = TenantId::none;
  double cost = 1;
  bool exempt = false;  // limited by its map, not by the queue's capacity
  bool linked = false;  // guarded by the queue's lock, like the next three
  std::uint64_t arrival = 0;
  Job* next = nullptr;
  Job* previous = nullptr;
  Deadline deadline;
  SchedulerState* scheduler = nullptr;
  DeviceLanes* lanes = nullptr;  // the lanes that have it in their queue; null: none
  bool may_run_twice = false;
  bool may_decline = false;
  // Its kernels, and the options for another device; null: it has no kernels and goes to one device only.
  std::unique_ptr<TaskOptions> again;
  Lease lease;
  // Last member: its destructor waits for a call in progress.
  std::unique_ptr<std::stop_callback<CancelJob>> stop;

 protected:
  using TaskState::TaskState;
};

// Another thread may be dropping the last reference; it then waits for this call.
inline void CancelJob::operator()() const noexcept {
  Job& called = *job;
  if (!called.try_hold()) return;
  called.cancel();
  called.drop();
}

// The object that submit creates: a kind of job, followed in the same allocation by the work of the caller's type.
template <class Kind>
class JobWithWork final : public Kind {
 public:
  // Moves the closure `f`. Two references: one for the handle, and one for the thread that runs it.
  template <class... Arguments>
  static JobWithWork* make(const detail::WorkType& type, void* f, Arguments&&... arguments) {
    void* const at = allocate(type);
    try {
      type.make(work_at(at, type), f);
    } catch (...) {
      deallocate(at, type);
      throw;
    }
    try {
      return ::new (at) JobWithWork(type, std::forward<Arguments>(arguments)...);
    } catch (...) {
      type.destroy(work_at(at, type));
      deallocate(at, type);
      throw;
    }
  }

  Result<void> call(TaskContext& context) override {
    this->begin();
    return type_.call(work_at(this, type_), context);
  }
  detail::SubmittedWork submitted() noexcept { return {this, work_at(this, type_)}; }

  void operator delete(JobWithWork* job, std::destroying_delete_t) {
    const detail::WorkType& type = job->type_;
    job->~JobWithWork();
    deallocate(job, type);
  }

 private:
  template <class... Arguments>
  explicit JobWithWork(const detail::WorkType& type, Arguments&&... arguments)
      : Kind(2, std::forward<Arguments>(arguments)...), type_(type) {}
  ~JobWithWork() override { type_.destroy(work_at(this, type_)); }

  static std::size_t offset(const detail::WorkType& type) noexcept {
    return (sizeof(JobWithWork) + type.alignment - 1) / type.alignment * type.alignment;
  }
  static void* work_at(void* job, const detail::WorkType& type) noexcept {
    return static_cast<std::byte*>(job) + offset(type);
  }
  static bool is_overaligned(const detail::WorkType& type) noexcept {
    return std::max(alignof(JobWithWork), type.alignment) > __STDCPP_DEFAULT_NEW_ALIGNMENT__;
  }
  static std::align_val_t alignment(const detail::WorkType& type) noexcept {
    return std::align_val_t(std::max(alignof(JobWithWork), type.alignment));
  }
  static void* allocate(const detail::WorkType& type) {
    const std::size_t bytes = offset(type) + type.bytes;
    if (is_overaligned(type)) return ::operator new(bytes, alignment(type));
    return ::operator new(bytes);
  }
  // Does not use a conditional expression, because clang 19 evaluates both sides of one between calls of operator
  // delete.
  static void deallocate(void* at, const detail::WorkType& type) noexcept {
    if (is_overaligned(type))
      ::operator delete(at, alignment(type));
    else
      ::operator delete(at);
  }

  const detail::WorkType& type_;  // static
};

}  // namespace berth::scheduler
