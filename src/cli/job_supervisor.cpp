#include "cli/job_supervisor.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "berth/bytes.hpp"
#include "cli/text/terminal.hpp"
#include "inventory/short_id.hpp"
#include "ledger/usage.hpp"
#include "machine/inherited.hpp"
#include "machine/job_output.hpp"
#include "machine/job_store.hpp"
#include "machine/restart_limit.hpp"
#include "machine/supervise.hpp"
#include "world/wall_time.hpp"

namespace berth::cli {
namespace {

constexpr Duration look_again = std::chrono::milliseconds(200);
constexpr Duration memory_grace = std::chrono::seconds(10);
constexpr Duration longest_pause = std::chrono::minutes(1);
constexpr int end_written_tries = 600;  // one a second

class JobSupervisor {
 public:
  JobSupervisor(const RunArguments& arguments, const CheckedOptions& checked, const std::string& program, Job job,
                int output)
      : arguments_(arguments), checked_(checked), program_(program), job_(std::move(job)), output_(output) {}

  // `ready` is told when the job can be seen and stopped.
  [[noreturn]] void run(int ready) {
    const Result<AliveMark> mark = AliveMark::set(job_.folder);
    StopRequests stop;
    stop_ = &stop;
    const bool written = update([&](JobProgress& now) {
      now.supervisor = this_process();
      now.reason = "starting";
    });
    if (!mark || !written) _exit(1);  // start_job says that it did not start
    static_cast<void>(!::write(ready, "r", 1));
    close(ready);
    while_it_can_be_stopped([&] { wait_for_other_jobs(); });
    std::optional<RunContext> context;
    while_it_can_be_stopped([&] {
      Result<RunContext> opened = open_run_context(arguments_, checked_, program_);
      if (!opened) end(JobState::failed, opened.error().to_text(), print_error(opened.error()));
      context.emplace(*std::move(opened));
    });
    for (;;) attempt(*context);
  }

 private:
  // What the supervisor does next is written down before it is done.
  template <class Change>
  bool update(Change change) {
    const std::lock_guard lock(mutex_);
    change(progress_);
    return write_progress(job_.folder, progress_).has_value();
  }
  [[noreturn]] void end(JobState state, const std::string& reason, std::optional<int> status = std::nullopt) {
    const auto change = [&](JobProgress& now) {
      now.state = state;
      now.reason = reason;
      if (status) now.status = status;
      now.ended_us = wall_time_us();
    };
    std::fflush(nullptr);
    // A full disk may have room again soon.
    for (int tries = 0; !update(change) && tries < end_written_tries; ++tries)
      real_clock().sleep_for(std::chrono::seconds(1));
    _exit(0);
  }
  void while_it_can_be_stopped(const std::function<void()>& step) {
    stop_->during(step, [this] { end(JobState::stopped, "stopped while it waited"); });
  }

  void wait_for_other_jobs() {
    const std::string jobs = std::filesystem::path(job_.folder).parent_path();
    for (const std::string& id : job_.request.after) {
      update([&](JobProgress& now) { now.reason = "waits for " + id; });
      for (;;) {
        const Result<Job> other = find_job(jobs, id);
        if (!other) end(JobState::skipped, id + " was removed");
        if (other->progress.state == JobState::done) break;
        if (has_ended(other->progress.state))
          end(JobState::skipped, id + " did not end well: " + std::string(to_string(other->progress.state)));
        if (other->is_supervised)
          wait_for_supervisor(other->folder);
        else
          real_clock().sleep_for(look_again);
      }
    }
  }

  Reservation reserve_or_end(RunContext& context) {
    std::optional<Reservation> got;
    while_it_can_be_stopped([&] {
      const auto waiting = [&, ids = ids_of(context.observer.devices())](const Progress& progress) {
        update([&](JobProgress& now) {
          now.state = JobState::waiting;
          now.reason = "place " + std::to_string(progress.place) + " in line: " + with_short_ids(progress.reason, ids);
        });
      };
      const Deadline deadline = arguments_.wait ? Deadline::after(real_clock(), checked_.wait) : Deadline{};
      Result<Reservation> reserved = reserve_devices(context, failed_, deadline, waiting);
      if (!reserved) end(JobState::failed, reserved.error().to_text(), print_error(reserved.error()));
      const std::string decision = record_decision("run", program_, *reserved);
      update([&](JobProgress& now) { now.decision = decision; });
      if (!reserved->lease)
        end(JobState::refused, reserved->explanation.reason(),
            print_refusal(*reserved, context.observer.devices(), "see berth why"));
      got.emplace(*std::move(reserved));
    });
    return *std::move(got);
  }

