#include "worker/workers_state.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "pool/internals.hpp"

namespace berth::worker {
namespace {

// A worker has one mailbox, with its own thread, for each task that the device runs at a time.
std::uint32_t mailboxes_for(const DeviceInfo& info) { return std::clamp<std::uint32_t>(info.concurrency, 1, 64); }

// Parts of the processor do not count, because a worker can open them like the whole.
bool is_partition(const DeviceInfo& info) {
  return info.backend != "host" && info.parent && info.id.text().starts_with(info.parent->text() + "/");
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable) variables.emplace_back(*variable);
  return variables;
}

int milliseconds_until(TimePoint when, TimePoint now) {
  if (when == TimePoint::max()) return -1;
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(when - now).count();
  return static_cast<int>(std::clamp<std::int64_t>(rest, 0, 3'600'000));
}

}  // namespace

WorkersState::WorkersState(WorkerOptions options, const Pool& pool, std::shared_ptr<SharedArena> arena,
                           world::Descriptor wake)
    : options_(std::move(options)),
      environment_(std::make_shared<const std::vector<std::string>>(own_environment())),
      backends_(detail::PoolInternals::backend_options(pool)),
      clock_(pool.clock()),
      arena_(std::move(arena)),
      wake_(std::move(wake)),
      process_(getpid()),
      supervisor_([this] { supervise(); }) {}

WorkersState::~WorkersState() {
  stopping_.store(true);
  wake_supervisor();
  supervisor_.join();
}

Result<DeviceWorker*> WorkersState::worker_of(const Device& device) {
  const std::lock_guard lock(mutex_);
  if (const auto found = workers_.find(device.id()); found != workers_.end()) return found->second.get();
  if (closed_) return Error{ErrorCode::cancelled, "the workers were closed before the work began"};
  const DeviceInfo& info = device.info();
  if (info.backend == "simulated" || is_partition(info))
    return Error{ErrorCode::not_supported,
                 is_partition(info) ? "a partition of a GPU cannot have a worker: processes take turns on the chip"
                                    : "a simulated device cannot have a worker: it exists in this program only",
                 "open the pool without it", info.id.text()};
  DeviceWorker::Options options;
  options.program = options_.program;
  options.environment = environment_;
  options.setup.parent = getpid();
  options.setup.mailboxes = mailboxes_for(info);
  options.setup.host_devices = backends_.host_devices;
  options.setup.backend = info.backend;
  options.setup.device = info.id.text();
  std::string libraries;
  for (const std::string& library : options_.libraries) libraries += library + "\n";
  options.setup.libraries = libraries;
  options.shared = arena_->descriptor();
  options.host_memory_bytes_max = options_.host_memory_bytes_max;
  options.start_deadline = options_.start_deadline;
  options.kill_deadline = options_.kill_deadline;
  auto added = std::make_unique<DeviceWorker>(info.id, std::move(options), [this] { wake_supervisor(); });
  DeviceWorker* const worker = added.get();
  workers_.emplace(info.id, std::move(added));
  wake_supervisor();
  return worker;
}

Result<void> WorkersState::call(TaskContext& context, const detail::WorkerCall& call) {
  Result<DeviceWorker*> worker = worker_of(context.device());
  if (worker) return (*worker)->call(context, call, clock_);
  context.decline();
  return std::move(worker).error();
}

std::vector<DeviceWorker*> WorkersState::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<DeviceWorker*> all;
  for (const auto& [id, worker] : workers_) all.push_back(worker.get());
  return all;
}

std::vector<WorkerStatus> WorkersState::status() const {
  std::vector<WorkerStatus> status;
  for (const DeviceWorker* worker : all()) status.push_back(worker->status());
  return status;
}

bool WorkersState::is_of_another_process() const noexcept { return getpid() != process_; }

void WorkersState::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  for (DeviceWorker* worker : all()) worker->close();
}

void WorkersState::wake_supervisor() const noexcept { eventfd_write(wake_.get(), 1); }

void WorkersState::supervise() noexcept {
  for (;;) {
    const bool stopping = stopping_.load();
    const std::vector<DeviceWorker*> workers = all();
    const TimePoint now = real_clock().now();
    TimePoint next = TimePoint::max();
    std::vector<pollfd> watched{{wake_.get(), POLLIN, 0}};
    bool all_gone = true;
    for (DeviceWorker* worker : workers) {
      if (stopping) worker->stop();
      next = std::min(next, worker->step(now));
      all_gone = all_gone && worker->is_gone();
      for (const int descriptor : worker->descriptors()) watched.push_back({descriptor, POLLIN, 0});
    }
    if (stopping && all_gone) return;
    poll(watched.data(), watched.size(), milliseconds_until(next, now));
    if (watched[0].revents != 0) {
      eventfd_t count = 0;
      eventfd_read(wake_.get(), &count);
    }
  }
}

}  // namespace berth::worker
