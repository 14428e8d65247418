#include "worker/device_worker.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "berth/health.hpp"
#include "scheduler/poll_briefly.hpp"

namespace berth::worker {
namespace {

// How often a waiter checks whether its work was cancelled, because it gets no notification.
constexpr Duration look_period = std::chrono::milliseconds(10);
constexpr Duration memory_period = std::chrono::milliseconds(100);
// After this many failed starts, a device counts as unable to start workers.
constexpr std::uint64_t failed_starts_max = 3;
constexpr Duration pause_after_failed_starts = std::chrono::minutes(1);
constexpr Duration pause_after_failed_spawn = std::chrono::seconds(1);

std::uint64_t all_mailboxes(std::size_t count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

std::string name_of(const WorkerProcess& process) {
  return "the worker (process " + std::to_string(process.pid()) + ") ";
}

}  // namespace

// --- calls, on lanes --------------------------------------------------------

Result<void> DeviceWorker::call(TaskContext& context, const Call& call, const Clock& clock) {
  detail::WorkerCall::Runs& runs = *call.runs;
  std::optional<std::uint64_t> earlier_death;  // of a worker that was running this work on this device
  for (bool is_first = true;; is_first = false) {
    Result<Place> entered = enter(context, call, earlier_death, clock);
    if (!entered) {
      context.decline();
      return std::move(entered).error();
    }
    const Place place = *std::move(entered);
    // The time to start a worker and the time spent in one that died are not part of the cost of the work.
    if (place.waited || !is_first) context.restart_measurement();
    std::optional<Result<void>> result = exchange(place, context, call, clock);
    leave(place, result && *result);
    const bool begun = place.mailbox().begun.load() != ~place.request;
    runs.begun += begun;
    if (result && !*result && runs.begun > 1 && blames_device(result->error().code)) {
      Error error = std::move(*result).error();
      error.code = ErrorCode::worker_lost;  // the scheduler must not run it a third time elsewhere
      error.message = "it ran twice; the second time: " + error.message;
      return error;
    }
    if (result) return *std::move(result);
    if (!begun) continue;
    runs.deaths += 1;
    Error why = place.process().reason();
    why.where = device_.text();
    if (close_by_.load() != TimePoint::max()) {
      why.code = ErrorCode::cancelled;
      return why;
    }
    if (runs.deaths > 1) {
      why.code = ErrorCode::poison_task;
      why.message = "two workers have died while running this work; the second time: " + why.message;
      why.advice = "look for the fault in the task or its arguments";
      return why;
    }
    if (!call.may_run_twice || runs.begun > 1) {
      why.code = ErrorCode::worker_lost;
      why.advice = "look for the fault in the task; Berth repeats only work that may run twice (may_run_twice)";
      return why;
    }
    earlier_death = place.process().death().value_or(0);
  }
}

std::optional<Error> DeviceWorker::end_before_begin(TaskContext& context, const Clock& clock) const {
  const bool cancelled = context.cancelled();  // read first: the deadline also sets it, and must be named as the reason
  if (context.deadline().passed(clock.now()))
    return Error{ErrorCode::timeout, "the deadline passed before a worker was free", "allow more time or submit less",
                 device_.text()};
  if (cancelled || close_by_.load() != TimePoint::max())
    return Error{ErrorCode::cancelled, "the work was cancelled before it began", "", device_.text()};
  if (!out_of_service_) return std::nullopt;
  Error error = *out_of_service_;
  error.code = ErrorCode::unavailable;
  error.where = device_.text();
  return error;
}

Result<DeviceWorker::Place> DeviceWorker::enter(TaskContext& context, const Call& call,
                                                std::optional<std::uint64_t> earlier_death, const Clock& clock) {
  const bool alone = earlier_death.has_value();
  const auto has_place = [&] {
    if (!ready_ || current_->process->was_killed() || current_->alone) return false;
    return alone ? current_->users == 0 : current_->free != 0 && waiting_alone_ == 0;
  };
  std::unique_lock lock(mutex_);
  std::optional<Error> ended;
  ++waiting_;
  waiting_alone_ += alone;
  bool waited = false;
  for (; !(ended = end_before_begin(context, clock)) && !has_place(); waited = true)
    real_clock().wait_until(changed_, lock, real_clock().now() + look_period);
  --waiting_;
  waiting_alone_ -= alone;
  if (ended && alone) limit_.confirm(*earlier_death);  // the cause can no longer become known
  if (ended) return *std::move(ended);
  Place place;
  place.in = current_;
  place.index = static_cast<std::size_t>(std::countr_zero(current_->free));
  place.request = ++requests_;
  current_->free &= ~(std::uint64_t{1} << place.index);
  place.may_run_twice = call.may_run_twice;
  place.waited = waited;
  current_->tasks[place.index] = call.task;
  ++current_->users;
  current_->users_that_may_run_twice += call.may_run_twice;
  current_->alone = alone;
  current_->earlier_death = earlier_death;
  return place;
}

void DeviceWorker::leave(const Place& place, bool succeeded) {
  const std::lock_guard lock(mutex_);
  Incarnation& in = *place.in;
  in.free |= std::uint64_t{1} << place.index;
  --in.users;
  in.users_that_may_run_twice -= place.may_run_twice;
  if (succeeded) poison_tasks_ = 0;
  // This work did not cause the earlier death, so that death now counts towards the limit.
  if (in.earlier_death && !in.process->was_killed() && !in.process->is_over()) {
    limit_.confirm(*in.earlier_death);
    see_to_limit(real_clock().now());
  }
  in.alone = false;
  in.earlier_death.reset();
  if (waiting_ > 0) changed_.notify_all();
}

void DeviceWorker::kill(WorkerProcess& process, std::string why, bool blames_device) {
  process.kill({ErrorCode::worker_lost, name_of(process) + std::move(why)}, blames_device);
  supervise_();
  wait_until_over(process);
}

void DeviceWorker::wait_until_over(const WorkerProcess& process) {
  std::unique_lock lock(mutex_);
  while (!process.is_over()) real_clock().wait_until(changed_, lock, real_clock().now() + look_period);
}

void DeviceWorker::ask(const Place& place, const Call& call, Deadline deadline) {
  Mailbox& mailbox = place.mailbox();
  RequestHeader header;
  header.number = place.request;
  header.task = task_number(call.task);
  header.deadline_ns = deadline.at.time_since_epoch().count();
  header.argument_bytes = static_cast<std::uint32_t>(call.arguments.size());
  header.value_bytes = static_cast<std::uint32_t>(call.value.size());
  header.priority = static_cast<std::uint64_t>(call.priority);
  header.checksum = checksum_of(header, call.arguments);
  mailbox.request.header = header;
  std::memcpy(mailbox.request.arguments.data(), call.arguments.data(), call.arguments.size());
  mailbox.request.task_name = call.task;
  mailbox.cancelled.store(0, std::memory_order_relaxed);
  mailbox.begun.store(~place.request, std::memory_order_relaxed);
  mailbox.state.store(Mailbox::asked);
  if (mailbox.worker_sleeps.load() != 0) wake(mailbox.state);
}

std::optional<Result<void>> DeviceWorker::exchange(const Place& place, TaskContext& context, const Call& call,
                                                   const Clock& clock) {
  WorkerProcess& process = place.process();
  Mailbox& mailbox = place.mailbox();
  Deadline deadline, end;  // in real time
  if (context.deadline().at != TimePoint::max()) {
    deadline = Deadline::after(real_clock(), context.deadline().at - clock.now());
    end = Deadline::after(real_clock(), context.deadline().at - clock.now() + grace);
  }
  ask(place, call, deadline);
  scheduler::poll_briefly(
      [&] { return mailbox.state.load(std::memory_order_relaxed) != Mailbox::asked || process.is_over(); });
  for (;;) {
    const bool is_over = process.is_over();
    const std::uint32_t state = mailbox.state.load(std::memory_order_acquire);
    if (state == Mailbox::answered) return read_answer(place, context, call.value);
    if (is_over) return std::nullopt;
    if (state != Mailbox::asked) {
      kill(process, "overwrote the memory through which it gets its work");
      return std::nullopt;
    }
    const TimePoint now = real_clock().now();
    const TimePoint close_by = close_by_.load();
    if (end.passed(now)) {
      kill(process, "was ended: a task in it did not end by its deadline");
      return Result<void>(Error{ErrorCode::timeout, "the task ran past its deadline, and its worker was ended",
                                "allow more time, or look for an endless loop", device_.text()});
    }
    if (now >= close_by) {
      kill(process, "was ended: a task in it did not stop when the workers were closed");
      return std::nullopt;
    }
    if (context.cancelled() || close_by != TimePoint::max()) mailbox.cancelled.store(1, std::memory_order_relaxed);
    if (mailbox.begun.load() == ~place.request) wake(mailbox.state);  // a broken task may have reset worker_sleeps
    mailbox.program_sleeps.store(1);
    sleep_while(mailbox.state, Mailbox::asked, std::min<Duration>(look_period, end.at - now));
    mailbox.program_sleeps.store(0, std::memory_order_relaxed);
  }
}

std::optional<Result<void>> DeviceWorker::read_answer(const Place& place, TaskContext& context,
                                                      std::span<std::byte> value) {
  // The worker may still be writing, so read a copy.
  const Mailbox& there = place.mailbox();
  AnswerHeader answer;
  std::memcpy(&answer, &there.answer, sizeof answer);
  if (answer.request == place.request && answer.code == 0) {
    std::memcpy(value.data(), there.value.data(), value.size());
    if (checksum_of(answer, value) == answer.checksum) return Result<void>();
  }
  ErrorText text;
  std::memcpy(static_cast<void*>(&text), &there.error, sizeof text);
  std::optional<Error> error = text.error(answer.code);
  if (!error || answer.request != place.request ||
      checksum_of(answer, std::as_bytes(std::span(&text, 1))) != answer.checksum) {
    kill(place.process(), "wrote an invalid answer");
    return std::nullopt;
  }
  if (error->code == ErrorCode::device_lost) {
    // Only this worker's process has lost the device, so the advice to restart the program does not apply.
    error->advice.clear();
    kill(place.process(), "can no longer use its device: " + error->to_text(), true);
    return std::nullopt;
  }
  if (answer.device_busy != 0) kill(place.process(), "was ended: its device did not end the work by the deadline");
  if (answer.declined != 0) context.decline();
  error->where = device_.text();
  return Result<void>(*std::move(error));
}

void DeviceWorker::close() noexcept { close_by_.store(real_clock().now() + closing_grace); }

Result<void> DeviceWorker::wait_ready() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_ || out_of_service_; });
  if (ready_) return {};
  Error error = *out_of_service_;
  error.where = device_.text();
  return error;
}

