#include "scheduler/lanes.hpp"

#include <algorithm>
#include <system_error>

namespace berth::scheduler {
namespace {

thread_local const Scheduler* lane_of = nullptr;

// Lanes of the whole process that are awake without work. More than half of the
// processors would take time from those that have some.
std::atomic<std::uint32_t> awake_in_process{0};
const std::uint32_t awake_in_process_max = std::max(1U, std::thread::hardware_concurrency() / 2);

// About 20 us: longer than a producer's pause between two pieces of work it
// waits for, shorter than a noticeable load.
constexpr int awake_rounds = 600;

}  // namespace

void pause_briefly() noexcept {
  for (int i = 0; i < 64; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
}

bool on_lane_of(const Scheduler& scheduler) noexcept { return lane_of == &scheduler; }

DeviceLanes::DeviceLanes(Scheduler& scheduler, std::size_t lanes, std::size_t capacity)
    : scheduler_(scheduler), capacity_(capacity + lanes) {
  threads_.reserve(lanes);
  for (std::size_t i = 0; i < lanes; ++i) {
    try {
      threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
      break;
    }
  }
}

DeviceLanes::~DeviceLanes() {
  stop();
  join();
}

bool DeviceLanes::enter(bool exempt) noexcept {
  if (places_.fetch_add(1, std::memory_order_relaxed) < capacity_ || exempt) return true;
  leave();
  return false;
}

void DeviceLanes::push(detail::Job& job) noexcept {
  detail::Job* head = inbox_.load(std::memory_order_relaxed);
  do job.next_ = head;
  while (!inbox_.compare_exchange_weak(head, &job, std::memory_order_seq_cst, std::memory_order_relaxed));
  // A lane that is awake looks at the inbox after it has counted itself out, so
  // it finds the job, and wakes another one if it leaves any.
  if (awake_.load(std::memory_order_seq_cst) == 0 && parked_.load(std::memory_order_seq_cst) > 0) {
    {
      const std::lock_guard lock(mutex_);
    }
    pushed_.notify_one();
  }
}

void DeviceLanes::sort_inbox() {
  detail::Job* job = inbox_.exchange(nullptr, std::memory_order_seq_cst);
  detail::Job* in_order = nullptr;
  while (job) {
    detail::Job* const rest = job->next_;
    job->next_ = in_order;
    in_order = job;
    job = rest;
  }
  while (in_order) {
    detail::Job* const rest = in_order->next_;
    queue_.push(*in_order);
    in_order = rest;
  }
}

detail::Job* DeviceLanes::take() {
  sort_inbox();
  while (detail::Job* const job = queue_.pop()) {
    if (job->claim(detail::Job::running)) {
      if (parked_.load(std::memory_order_relaxed) > 0 && !queue_.empty()) pushed_.notify_one();
      return job;
    }
    job->drop();  // withdrawn a moment ago; the thread that did it ends it
  }
  return nullptr;
}

bool DeviceLanes::stay_awake() const noexcept {
  for (int i = 0; i < awake_rounds; ++i) {
    if (inbox_.load(std::memory_order_relaxed) || stopping_.load(std::memory_order_relaxed)) return true;
    pause_briefly();
  }
  return false;
}

detail::Job* DeviceLanes::next() {
  std::unique_lock lock(mutex_);
  for (bool rested = false;;) {
    if (stopping_.load(std::memory_order_relaxed)) return nullptr;
    if (detail::Job* const job = take()) return job;
    if (!rested) {
      rested = true;
      if (awake_in_process.fetch_add(1, std::memory_order_relaxed) < awake_in_process_max) {
        awake_.fetch_add(1, std::memory_order_seq_cst);
        lock.unlock();
        rested = !stay_awake();
        awake_.fetch_sub(1, std::memory_order_seq_cst);
        lock.lock();
      }
      awake_in_process.fetch_sub(1, std::memory_order_relaxed);
      continue;
    }
    parked_.fetch_add(1, std::memory_order_seq_cst);
    if (!inbox_.load(std::memory_order_seq_cst) && !stopping_.load(std::memory_order_relaxed)) pushed_.wait(lock);
    parked_.fetch_sub(1, std::memory_order_relaxed);
    rested = false;
  }
}

void DeviceLanes::serve() noexcept {
  lane_of = &scheduler_;
  while (detail::Job* const job = next()) scheduler_.run_job(*job);
}

void DeviceLanes::withdraw(detail::Job& job, Error error) noexcept {
  bool was_queued = false;
  {
    const std::lock_guard lock(mutex_);
    sort_inbox();
    was_queued = job.linked_;
    if (was_queued) queue_.erase(job);
  }
  job.device_ = job.lease_.id();
  job.lease_.release();
  leave();
  error.where = job.device_.text();
  job.end(std::move(error));
  if (was_queued) job.drop();
}

void DeviceLanes::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_.store(true, std::memory_order_relaxed);
  }
  pushed_.notify_all();
}

void DeviceLanes::cancel_waiting() noexcept {
  for (;;) {
    detail::Job* job = nullptr;
    {
      const std::lock_guard lock(mutex_);
      sort_inbox();
      job = queue_.pop();
    }
    if (!job) return;
    if (job->claim(detail::Job::ending))
      withdraw(*job, {ErrorCode::cancelled, "the scheduler was shut down before the work began"});
    job->drop();
  }
}

void DeviceLanes::join() noexcept {
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

Result<KeptStream> DeviceLanes::borrow_stream(Device& device, Priority priority) {
  {
    const std::lock_guard lock(streams_mutex_);
    // Streams of a device whose place another one has taken are of no use.
    std::erase_if(streams_, [&](const KeptStream& idle) { return idle.device.get() != &device; });
    const auto found = std::find_if(streams_.begin(), streams_.end(),
                                    [&](const KeptStream& idle) { return idle.stream->priority() == priority; });
    if (found != streams_.end()) {
      std::swap(*found, streams_.back());
      KeptStream stream = std::move(streams_.back());
      streams_.pop_back();
      return stream;
    }
  }
  Result<std::unique_ptr<Stream>> opened = device.open_stream(priority);
  if (!opened) return std::move(opened).error();
  KeptStream stream{nullptr, std::move(opened).value()};
  if (Result<std::shared_ptr<Device>> owner = scheduler_.pool_->device(device.id()); owner && owner->get() == &device)
    stream.device = std::move(owner).value();
  return stream;
}

void DeviceLanes::return_stream(KeptStream stream) {
  if (!stream.device) return;
  const std::lock_guard lock(streams_mutex_);
  streams_.push_back(std::move(stream));
}

}  // namespace berth::scheduler
