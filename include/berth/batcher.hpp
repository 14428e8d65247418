// Batcher: collects single items and runs them together, because a device is faster with many at a
// time. A batch goes to the scheduler when it is full, when its first item has waited long enough, or
// on demand; several batches may be in progress. Every item has its own task. Thread-safe.
#pragma once

#include "berth/version.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "berth/scheduler.hpp"

namespace berth {

struct BatchOptions {
  std::size_t max_batch = 32;
  Duration max_wait = std::chrono::milliseconds(2);  // how long the first item of a batch waits for others
  // The most unfinished items, waiting or in batches. The task of any further item ends with
  // queue_full.
  std::size_t max_items = 1024;
  // The options of every batch: the cost is per item, and the deadline is one point in time for all
  // of them. Batches are limited by max_items instead of the capacity of the queue.
  TaskOptions task = {};
};

namespace detail {

// One item, from Batcher::submit to the end of its batch.
class BatchItem : public TaskState {
 public:
  BatchItem() : TaskState(2) {}  // the handle and the batch
  void cancel() noexcept override { cancelled.store(true, std::memory_order_relaxed); }
  void finish(std::optional<Error> how, const DeviceId& where) noexcept {
    error = std::move(how);
    device = where;
    end();
    drop();
  }
  std::atomic<bool> cancelled{false};  // keeps it out of batches that have not been made yet
};

// The part of a batcher that does not depend on the type of its items; see src/scheduler/batcher.cpp.
class BatchQueue {
 public:
  using Items = std::vector<BatchItem*>;
  // Runs a batch on a lane; `kept` is released when the device is done with the batch.
  using Run = std::function<Result<void>(TaskContext&, const Items&, std::shared_ptr<void>& kept)>;
  // Gives every item its value; called when the device is done.
  using Deliver = void (*)(const Items&, void* kept);

  static Result<std::shared_ptr<BatchQueue>> make(const Scheduler& scheduler, BatchOptions options, Run run,
                                                  Deliver deliver);
  virtual ~BatchQueue() = default;
  virtual void add(BatchItem& item) = 0;
  virtual void flush() = 0;
  // Refuses the waiting items and all later ones.
  virtual void close() noexcept = 0;
};

}  // namespace detail

template <class In, class Out>
class Batcher {
 public:
  // `f(TaskContext&, std::span<In>)` returns std::vector<Out>, or a Result of it, with one value per
  // item in the order of the items; a different number, an error or an exception fails all items of
  // the batch. It is called from several threads at a time. A `max_batch` of 0 is invalid_argument.
  template <class F>
  static Result<Batcher> start(const Scheduler& scheduler, F f, BatchOptions options = {}) {
    auto run = [f = std::make_shared<F>(std::move(f))](TaskContext& context, const detail::BatchQueue::Items& items,
                                                       std::shared_ptr<void>& kept) {
      if (!kept) kept = std::make_shared<Batch>(items);
      return run_batch(*f, context, *static_cast<Batch*>(kept.get()));
    };
    Result<std::shared_ptr<detail::BatchQueue>> queue =
        detail::BatchQueue::make(scheduler, std::move(options), std::move(run), deliver);
    if (!queue) return std::move(queue).error();
    return Batcher(*std::move(queue));
  }
  // Items that wait for their batch end with `cancelled`; batches in progress continue.
  ~Batcher() {
    if (queue_) queue_->close();
  }
  Batcher(Batcher&& other) noexcept = default;
  Batcher& operator=(Batcher&& other) noexcept {
    std::swap(queue_, other.queue_);
    return *this;
  }

  // Does not block. Cancelling the task has no effect once its batch has been made.
  [[nodiscard]] Task<Out> submit(In item) const {
    auto* const added = new Item(std::move(item));
    Task<Out> task(added, &added->value);
    queue_->add(*added);
    return task;
  }
  // Submits the waiting items now, without waiting for more.
  void flush() const { queue_->flush(); }

 private:
  struct Item final : detail::BatchItem {
    explicit Item(In given) : in(std::move(given)) {}
    In in;
    std::optional<Out> value;
  };

  struct Batch {
    explicit Batch(const detail::BatchQueue::Items& items) {
      in.reserve(items.size());
      for (detail::BatchItem* item : items) in.push_back(std::move(static_cast<Item*>(item)->in));
    }
    std::vector<In> in;
    std::optional<std::vector<Out>> out;
  };

  explicit Batcher(std::shared_ptr<detail::BatchQueue> queue) noexcept : queue_(std::move(queue)) {}

  template <class F>
  static Result<void> run_batch(F& f, TaskContext& context, Batch& batch) {
    if (Result<void> called = detail::call_into(batch.out, f, context, std::span<In>(batch.in)); !called) return called;
    if (batch.out->size() == batch.in.size()) return {};
    return Error{ErrorCode::work_failed,
                 "the batch has " + std::to_string(batch.in.size()) + " items and gave " +
                     std::to_string(batch.out->size()) + " results",
                 "return one result per item"};
  }
  static void deliver(const detail::BatchQueue::Items& items, void* kept) {
    std::vector<Out>& out = *static_cast<Batch*>(kept)->out;
    for (std::size_t i = 0; i < items.size(); ++i) static_cast<Item*>(items[i])->value = std::move(out[i]);
  }

  std::shared_ptr<detail::BatchQueue> queue_;
};

}  // namespace berth