WorkerStatus DeviceWorker::status() const {
  const std::lock_guard lock(mutex_);
  WorkerStatus status;
  status.device = device_;
  if (ready_) status.pid = current_->process->pid();
  status.starts = starts_;
  status.deaths = deaths_;
  status.last_death = last_death_;
  status.out_of_service = out_of_service_;
  return status;
}

// --- supervision, on one thread ---------------------------------------------

std::vector<int> DeviceWorker::descriptors() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> all;
  if (given_up_) all.push_back(given_up_->descriptor());
  if (!current_) return all;
  all.push_back(current_->process->descriptor());
  if (!ready_ && current_->process->may_send() && !current_->process->was_killed())
    all.push_back(current_->process->messages());
  return all;
}

TimePoint DeviceWorker::step(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (given_up_ && given_up_->has_ended()) {
    std::exchange(given_up_, nullptr)->reap();
    if (out_of_service_until_ == TimePoint::max()) out_of_service_until_ = now;
  }
  if (current_ && current_->process->has_ended()) bury(now);
  if (out_of_service_ && now >= out_of_service_until_) out_of_service_.reset();
  if (!current_ && !given_up_ && !out_of_service_ && !stopping_) start(now);
  TimePoint next = TimePoint::max();
  if (current_) {
    if (!ready_) see_to_start(now);
    if (options_.host_memory_bytes_max) see_to_memory(now);
    see_to_kill(now);
  }
  if (out_of_service_ && !stopping_) next = out_of_service_until_;
  if (!current_) return next;
  if (kill_by_) return std::min(next, *kill_by_);
  if (!ready_) next = std::min(next, start_by_);
  if (options_.host_memory_bytes_max) next = std::min(next, next_memory_);
  return next;
}

