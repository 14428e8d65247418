#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "scheduler/scheduler_state.hpp"
#include "worker/workers_state.hpp"

namespace berth {

using worker::WorkersState;

Result<void> detail::call_worker(const std::weak_ptr<WorkersState>& workers, TaskContext& context,
                                 const WorkerCall& call) {
  if (const std::shared_ptr<WorkersState> held = workers.lock()) return held->call(context, call);
  return Error{ErrorCode::cancelled, "the workers were closed before the work began"};
}

namespace {

Error forked_error() {
  return {ErrorCode::not_supported, "the workers belong to the process that forked this one",
          "open a pool, a scheduler and workers in the child"};
}

// An absolute path, so that it is found after the program has changed its folder.
Result<std::string> absolute(const std::string& path) {
  char* const resolved = realpath(path.c_str(), nullptr);
  if (!resolved)
    return Error{ErrorCode::not_found, "cannot find " + path + ": " + std::strerror(errno),
                 "check program and libraries in WorkerOptions"};
  std::string absolute = resolved;
  std::free(resolved);
  return absolute;
}

Result<WorkerOptions> checked(WorkerOptions options) {
  if (std::getenv(worker::worker_variable))
    return Error{ErrorCode::invalid_argument, "this process is a worker, and its main did not call worker_entry",
                 "call berth::worker_entry(argc, argv) at the start of main"};
  if (options.program.empty())
    options.program = "/proc/self/exe";
  else
    options.program = BERTH_TRY(absolute(options.program));
  if (access(options.program.c_str(), X_OK) != 0)
    return Error{ErrorCode::not_found, "cannot execute " + options.program + ": " + std::strerror(errno),
                 "set WorkerOptions::program to an executable, or leave it empty for this program"};
  std::size_t text_bytes = 0;
  for (std::string& library : options.libraries) {
    library = BERTH_TRY(absolute(library));
    text_bytes += library.size() + 1;
  }
  if (text_bytes > worker::libraries_bytes_max)
    return Error{ErrorCode::invalid_argument, "the paths of the libraries of tasks are too long"};
  if (options.start_deadline <= Duration::zero() || options.kill_deadline <= Duration::zero())
    return Error{ErrorCode::invalid_argument, "the deadlines in WorkerOptions must be positive"};
  return options;
}

}  // namespace

Result<Workers> Workers::start(const Scheduler& scheduler, WorkerOptions given) {
  if (scheduler.state_->is_of_another_process()) return forked_error();
  WorkerOptions options = BERTH_TRY(checked(std::move(given)));
  std::shared_ptr<worker::SharedArena> arena = BERTH_TRY(worker::SharedArena::make(options.shared_bytes));
  world::Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return Error{ErrorCode::io, std::string("cannot make an event: ") + std::strerror(errno)};
  // In a forked child there is no thread to wait for, and the workers belong to the parent.
  const auto destroy = [process = getpid()](WorkersState* state) {
    if (getpid() == process) delete state;
  };
  const Pool& pool = scheduler.pool();
  std::shared_ptr<WorkersState> state;
  try {
    state.reset(new WorkersState(std::move(options), pool, std::move(arena), std::move(wake)), destroy);
  } catch (const std::system_error& error) {
    return Error{ErrorCode::unavailable, std::string("cannot start a thread for the workers: ") + error.what(),
                 "raise the limit on threads"};
  }
  std::vector<worker::DeviceWorker*> started;
  for (const std::shared_ptr<Device>& device : pool.devices()) started.push_back(BERTH_TRY(state->worker_of(*device)));
  for (worker::DeviceWorker* device_worker : started) BERTH_TRY(device_worker->wait_ready());
  return Workers(Scheduler(scheduler.state_), std::move(state));
}

Workers::~Workers() {
  if (state_ && !state_->is_of_another_process()) state_->close();
}

TaskOptions Workers::limited(TaskOptions options) const {
  // If no device can run all kernels, they are kept, so that the scheduler reports that.
  if (!options.kernels.empty() && !scheduler_.state_->limit(options)) options.kernels.clear();
  options.may_decline = true;
  return options;
}

Result<SharedMemory> Workers::share(std::uint64_t bytes) const {
  if (state_->is_of_another_process()) return forked_error();
  return state_->arena().allocate(bytes);
}
std::vector<WorkerStatus> Workers::status() const { return state_->status(); }

}  // namespace berth