  void attempt(RunContext& context) {
    Reservation reserved = reserve_or_end(context);
    const std::vector<Granted> granted = granted_by(context.wanted, reserved);
    if (!arguments_.quiet) announce(context.wanted, granted, context.observer.devices(), checked_.limit, checked_.mps);
    Launch command = make_launch(arguments_, program_, granted, context.observer.devices(), checked_, *context.ledger,
                                 reserved.lease);
    command.environment["BERTH_JOB"] = job_.id;
    const LeaseReference lease = reserved.lease.reference();
    update([&](JobProgress& now) {
      now.state = JobState::running;
      now.reason.clear();
      now.lease = to_string(lease);
      now.devices.clear();
      for (const Granted& one : granted) now.devices.push_back(one.device.id.text());
      now.memory_bytes = granted.empty() ? 0 : granted.front().memory_bytes;
      ++now.attempts;
      now.started_us = wall_time_us();
    });
    Supervision supervision;
    supervision.output = output_;
    supervision.time = checked_.time;
    supervision.started = [this](pid_t pid) {
      update([&](JobProgress& now) { now.command = find_process(static_cast<std::uint32_t>(pid)); });
    };
    std::optional<TimePoint> above_since;
    supervision.look = [&] { return look(context, granted, lease, above_since); };
    const TimePoint began = real_clock().now();
    const Result<SupervisedExit> over = supervise(command, supervision, *stop_);
    const Duration took = real_clock().now() - began;
    shorten_output(job_.output(), output_bytes_max);
    give_back(*context.ledger, std::move(reserved.lease));
    if (!over) end(JobState::failed, over.error().to_text(), print_start_error(over.error()));
    update([&](JobProgress& now) {
      now.status = over->ended.status;
      now.device_seconds += static_cast<double>(granted.size()) * std::chrono::duration<double>(took).count();
    });
    end_unless_repeated(*over, context, granted, began);
  }

  // Returns when it is to be started again.
  void end_unless_repeated(const SupervisedExit& over, RunContext& context, std::span<const Granted> granted,
                           TimePoint began) {
    switch (over.cause) {
      case SupervisedExit::Cause::stop_request: end(JobState::stopped, "stopped while it ran");
      case SupervisedExit::Cause::time: end(JobState::timed_out, "ran longer than " + duration_text(*checked_.time));
      case SupervisedExit::Cause::look: end(JobState::failed, over.reason);
      case SupervisedExit::Cause::itself: break;
    }
    if (over.ended.status == 0) end(JobState::done, "");
    const std::string how = over.ended.signal ? "ended by signal " + std::to_string(over.ended.signal) + " (" +
                                                    strsignal(over.ended.signal) + ")"
                                              : "ended with status " + std::to_string(over.ended.status);
    std::optional<Duration> pause;
    if (checked_.restarts) {
      if (auto fault = find_fault(over.ended, context.observer, granted, began)) {
        failed_ = *std::move(fault);
        pause = restarts_.next_delay(real_clock().now());
      }
    }
    if (!pause && retried_ < arguments_.retries) {
      pause = std::min<Duration>(longest_pause, std::chrono::seconds(1) * (1 << std::min<std::size_t>(retried_, 6)));
      ++retried_;
    }
    if (!pause) end(JobState::failed, how);
    std::fprintf(stderr, "berth: the command %s; it is started again in %s\n", how.c_str(),
                 duration_text(*pause).c_str());
    update([&](JobProgress& now) {
      now.state = JobState::waiting;
      now.reason = how + "; it is started again";
    });
    while_it_can_be_stopped([&] { real_clock().sleep_for(*pause); });
  }

  // What the job uses, and whether that is too much.
  std::optional<std::string> look(RunContext& context, std::span<const Granted> granted, const LeaseReference& lease,
                                  std::optional<TimePoint>& above_since) {
    shorten_output(job_.output(), output_bytes_max);
    if (std::none_of(granted.begin(), granted.end(), [](const Granted& one) { return one.device.backend == "cuda"; }))
      return std::nullopt;
    const MachineSnapshot observed = context.observer.snapshot();
    const Result<LedgerSnapshot> snapshot = context.ledger->snapshot();
    const LedgerEntry* const entry = snapshot ? snapshot->find(lease) : nullptr;
    if (!entry) return std::nullopt;
    std::uint64_t all = 0;
    std::optional<std::string> above;
    for (const ObservedDevice& device : observed.devices) {
      const auto mine = std::find_if(granted.begin(), granted.end(),
                                     [&](const Granted& one) { return one.device.id == device.info.id; });
      if (mine == granted.end() || !device.telemetry || !device.telemetry->processes) continue;
      const std::uint64_t used = ledger::bytes_in_use(*snapshot, *entry, device.processes);
      all += used;
      if (checked_.limit == Limit::watch && mine->memory_bytes > 0 && used > mine->memory_bytes)
        above = "it used " + bytes_text(used) + " of the " + bytes_text(mine->memory_bytes) + " that it asked for on " +
                device.info.id.text();
    }
    if (all > progress_.memory_bytes_peak.value_or(0)) update([&](JobProgress& now) { now.memory_bytes_peak = all; });
    const TimePoint now = real_clock().now();
    if (!above)
      above_since.reset();
    else if (!above_since)
      above_since = now;
    return above && now - *above_since >= memory_grace ? above : std::nullopt;
  }

