// WorkersState: the workers of all devices, and the thread that starts, watches and ends them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/device_worker.hpp"
#include "worker/shared_arena.hpp"
#include "world/descriptor.hpp"

namespace berth::worker {

class WorkersState {
 public:
  // `wake` is an eventfd, which it closes.
  WorkersState(WorkerOptions options, const Pool& pool, std::shared_ptr<SharedArena> arena, world::Descriptor wake);
  // Ends all workers.
  ~WorkersState();
  WorkersState(const WorkersState&) = delete;
  WorkersState& operator=(const WorkersState&) = delete;

  // The worker of the device; starts one if there is none yet.
  Result<DeviceWorker*> worker_of(const Device& device);
  Result<void> call(TaskContext& context, const detail::WorkerCall& call);
  // Starts no more work; cancels running work, and kills it soon after.
  void close() noexcept;
  SharedArena& arena() noexcept { return *arena_; }
  std::vector<WorkerStatus> status() const;
  // Whether this process was forked from the one that has the workers.
  bool is_of_another_process() const noexcept;

 private:
  void supervise() noexcept;
  std::vector<DeviceWorker*> all() const;
  void wake_supervisor() const noexcept;

  const WorkerOptions options_;
  const std::shared_ptr<const std::vector<std::string>> environment_;
  const BackendOptions backends_;
  const Clock& clock_;
  const std::shared_ptr<SharedArena> arena_;
  const world::Descriptor wake_;
  const int process_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;  // guards the next two
  bool closed_ = false;
  std::map<DeviceId, std::unique_ptr<DeviceWorker>> workers_;
  std::thread supervisor_;
};

}  // namespace berth::worker