void DeviceWorker::take_out_of_service(std::string message, std::string advice, TimePoint until) {
  if (out_of_service_ && out_of_service_until_ > until) return;
  out_of_service_ = Error{ErrorCode::unavailable, std::move(message), std::move(advice), device_.text()};
  out_of_service_until_ = until;
  changed_.notify_all();
  supervise_();
}

void DeviceWorker::start(TimePoint now) {
  ++starts_;
  Result<std::shared_ptr<WorkerProcess>> process =
      WorkerProcess::start(options_.program, *options_.environment, options_.setup, options_.shared);
  if (!process) {
    last_death_ = std::move(process).error();
    return take_out_of_service(last_death_->message, last_death_->advice, now + pause_after_failed_spawn);
  }
  current_ = std::make_shared<Incarnation>();
  current_->process = *std::move(process);
  current_->free = all_mailboxes(options_.setup.mailboxes);
  start_by_ = now + std::min<Duration>(options_.start_deadline, std::chrono::hours(24));
  next_memory_ = now;
  kill_by_.reset();
}

void DeviceWorker::see_to_start(TimePoint now) {
  WorkerProcess& process = *current_->process;
  if (process.was_killed()) return;
  const std::optional<Result<void>> message = process.read_message();
  if (message && *message) {
    ready_ = true;
    failed_starts_ = 0;
    changed_.notify_all();
  } else if (message) {
    process.kill(message->error());
  } else if (now >= start_by_) {
    process.kill({ErrorCode::timeout, "the worker was not ready in time",
                  "call berth::worker_entry(argc, argv) at the start of main, or raise start_deadline"});
  }
}