  const RunArguments& arguments_;
  const CheckedOptions& checked_;
  const std::string& program_;
  const Job job_;
  const int output_;
  StopRequests* stop_ = nullptr;
  RestartLimit restarts_;
  std::vector<DeviceId> failed_;
  std::size_t retried_ = 0;
  std::mutex mutex_;  // guards progress_
  JobProgress progress_;
};

Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

Result<JobRequest> request_of(const RunArguments& arguments, const CheckedOptions& checked, const std::string& jobs) {
  JobRequest request;
  request.name = arguments.name;
  request.command = arguments.command;
  request.time = checked.time;
  request.retries = arguments.retries;
  request.created_us = wall_time_us();
  request.machine = machine_name();
  request.boot = boot_id();
  std::error_code failed;
  request.folder = std::filesystem::current_path(failed).string();
  if (!arguments.request.memory.empty()) request.options = {"--mem", arguments.request.memory};
  if (arguments.request.count > 1) {
    request.options.emplace_back("-n");
    request.options.push_back(std::to_string(arguments.request.count));
  }
  for (const std::string& names : arguments.after) {
    for (std::size_t at = 0; at <= names.size();) {
      const std::size_t comma = std::min(names.find(',', at), names.size());
      const Result<Job> job = find_job(jobs, names.substr(at, comma - at));
      if (!job) return wrong(job.error().message, job.error().advice);
      if (job->progress.state != JobState::done) request.after.push_back(job->id);
      at = comma + 1;
    }
  }
  return request;
}

// Leaves nothing of a job that did not start.
int give_up(const Job& job, const Error& error) {
  std::error_code ignored;
  std::filesystem::remove_all(job.folder, ignored);
  return print_error(error);
}

// A job asks the machine, not the lease that it was started in, which ends without it. Other processes see
// the variable in the memory that this process began with.
void leave_lease() {
  if (char* const lease = std::getenv("BERTH_LEASE")) std::memset(lease, 0, std::strlen(lease));
  unsetenv("BERTH_LEASE");
}

}  // namespace

int start_job(const RunArguments& arguments, const CheckedOptions& checked, const std::string& program) {
  // What is wrong with the request is said here, not in the job's output.
  if (const auto request = read_request(arguments.request); !request) return print_error(request.error());
  const Result<std::string> jobs = jobs_folder();
  if (!jobs) return print_error(jobs.error());
  const Result<JobRequest> request = request_of(arguments, checked, *jobs);
  if (!request) return print_error(request.error());
  const Result<Job> job = create_job(*jobs, *request);
  if (!job) return print_error(job.error());
  const Result<int> output = open_output(job->output());
  if (!output) return give_up(*job, output.error());
  std::array<int, 2> ready{};
  std::fflush(nullptr);
  const pid_t child = pipe2(ready.data(), O_CLOEXEC) == 0 ? fork() : -1;
  if (child < 0)
    return give_up(*job, {ErrorCode::io, std::string("cannot start a supervisor: ") + std::strerror(errno)});
  if (child == 0) {
    prctl(PR_SET_NAME, supervisor_name);
    // The caller may ignore them; the command gets the caller's settings all the same.
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
    setsid();
    leave_lease();
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(*output, STDOUT_FILENO);
    dup2(*output, STDERR_FILENO);
    close_inherited_descriptors();
    JobSupervisor(arguments, checked, program, *job, *output).run(ready[1]);
  }
  close(ready[1]);
  char byte = 0;
  ssize_t got = 0;
  do got = read(ready[0], &byte, 1);
  while (got < 0 && errno == EINTR);
  if (got != 1)
    return give_up(*job, {ErrorCode::io, "the supervisor of job " + job->id + " did not start",
                          "look at the disk and at the limit on processes"});
  if (arguments.json)
    return print(boost::json::serialize(boost::json::object{{"job", job->id}, {"folder", job->folder}}) + "\n");
  return print(job->id + "\n");
}

}  // namespace berth::cli
