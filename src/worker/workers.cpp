#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "scheduler/scheduler_state.hpp"
#include "worker/workers_state.hpp"

namespace berth {

using worker::WorkersState;

Result<void> detail::call_worker(WorkersState& workers, TaskContext& context, const WorkerCall& call) {
  return workers.call(context, call);
}

Result<Workers> Workers::start(const Scheduler& scheduler, WorkerOptions options) {
  if (std::getenv(worker::worker_variable))
    return Error{ErrorCode::invalid_argument, "this process is a worker, and its main did not call worker_entry",
                 "call berth::worker_entry(argc, argv) first thing in main"};
  if (options.program.empty()) options.program = "/proc/self/exe";
  if (access(options.program.c_str(), X_OK) != 0)
    return Error{ErrorCode::not_found, "cannot execute " + options.program + ": " + std::strerror(errno),
                 "set WorkerOptions::program to an executable, or leave it empty for this program"};
  std::shared_ptr<worker::SharedArena> arena = BERTH_TRY(worker::SharedArena::make(options.shared_bytes));
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) return Error{ErrorCode::io, std::string("cannot make an event: ") + std::strerror(errno)};
  // In a forked child there is no thread to wait for, and the workers are not its own.
  const auto destroy = [process = getpid()](WorkersState* state) {
    if (getpid() == process) delete state;
  };
  const Pool& pool = scheduler.pool();
  std::shared_ptr<WorkersState> state(new WorkersState(std::move(options), pool, std::move(arena), wake), destroy);
  std::vector<worker::DeviceWorker*> started;
  for (const std::shared_ptr<Device>& device : pool.devices()) started.push_back(BERTH_TRY(state->worker_of(*device)));
  for (worker::DeviceWorker* one : started) BERTH_TRY(one->wait_ready());
  return Workers(Scheduler(scheduler.state_), std::move(state));
}

TaskOptions Workers::limited(TaskOptions options) const {
  // Where no device can run all kernels, the scheduler finds that again and says so.
  if (!options.kernels.empty() && !scheduler_.state_->limit(options)) options.kernels.clear();
  return options;
}

Result<SharedMemory> Workers::share(std::uint64_t bytes) const { return state_->arena().allocate(bytes); }
std::vector<WorkerStatus> Workers::status() const { return state_->status(); }

}  // namespace berth
