#include "scheduler/lanes.hpp"

#include <algorithm>
#include <system_error>

#include "scheduler/scheduler_state.hpp"

namespace berth::scheduler {
namespace {

thread_local const SchedulerState* thread_of = nullptr;

// The lanes of this process that are awake without work. If they were more than half of the processors, they would slow
// down lanes with work.
std::atomic<std::uint32_t> awake_in_process{0};
const std::uint32_t awake_in_process_max = std::max(1U, std::thread::hardware_concurrency() / 2);

}  // namespace

bool on_thread_of(const SchedulerState* scheduler) noexcept { return thread_of == scheduler; }
void mark_thread_of(const SchedulerState& scheduler) noexcept { thread_of = &scheduler; }

DeviceLanes::DeviceLanes(SchedulerState& scheduler, std::size_t lanes, std::size_t capacity)
    : scheduler_(scheduler),
      capacity_(std::min<std::size_t>(capacity, 1U << 30) + lanes),
      queue_([&tenants = scheduler.tenants()](TenantId tenant) { return tenants.weight(tenant); }) {
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

bool DeviceLanes::enter(const Job& job) noexcept {
  std::atomic<std::uint32_t>& taken = places_[static_cast<std::size_t>(job.tenant)];
  std::uint32_t seen = taken.load();
  while (seen < capacity_ || job.exempt)
    if (taken.compare_exchange_weak(seen, seen + 1)) return true;
  return false;
}

bool DeviceLanes::idle() const noexcept {
  return std::all_of(places_.begin(), places_.end(), [](const auto& taken) { return taken.load() == 0; });
}

bool DeviceLanes::enter_when_possible(const Job& job, const std::stop_token& stop, Clock& clock) {
  waiting_for_room_.fetch_add(1);
  const auto wake = [this] {
    const std::lock_guard lock(room_mutex_);
    room_made_.notify_all();
  };
  bool entered = false;
  {
    const std::stop_callback<decltype(wake)> on_stop(stop, wake);
    std::unique_lock lock(room_mutex_);
    while (!(entered = enter(job)) && !stop.stop_requested() && !job.deadline.passed(clock.now()))
      clock.wait_until(room_made_, lock, job.deadline.at);
  }
  waiting_for_room_.fetch_sub(1);
  return entered;
}

void DeviceLanes::leave(TenantId tenant) noexcept {
  places_[static_cast<std::size_t>(tenant)].fetch_sub(1);
  if (waiting_for_room_.load() == 0) return;
  const std::lock_guard lock(room_mutex_);
  room_made_.notify_all();
}

void DeviceLanes::push(Job& job) noexcept {
  job.woke_a_thread.store(awake_.load(std::memory_order_relaxed) == 0 && parked_.load(std::memory_order_relaxed) > 0,
                          std::memory_order_relaxed);
  Job* head = inbox_.load(std::memory_order_relaxed);
  do job.next = head;
  while (!inbox_.compare_exchange_weak(head, &job, std::memory_order_seq_cst, std::memory_order_relaxed));
  // An awake lane checks the inbox after it has decremented the count, so it finds the job, and
  // wakes another one if it leaves any.
  if (awake_.load(std::memory_order_seq_cst) == 0 && parked_.load(std::memory_order_seq_cst) > 0) {
    {
      const std::lock_guard lock(mutex_);
    }
    pushed_.notify_one();
  }
}

void DeviceLanes::sort_inbox() {
  Job* job = inbox_.exchange(nullptr, std::memory_order_seq_cst);
  Job* in_order = nullptr;
  while (job) {
    Job* const rest = job->next;
    job->next = in_order;
    in_order = job;
    job = rest;
  }
  while (in_order) {
    Job* const rest = in_order->next;
    queue_.push(*in_order);
    in_order = rest;
  }
}

Job* DeviceLanes::take(std::unique_lock<std::mutex>& lock) {
  sort_inbox();
  while (Job* const job = queue_.pop()) {
    if (job->claim(Job::Stage::running)) {
      if (parked_.load(std::memory_order_relaxed) > 0 && !queue_.empty()) pushed_.notify_one();
      return job;
    }
    // A thread has just withdrawn the job and ends it. The lock is released, because destroying what the job owns may
    // call back.
    lock.unlock();
    job->drop();
    lock.lock();
    sort_inbox();
  }
  return nullptr;
}

bool DeviceLanes::stay_awake() const noexcept {
  return poll_briefly(
      [&] { return inbox_.load(std::memory_order_relaxed) || stopping_.load(std::memory_order_relaxed); });
}

Job* DeviceLanes::next() {
  std::unique_lock lock(mutex_);
  for (bool rested = false;;) {
    if (stopping_.load(std::memory_order_relaxed)) return nullptr;
    if (Job* const job = take(lock)) return job;
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
  mark_thread_of(scheduler_);
  while (Job* const job = next()) scheduler_.run_job(*job);
}

bool DeviceLanes::unlink(Job& job) noexcept {
  const std::lock_guard lock(mutex_);
  sort_inbox();
  if (!job.linked) return false;
  queue_.erase(job);
  return true;
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
    Job* job = nullptr;
    {
      const std::lock_guard lock(mutex_);
      sort_inbox();
      job = queue_.pop();
    }
    if (!job) return;
    if (job->claim(Job::Stage::ending))
      scheduler_.withdraw(*job, {ErrorCode::cancelled, "the scheduler was shut down before the work began"});
    job->drop();
  }
}

void DeviceLanes::join() noexcept {
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

bool DeviceLanes::measures_next(TimePoint now) noexcept {
  if (measured_.load(std::memory_order_relaxed) < 16)
    measured_.fetch_add(1, std::memory_order_relaxed);
  else if (now - measured_at_.load(std::memory_order_relaxed) < std::chrono::milliseconds(10))
    return false;
  measured_at_.store(now, std::memory_order_relaxed);
  return true;
}

Result<KeptStream> DeviceLanes::borrow_stream(Device& device, Priority priority) {
  {
    const std::lock_guard lock(streams_mutex_);
    // Streams of a device that has been replaced are useless.
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
  if (Result<std::shared_ptr<Device>> owner = scheduler_.pool().device(device.id()); owner && owner->get() == &device)
    stream.device = std::move(owner).value();
  return stream;
}

void DeviceLanes::return_stream(KeptStream stream) {
  if (!stream.device) return;
  const std::lock_guard lock(streams_mutex_);
  streams_.push_back(std::move(stream));
}

}  // namespace berth::scheduler
