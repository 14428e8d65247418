#include "worker/device_worker.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "scheduler/poll_briefly.hpp"

namespace berth::worker {
namespace {

// Between two looks at what nobody wakes a waiter for: whether the work was cancelled.
constexpr Duration look_period = std::chrono::milliseconds(10);

std::uint64_t all_mailboxes(std::size_t count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

}  // namespace

Error DeviceWorker::lost(std::string message) const {
  return {ErrorCode::device_lost, std::move(message), "look at the device, then start the program again",
          device_.text()};
}

// --- calls, on lanes --------------------------------------------------------

Result<void> DeviceWorker::call(TaskContext& context, const Call& call, const Clock& clock) {
  std::optional<std::uint64_t> earlier_death;  // with this work in it
  for (;;) {
    const Place place = BERTH_TRY(enter(context, earlier_death, clock));
    std::optional<Result<void>> result = exchange(place, context, call, clock);
    if (!result) wait_until_over(place.process());
    leave(place);
    if (result) return *std::move(result);
    Error why = place.process().reason();
    why.where = device_.text();
    if (why.code == ErrorCode::device_lost) return why;
    const Mailbox& mailbox = place.mailbox();
    if (mailbox.state.load() == Mailbox::asked && mailbox.begun.load() == ~place.request) continue;
    if (earlier_death) {
      why.code = ErrorCode::poisonous_work;
      why.message = "two workers have died with this work in them; of the second: " + why.message;
      why.advice = "look for the fault in the task or its arguments";
      return why;
    }
    if (!call.may_run_twice) {
      why.code = ErrorCode::worker_lost;
      why.advice = "submit it again, or set may_run_twice if it may run twice";
      return why;
    }
    earlier_death = place.process().death();
  }
}

Result<DeviceWorker::Place> DeviceWorker::enter(TaskContext& context, std::optional<std::uint64_t> earlier_death,
                                                const Clock& clock) {
  const bool alone = earlier_death.has_value();
  std::unique_lock lock(mutex_);
  ++waiting_;
  if (alone) ++waiting_alone_;
  Result<Place> place = Place{};
  for (;;) {
    if (out_of_service_) {
      place = *out_of_service_;
      break;
    }
    if (ready_ && !current_->alone && (alone ? current_->users == 0 : current_->free != 0 && waiting_alone_ == 0)) {
      place->in = current_;
      place->index = static_cast<std::size_t>(std::countr_zero(current_->free));
      place->request = ++requests_;
      current_->free &= ~(std::uint64_t{1} << place->index);
      ++current_->users;
      current_->alone = alone;
      current_->earlier_death = earlier_death;
      break;
    }
    if (context.deadline().passed(clock.now())) {
      place = Error{ErrorCode::timeout, "the deadline passed before a worker was free",
                    "allow more time or submit less", device_.text()};
      break;
    }
    if (context.cancelled()) {
      place = Error{ErrorCode::cancelled, "the work was cancelled before it began", "", device_.text()};
      break;
    }
    real_clock().wait_until(changed_, lock, real_clock().now() + look_period);
  }
  --waiting_;
  if (alone) --waiting_alone_;
  return place;
}

void DeviceWorker::leave(const Place& place) {
  const std::lock_guard lock(mutex_);
  place.in->free |= std::uint64_t{1} << place.index;
  --place.in->users;
  place.in->alone = false;
  place.in->earlier_death.reset();
  if (waiting_ > 0) changed_.notify_all();
}

void DeviceWorker::kill(WorkerProcess& process, std::string why) {
  process.kill(
      {ErrorCode::worker_lost, "the worker (process " + std::to_string(process.pid()) + ") " + std::move(why)});
  supervise_();
}

void DeviceWorker::wait_until_over(const WorkerProcess& process) {
  std::unique_lock lock(mutex_);
  while (!process.is_over()) real_clock().wait_until(changed_, lock, real_clock().now() + look_period);
}

std::optional<Result<void>> DeviceWorker::exchange(const Place& place, TaskContext& context, const Call& call,
                                                   const Clock& clock) {
  WorkerProcess& process = place.process();
  Mailbox& mailbox = place.mailbox();
  const Deadline deadline = context.deadline();
  Deadline end;  // of the worker, by the machine's clock
  if (deadline.at != TimePoint::max()) end = Deadline::after(real_clock(), deadline.at - clock.now() + grace);
  Request& request = mailbox.request;
  request.number = place.request;
  request.task = call.task;
  request.priority = call.priority;
  request.deadline_ns = (end.at == TimePoint::max() ? end.at : end.at - grace).time_since_epoch().count();
  request.argument_bytes = static_cast<std::uint32_t>(call.arguments.size());
  request.value_bytes = static_cast<std::uint32_t>(call.value.size());
  std::memcpy(request.arguments.data(), call.arguments.data(), call.arguments.size());
  mailbox.cancelled.store(0, std::memory_order_relaxed);
  mailbox.begun.store(~place.request, std::memory_order_relaxed);
  mailbox.state.store(Mailbox::asked);
  if (mailbox.worker_sleeps.load() != 0) wake(mailbox.state);

  scheduler::poll_briefly(
      [&] { return mailbox.state.load(std::memory_order_relaxed) != Mailbox::asked || process.is_over(); });
  for (;;) {
    const std::uint32_t state = mailbox.state.load(std::memory_order_acquire);
    if (state == Mailbox::answered) return read_answer(process, mailbox, call.value);
    if (process.is_over() || process.was_killed()) return std::nullopt;
    if (state != Mailbox::asked) {
      kill(process, "wrote over the memory through which it gets its work");
      return std::nullopt;
    }
    const TimePoint now = real_clock().now();
    if (end.passed(now)) {
      kill(process, "was ended: a task in it did not end by its deadline");
      return Result<void>(Error{ErrorCode::timeout, "the task ran past its deadline, and its worker was ended",
                                "allow more time, or look for an endless loop", device_.text()});
    }
    if (context.cancelled()) mailbox.cancelled.store(1, std::memory_order_relaxed);
    mailbox.program_sleeps.store(1);
    sleep_while(mailbox.state, Mailbox::asked, std::min<Duration>(look_period, end.at - now));
    mailbox.program_sleeps.store(0, std::memory_order_relaxed);
  }
}

std::optional<Result<void>> DeviceWorker::read_answer(WorkerProcess& process, const Mailbox& mailbox,
                                                      std::span<std::byte> value) {
  // The worker may still write: what is looked at is a copy.
  std::uint32_t code = 0;
  std::memcpy(&code, &mailbox.answer.code, sizeof code);
  if (code == 0) {
    std::memcpy(value.data(), mailbox.answer.value.data(), value.size());
    return Result<void>();
  }
  Answer answer;
  std::memcpy(static_cast<void*>(&answer), &mailbox.answer, sizeof answer);
  answer.code = code;
  Error error = answer.error().value_or(Error{});
  if (error.code == ErrorCode::internal) {
    kill(process, "wrote an answer that has no meaning");
    return std::nullopt;
  }
  if (error.code == ErrorCode::device_lost) {
    // What the worker's process can do no more, another can: a context that failed is lost to its process.
    kill(process, "can use its device no more: " + error.to_text());
    return std::nullopt;
  }
  error.where = device_.text();
  return Result<void>(std::move(error));
}

Result<void> DeviceWorker::wait_ready() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_ || out_of_service_; });
  if (out_of_service_) return *out_of_service_;
  return {};
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