void DeviceWorker::see_to_memory(TimePoint now) {
  if (now < next_memory_) return;
  next_memory_ = now + memory_period;
  WorkerProcess& process = *current_->process;
  const std::optional<std::uint64_t> bytes = process.private_memory_bytes();
  if (bytes > options_.host_memory_bytes_max)
    process.kill({ErrorCode::worker_lost, name_of(process) + "was ended with " + bytes_text(*bytes) +
                                              " of memory; it may have " +
                                              bytes_text(*options_.host_memory_bytes_max)});
}

void DeviceWorker::see_to_kill(TimePoint now) {
  WorkerProcess& process = *current_->process;
  if (!process.was_killed()) return;
  if (!kill_by_) kill_by_ = now + std::min<Duration>(options_.kill_deadline, std::chrono::hours(24));
  if (now < *kill_by_) return;
  // The process is stuck in a driver call. No other process may use the device until this one has ended.
  take_out_of_service("a worker (process " + std::to_string(process.pid()) + ") was killed but has not ended",
                      "check the kernel log for driver messages (dmesg)", TimePoint::max());
  last_death_ = out_of_service_;
  ++deaths_;
  process.give_up(*out_of_service_);
  given_up_ = current_->process;
  process.be_over(std::nullopt);
  lose_current();
}

void DeviceWorker::bury(TimePoint now) {
  WorkerProcess& process = *current_->process;
  const bool ended_by_itself = !process.was_killed();
  bool spoke = false;
  if (!ready_ && ended_by_itself)  // its last message says more than its exit status
    if (const std::optional<Result<void>> message = process.read_message(); message && !*message) {
      spoke = true;
      process.kill(message->error());
    }
  process.reap();
  last_death_ = process.reason();
  ++deaths_;
  std::optional<std::uint64_t> number;
  if (current_->alone && current_->earlier_death) {
    // If the work was alone in this worker, and another worker had already died with it, the work caused both deaths.
    // If this happens with several pieces of work in a row, the device itself is broken.
    limit_.forgive(*current_->earlier_death);
    if (++poison_tasks_ > DeathLimit::deaths_max)
      take_out_of_service(
          "four pieces of work in a row have each ended two workers; the last time: " + last_death_->message,
          "check the device; Berth tries it again after a minute", now + DeathLimit::window);
  } else if ((ended_by_itself && !spoke) || process.blames_device()) {
    DeathCircumstances circumstances;
    circumstances.unclear = current_->users_that_may_run_twice > 0;
    if (current_->users == 1)
      circumstances.task = current_->tasks[static_cast<std::size_t>(std::countr_one(current_->free))];
    number = limit_.add(now, std::move(circumstances));
  }
  if (!ready_ && (++failed_starts_ >= failed_starts_max || starts_ == 1)) {
    const bool silent = ended_by_itself && !spoke && starts_ == 1;
    take_out_of_service(last_death_->message,
                        silent ? "call berth::worker_entry(argc, argv) at the start of main" : last_death_->advice,
                        now + pause_after_failed_starts);
    out_of_service_->code = last_death_->code;  // for Workers::start
    failed_starts_ = 0;
  }
  see_to_limit(now);
  process.be_over(number);
  lose_current();
}

void DeviceWorker::see_to_limit(TimePoint now) {
  if (const std::optional<TimePoint> until = limit_.exceeded_until(now))
    take_out_of_service("four workers have died within a minute; the last time: " + last_death_->message,
                        "check the device; Berth tries it again after a minute", *until);
}

void DeviceWorker::lose_current() {
  current_.reset();
  ready_ = false;
  changed_.notify_all();
}

bool DeviceWorker::is_gone() const {
  const std::lock_guard lock(mutex_);
  return !current_;
}

void DeviceWorker::stop() noexcept {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  if (current_) current_->process->kill({ErrorCode::worker_lost, "the workers were stopped"});
}

}  // namespace berth::worker
