#include "berth/scheduler.hpp"

#include <unistd.h>

#include <thread>

#include "pool/internals.hpp"
#include "scheduler/scheduler_state.hpp"

namespace berth {

Result<Scheduler> Scheduler::start(const Pool& pool, SchedulerOptions options) {
  if (options.lanes_per_device == std::size_t{0})
    return Error{ErrorCode::invalid_argument, "a device needs at least one lane", "set lanes_per_device to 1 or more"};
  if (options.lanes_per_device > std::size_t{1024})
    return Error{ErrorCode::invalid_argument, "a device has at most 1024 lanes", "set lanes_per_device lower"};
  const Policy* policy = &pool.policy();
  if (options.policy) {
    Result<const Policy*> named = policy_named(*options.policy);
    if (!named) return std::move(named).error();
    policy = *named;
  }
  const auto destroy = [process = getpid()](scheduler::SchedulerState* state) {
    // In a forked child there are no lanes to wait for.
    if (getpid() != process) return;
    if (!state->is_on_own_thread()) return delete state;
    // The last handle was dropped inside the scheduler's own work. The destructor waits for that work, so it needs
    // another thread.
    std::thread([state] { delete state; }).detach();
  };
  std::shared_ptr<scheduler::SchedulerState> state(new scheduler::SchedulerState(pool, std::move(options), *policy),
                                                   destroy);
  if (Result<void> started = state->start_lanes(); !started) return std::move(started).error();
  return Scheduler(std::move(state));
}

Result<void> Scheduler::run_inline(const TaskOptions& options, detail::ClosureRef closure, DeviceId& device) const {
  return state_->run_inline(options, closure, device);
}
detail::SubmittedWork Scheduler::submit_work(const detail::WorkType& type, void* f, const TaskOptions& options) const {
  auto* const job = scheduler::JobWithWork<scheduler::Job>::make(type, f);
  const detail::SubmittedWork submitted = job->submitted();
  state_->enqueue(*job, options);
  return submitted;
}
void Scheduler::run_batch(const detail::Batch& batch) const { state_->run_batch(batch); }

Result<DeviceId> Scheduler::select(const Requirements& requirements) const {
  pool::Board& board = pool::board_of(pool());
  Result<DeviceId> chosen = board.select(policy(), requirements);
  if (!chosen && detail::PoolInternals::await_first_poll(pool())) chosen = board.select(policy(), requirements);
  return chosen;
}
Result<TenantId> Scheduler::tenant(std::string_view name, double weight) const {
  return state_->tenants().set(name, weight);
}
std::uint16_t Scheduler::work_class(std::string_view name) const { return pool().work_class(name); }
Statistics Scheduler::statistics() const { return pool().statistics(); }
std::vector<Error> Scheduler::kernel_errors() const { return state_->kernels().errors(); }
const Pool& Scheduler::pool() const noexcept { return state_->pool(); }
const Policy& Scheduler::policy() const noexcept { return state_->policy(); }
Result<void> Scheduler::set_policy(std::string_view name) const {
  Result<const Policy*> named = policy_named(name);
  if (!named) return std::move(named).error();
  state_->set_policy(**named);
  return {};
}

}  // namespace berth