int DeviceWorker::process_descriptor() const {
  const std::lock_guard lock(mutex_);
  return current_ ? current_->process->descriptor() : -1;
}

int DeviceWorker::message_descriptor() const {
  const std::lock_guard lock(mutex_);
  return current_ && !ready_ && !current_->process->was_killed() ? current_->process->messages() : -1;
}

TimePoint DeviceWorker::step(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (current_ && current_->process->has_ended()) bury(now);
  if (!current_ && !out_of_service_ && !stopping_) start(now);
  if (!current_) return TimePoint::max();
  if (!ready_) see_to_start(now);
  if (ready_ && options_.host_memory_bytes_max) see_to_memory(now);
  see_to_kill(now);
  TimePoint next = TimePoint::max();
  if (!ready_) next = start_by_;
  if (ready_ && options_.host_memory_bytes_max) next = next_memory_;
  if (kill_by_) next = std::min(next, *kill_by_);
  return next;
}

void DeviceWorker::start(TimePoint now) {
  ++starts_;
  Result<std::shared_ptr<WorkerProcess>> process =
      WorkerProcess::start(options_.program, options_.setup, options_.shared);
  if (!process) {
    last_death_ = std::move(process).error();
    out_of_service_ = last_death_;
    changed_.notify_all();
    return;
  }
  current_ = std::make_shared<Incarnation>();
  current_->process = *std::move(process);
  current_->free = all_mailboxes(options_.setup.mailboxes);
  start_by_ = Deadline::after(real_clock(), options_.start_deadline).at;
  next_memory_ = now;
  kill_by_.reset();
}

