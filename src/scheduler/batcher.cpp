#include "berth/batcher.hpp"

#include <condition_variable>
#include <mutex>

#include "scheduler/scheduler_state.hpp"

namespace berth::scheduler {
namespace {

Error closed_error() { return {ErrorCode::cancelled, "the batcher was shut down before the work began"}; }

class Queue final : public detail::BatchQueue, public std::enable_shared_from_this<Queue> {
 public:
  Queue(std::shared_ptr<SchedulerState> scheduler, BatchOptions options, Run run, Deliver deliver)
      : clock_(scheduler->clock()),
        options_(std::move(options)),
        run_(std::move(run)),
        deliver_(deliver),
        scheduler_raw_(scheduler.get()),
        scheduler_(std::move(scheduler)) {}

  void add(detail::BatchItem& item) override {
    item.clock = &clock_;
    Items full;
    {
      std::unique_lock lock(mutex_);
      if (!scheduler_ || items_ >= options_.max_items) {
        const bool closed = !scheduler_;
        lock.unlock();
        return item.finish(closed ? closed_error() : full_error(), {});
      }
      ++items_;
      waiting_.push_back(&item);
      if (waiting_.size() == 1 && options_.max_batch > 1) begin_wait();
      if (waiting_.size() >= options_.max_batch) full = take();
      ++handing_over_;
    }
    hand_over(std::move(full));
  }

  void flush() override {
    Items batch;
    {
      const std::lock_guard lock(mutex_);
      if (!scheduler_) return;
      batch = take();
      ++handing_over_;
    }
    hand_over(std::move(batch));
  }

  void close() noexcept override {
    Items left;
    std::shared_ptr<SchedulerState> scheduler;
    {
      std::unique_lock lock(mutex_);
      left = take();
      // A running batch keeps this queue alive, but must not keep the scheduler alive, because it runs on one of its
      // lanes.
      scheduler = std::move(scheduler_);
      // Waits for a batch that the timer is submitting. Work that runs on the scheduler itself cannot wait for that.
      if (!scheduler->is_on_own_thread()) handed_over_.wait(lock, [&] { return handing_over_ == 0; });
    }
    for (detail::BatchItem* item : left) item->finish(closed_error(), {});
  }

 private:
  Error full_error() const {
    return {ErrorCode::queue_full, std::to_string(options_.max_items) + " items are under way",
            "wait for some to end, or raise max_items"};
  }

  // Requires the lock.
  void begin_wait() {
    due_ = Deadline::after(clock_, options_.max_wait).at;
    scheduler_->timer().call_at(due_, this, [queue = weak_from_this()] {
      if (const std::shared_ptr<Queue> alive = queue.lock()) alive->flush();
    });
  }
  // Requires the lock.
  Items take() {
    if (!waiting_.empty() && scheduler_) scheduler_->timer().remove(due_, this);
    return std::exchange(waiting_, {});
  }

  // A batch is one job for the scheduler. Its items end when it ends.
  class Batch final : public Job {
   public:
    Batch(std::shared_ptr<Queue> queue, Items items) : Job(1), queue_(std::move(queue)), items_(std::move(items)) {
      exempt = true;  // max_items limits it
    }
    Result<void> call(TaskContext& context) override { return queue_->run_(context, items_, kept_); }
    void before_end() noexcept override {
      if (!error) queue_->deliver_(items_, kept_.get());
      {
        const std::lock_guard lock(queue_->mutex_);
        queue_->items_ -= items_.size();
      }
      for (detail::BatchItem* item : items_) item->finish(error, device);
    }

   private:
    const std::shared_ptr<Queue> queue_;
    const Items items_;
    std::shared_ptr<void> kept_;
  };

  void hand_over(Items batch) {
    submit(std::move(batch));
    const std::lock_guard lock(mutex_);
    if (--handing_over_ == 0) handed_over_.notify_all();
  }

  void submit(Items batch) {
    Items cancelled;
    std::erase_if(batch, [&](detail::BatchItem* item) {
      if (!item->cancelled.load(std::memory_order_relaxed)) return false;
      cancelled.push_back(item);
      return true;
    });
    if (!cancelled.empty()) {
      {
        const std::lock_guard lock(mutex_);
        items_ -= cancelled.size();
      }
      for (detail::BatchItem* item : cancelled) item->finish(withdrawn_error({}), {});
    }
    if (batch.empty()) return;
    TaskOptions task = options_.task;
    task.requirements.cost *= static_cast<double>(batch.size());
    scheduler_raw_->enqueue(*new Batch(shared_from_this(), std::move(batch)), task);
  }

  Clock& clock_;
  const BatchOptions options_;
  const Run run_;
  const Deliver deliver_;
  SchedulerState* const scheduler_raw_;        // used while submitting, which close() waits for
  std::mutex mutex_;                           // guards everything below
  std::shared_ptr<SchedulerState> scheduler_;  // null once closed
  Items waiting_;                              // in the order of arrival
  TimePoint due_{};                            // when the waiting items are submitted
  std::size_t items_ = 0;
  std::size_t handing_over_ = 0;  // threads in hand_over
  std::condition_variable handed_over_;
};

}  // namespace
}  // namespace berth::scheduler

namespace berth::detail {

Result<std::shared_ptr<BatchQueue>> BatchQueue::make(const Scheduler& scheduler, BatchOptions options, Run run,
                                                     Deliver deliver) {
  const auto wrong = [](std::string what) {
    return Error{ErrorCode::invalid_argument, std::move(what), "see BatchOptions"};
  };
  if (options.max_batch == 0) return wrong("a batch has at least one item");
  if (options.max_items == 0) return wrong("a batcher takes at least one item at a time");
  if (options.max_wait < Duration::zero()) return wrong("the time to wait for more items is negative");
  return std::shared_ptr<BatchQueue>(
      std::make_shared<scheduler::Queue>(scheduler.state_, std::move(options), std::move(run), deliver));
}

}  // namespace berth::detail