void DeviceWorker::see_to_start(TimePoint now) {
  WorkerProcess& process = *current_->process;
  if (process.was_killed()) return;
  const std::optional<Result<void>> said = process.read_message();
  if (said && *said) {
    ready_ = true;
    was_ready_ = true;
    changed_.notify_all();
  } else if (said) {
    process.kill(said->error());
  } else if (now >= start_by_) {
    process.kill({ErrorCode::timeout, "the worker was not ready in time",
                  "call berth::worker_entry(argc, argv) first thing in main, or raise start_deadline"});
  }
}

void DeviceWorker::see_to_memory(TimePoint now) {
  if (now < next_memory_) return;
  next_memory_ = now + memory_period;
  WorkerProcess& process = *current_->process;
  const std::optional<std::uint64_t> bytes = process.private_memory_bytes();
  if (bytes > options_.host_memory_bytes_max)
    process.kill({ErrorCode::worker_lost, "the worker (process " + std::to_string(process.pid()) + ") was ended at " +
                                              bytes_text(*bytes) + " of host memory; it may have " +
                                              bytes_text(*options_.host_memory_bytes_max)});
}

void DeviceWorker::see_to_kill(TimePoint now) {
  WorkerProcess& process = *current_->process;
  if (!process.was_killed()) return;
  if (!kill_by_) kill_by_ = now + kill_deadline;
  if (now < *kill_by_) return;
  // Held by a driver that does not return: nobody may use the device before that is known to be over.
  out_of_service_ = lost("a worker (process " + std::to_string(process.pid()) + ") cannot be ended");
  last_death_ = out_of_service_;
  process.give_up(*out_of_service_);
  process.be_over(std::nullopt);
  current_.reset();
  ready_ = false;
  changed_.notify_all();
}

void DeviceWorker::bury(TimePoint now) {
  WorkerProcess& process = *current_->process;
  process.reap();
  last_death_ = process.reason();
  ++deaths_;
  std::optional<std::uint64_t> number;
  // A worker that died with work in it that was alone, and with which one had died before: that work
  // is guilty of both.
  if (current_->alone && current_->earlier_death)
    limit_.forgive(*current_->earlier_death);
  else
    number = limit_.add(now);
  if (!was_ready_) {
    out_of_service_ = last_death_;
    if (out_of_service_->advice.empty())
      out_of_service_->advice = "call berth::worker_entry(argc, argv) first thing in main";
  } else if (limit_.is_exceeded(now) && !stopping_) {
    out_of_service_ = lost("four workers have died within a minute; of the last: " + last_death_->message);
  }
  process.be_over(number);
  current_.reset();
  ready_ = false;
  changed_.notify_all();
}

void DeviceWorker::stop() noexcept {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  if (current_) current_->process->kill({ErrorCode::worker_lost, "the workers were stopped"});
}

}  // namespace berth::worker
