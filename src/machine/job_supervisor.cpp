#include "machine/job_supervisor.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>

#include "berth/bytes.hpp"
#include "inventory/short_id.hpp"
#include "ledger/usage.hpp"
#include "machine/inherited.hpp"
#include "machine/job_conditions.hpp"
#include "machine/job_notify.hpp"
#include "machine/job_order.hpp"
#include "machine/job_outcome.hpp"
#include "machine/job_output.hpp"
#include "machine/job_processes.hpp"
#include "machine/job_store.hpp"
#include "machine/mps.hpp"
#include "machine/record_store.hpp"
#include "machine/run_loop.hpp"
#include "machine/scope.hpp"
#include "machine/supervise.hpp"
#include "world/duration.hpp"
#include "world/exit_status.hpp"
#include "world/files.hpp"
#include "world/printable.hpp"
#include "world/user_name.hpp"
#include "world/wall_time.hpp"

namespace berth::machine {
namespace {

using inventory::with_short_ids;
using world::duration_text;
using world::wall_time_us;

constexpr Duration memory_grace = std::chrono::seconds(10);
constexpr int end_written_tries = 600;  // one per second

// Prints into the output of the job.
void print_error(const Error& error) { std::fprintf(stderr, "berth: %s\n", world::printable(error.to_text()).c_str()); }

void notify_ready(world::Descriptor ready) {
  if (ready) static_cast<void>(!::write(ready.get(), "r", 1));
}

class JobSupervisor final : public RunLoop {
 public:
  JobSupervisor(const JobOrder& order, Job job, AliveMark alive)
      : RunLoop(RestartRule(order.restarts_on_fault, order.retries)),
        order_(order),
        job_(std::move(job)),
        alive_(std::move(alive)) {}

  // `ready` gets a byte when the job can be listed and stopped; absent if the byte was already sent.
  [[noreturn]] void run(world::Descriptor ready) {
    StopRequests stop;
    stop_ = &stop;
    const Result<void> written = write([&](JobProgress& now) {
      now.supervisor = this_process();
      now.reason = starting_reason;
    });
    if (!written) _exit(1);  // start_job() reports that the job did not start
    notify_ready(std::move(ready));
    during([&] {
      wait_for_start_conditions();
      find_program_and_devices();
    });
    const RunEnd over = RunLoop::run(settings_);
    if (over.kind == RunEnd::Kind::not_reserved) fail(*over.error, world::exit_status(*over.error));
    if (over.kind == RunEnd::Kind::not_started) fail(*over.error, world::start_status(*over.error));
    end(JobState::failed, over.text);
  }

 private:
  // Records a change of the job's progress before the supervisor acts on it.
  template <class Change>
  Result<void> write(Change change) {
    const std::lock_guard lock(mutex_);
    change(progress_);
    return write_progress(job_, progress_);
  }
  // Called while no command runs. If the disk is full, the job continues, and the next write includes this change. If
  // the job's folder was removed, the supervisor ends, because the job could be neither listed nor stopped.
  template <class Change>
  void update(Change change) {
    const std::lock_guard ending(end_mutex_);  // never overwrite the final state
    if (const Result<void> written = write(change); !written && written.error().code == ErrorCode::not_found) _exit(0);
  }
  static void print_last_line(const Job& ended) {
    const std::string peak = peak_memory_text(ended.progress);
    const std::string text = "the job " + outcome(ended) + (peak.empty() ? "" : "; it " + peak);
    std::fprintf(stderr, "berth: %s\n", world::printable(text).c_str());
  }
  // "stopped by alice"
  std::string stopped() const {
    const std::optional<std::uint32_t> sender = stop_->sender();
    return sender ? "stopped by " + world::user_name(*sender) : "stopped";
  }
  [[noreturn]] void end(JobState state, const std::string& reason, std::optional<int> status = std::nullopt) {
    end_mutex_.lock();  // never unlocked: a job ends once
    Job ended = job_;
    {
      const std::lock_guard lock(mutex_);
      ended.progress = progress_;
    }
    ended.progress.state = state;
    ended.progress.reason = reason;
    if (status) ended.progress.status = status;
    ended.progress.ended_us = wall_time_us();
    // Written before the state, so that a reader who follows the output sees it.
    if (order_.by_hand && !(order_.quiet && state == JobState::done)) print_last_line(ended);
    std::fflush(nullptr);
    const Result<void> written = write([&](JobProgress& now) { now = ended.progress; });
    // not_found: berth rm has removed the job.
    if (!written && written.error().code == ErrorCode::not_found) _exit(0);
    if (!order_.notify.empty()) notify(ended, order_.notify);
    if (!written) end_without_room();
    _exit(0);
  }
  // The disk is full. This process must end, because it holds the lease in the ledger, so a forked process repeats the
  // write until there is room.
  void end_without_room() {
    mutex_.lock();  // held by this thread, so that the forked process can unlock it
    if (fork() != 0) _exit(0);
    mutex_.unlock();
    // Closes all descriptors except the alive mark: a lease and a place in the queue end with their descriptors.
    const auto mark = static_cast<unsigned>(alive_.descriptor());
    if (mark > STDERR_FILENO + 1) syscall(SYS_close_range, STDERR_FILENO + 1, mark - 1, 0);
    syscall(SYS_close_range, mark + 1, std::numeric_limits<unsigned>::max(), 0);
    for (int tries = 0; tries < end_written_tries; ++tries) {
      const Result<void> written = write([](JobProgress&) {});
      if (written || written.error().code == ErrorCode::not_found) return;
      real_clock().sleep_for(std::chrono::seconds(1));
    }
  }
  void wait_for_start_conditions() {
    const JobRequest& request = job_.request;
    if (request.after.empty() && request.after_any.empty() && !request.begin_us) return;
    wait_for_conditions(job_,
                        {[this](const std::string& reason) { update([&](JobProgress& now) { now.reason = reason; }); },
                         [this](const std::string& reason) { end(JobState::skipped, reason); }});
    update([](JobProgress& now) { now.reason = starting_reason; });
  }

  [[noreturn]] void fail(const Error& error, int status) {
    print_error(error);
    end(JobState::failed, error.to_text(), status);
  }

  void find_program_and_devices() {
    if (!order_.folder.empty() && chdir(order_.folder.c_str()) != 0)
      fail({ErrorCode::io, "cannot enter the folder " + order_.folder + ": " + std::strerror(errno)},
           world::environment_error);
    const auto path = order_.environment.find("PATH");
    Result<std::string> program =
        find_command(order_.command.front(), path == order_.environment.end() ? nullptr : path->second.c_str());
    if (!program) fail(program.error(), world::start_status(program.error()));
    settings_.program = {*std::move(program), order_.command};
    settings_.limit = order_.limit;
    settings_.mps = mps_control_socket().has_value();
    settings_.backends = order_.devices.backends;
    settings_.host = order_.host;
    settings_.quiet = order_.quiet;
    if (order_.devices.count == 0) return;
    Result<RunContext> opened = open_run_context(order_.devices, print_error);
    if (!opened) fail(opened.error(), world::exit_status(opened.error()));
    opened->wanted.name = settings_.program.path.substr(settings_.program.path.rfind('/') + 1);
    // A job that first waits for other jobs or for its start time joins the queue after that.
    if (order_.after.empty() && order_.after_any.empty() && !order_.begin_us) opened->wanted.since = order_.asked;
    settings_.context.emplace(*std::move(opened));
  }

  void during(const std::function<void()>& step) override {
    stop_->during(step, [this] { end(JobState::stopped, stopped() + " while it was waiting"); });
  }
  Deadline reserve_until() override { return order_.wait ? Deadline::after(real_clock(), *order_.wait) : Deadline{}; }
  std::function<void(const Progress&)> on_waiting() override {
    return [this, ids = ids_of(settings_.context->observer.devices())](const Progress& progress) {
      update([&](JobProgress& now) {
        now.state = JobState::waiting;
        now.reason = (progress.place > 0 ? "place " + std::to_string(progress.place) + " in line: " : "") +
                     with_short_ids(progress.reason, ids);
      });
    };
  }
  void decided(const Reservation& reserved, const format::DecisionRecord& record) override {
    // Also stored with the job, because the record store keeps only the newest decisions.
    static_cast<void>(write_file(job_, job_.decision(), record_text(record)));
    {
      const std::lock_guard lock(mutex_);
      progress_.decision = record.id;  // written together with the resulting state
    }
    settings_.context->wanted.since.reset();  // the next attempt is a new request
    if (reserved.lease) return;
    const std::vector<DeviceInfo>& devices = settings_.context->observer.devices();
    std::fputs(refusal_text(reserved, devices, "see berth why " + job_.id).c_str(), stderr);
    const bool has_waited = !reserved.never && order_.wait.value_or(Duration::zero()) > Duration::zero();
    end(JobState::refused,
        (has_waited ? "refused after waiting " + duration_text(*order_.wait) + " (--wait): " : "") +
            with_short_ids(reserved.reason(), ids_of(devices)),
        world::does_not_fit);
  }

  void prepare(RunAttempt& attempt) override {
    Launch& command = attempt.command;
    if (!attempt.reserved && order_.host.any()) {
      command.before_start = [this](pid_t pid) {
        open_scope("berth-" + job_.id + "-" + std::to_string(pid) + ".scope", "Berth job " + job_.id, pid, order_.host);
      };
    }
    if (order_.host.any()) {
      command.before_start = [this, open = std::move(command.before_start)](pid_t pid) {
        open(pid);
        if (auto reason = missing_limits(pid, order_.host))
          update([&](JobProgress& progress) { progress.reason = "host_memory or cpus is not enforced: " + *reason; });
      };
    }
    for (const auto& [name, value] : order_.environment) command.environment.insert_or_assign(name, value);
    command.removed.insert(order_.removed.begin(), order_.removed.end());
    command.environment["BERTH_JOB"] = job_.id;
    command.environment[job_folder_variable] = job_mark(job_);
  }

  Result<CommandExit> start(RunAttempt& attempt) override {
    if (const auto reason = not_renewed()) end(JobState::stopped, *reason);
    const std::optional<LeaseReference> lease =
        attempt.reserved ? std::optional(attempt.reserved->lease.reference()) : std::nullopt;
    std::optional<TimePoint> above_since;  // when it began to use more memory than allowed
    Supervision supervision;
    supervision.output = STDERR_FILENO;
    supervision.time = order_.time;
    supervision.grace = order_.stop_grace;
    supervision.ends_with_supervisor = order_.stop_unless_renewed.has_value();
    supervision.started = [&](pid_t pid) { write_started(attempt.granted, lease, pid); };
    supervision.look = [&]() -> std::optional<std::string> {
      bound_output();
      if (auto reason = not_renewed()) return reason;
      return lease ? look(attempt.granted, *lease, above_since) : std::nullopt;
    };
    const TimePoint began = real_clock().now();
    Result<SupervisedExit> over = supervise(attempt.command, supervision, *stop_);
    took_ = real_clock().now() - began;
    bound_output();
    if (!over) return std::move(over).error();
    over_ = *std::move(over);
    return over_.ended;
  }

  void bound_output() const {
    if (job_.request.output.empty()) shorten_output(job_.output(), output_bytes_max);  // unless the user named the file
  }

  void write_started(std::span<const Granted> granted, const std::optional<LeaseReference>& lease, pid_t pid) {
    update([&](JobProgress& progress) {
      progress.state = JobState::running;
      progress.reason.clear();
      progress.status.reset();  // of the previous attempt
      progress.command = find_process(static_cast<std::uint32_t>(pid));
      progress.lease = lease ? to_string(*lease) : "";
      progress.devices.clear();
      for (const Granted& grant : granted) progress.devices.push_back(grant.device.id.text());
      progress.memory_bytes = granted.empty() ? 0 : granted.front().memory_bytes;
      ++progress.attempts;
      progress.started_us = wall_time_us();
    });
  }

  // Returns when the command may be restarted.
  void ended(const RunAttempt& attempt, const CommandExit& ended) override {
    update([&](JobProgress& progress) {
      progress.status = ended.status;
      progress.device_seconds +=
          static_cast<double>(attempt.granted.size()) * std::chrono::duration<double>(took_).count();
    });
    switch (over_.cause) {
      case SupervisedExit::Cause::stop_request: end(JobState::stopped, stopped() + " after " + duration_text(took_));
      case SupervisedExit::Cause::time: end(JobState::timed_out, "ran longer than " + duration_text(*order_.time));
      case SupervisedExit::Cause::look: end(lost_ ? JobState::stopped : JobState::failed, over_.reason);
      case SupervisedExit::Cause::itself: break;
    }
    if (ended.status == 0) end(JobState::done, "");
  }
  void is_restarted(const RestartRule::Decision& next) override {
    update([&](JobProgress& now) {
      now.state = JobState::waiting;
      now.reason = next.text;
    });
  }

  // The reason to end the job if renew_job() was not called in time.
  std::optional<std::string> not_renewed() {
    if (!order_.stop_unless_renewed) return std::nullopt;
    const std::string text = world::read_plain_text(job_.renewed()).value_or("");
    std::int64_t stamp = 0;
    std::from_chars(text.data(), text.data() + text.size(), stamp);
    const Duration now = time_since_boot();
    // Ignore a time in the future, which belongs to another boot of the machine.
    if (Duration(stamp) <= now) renewed_ = std::max(renewed_, Duration(stamp));
    if (now - renewed_ <= *order_.stop_unless_renewed) return std::nullopt;
    lost_ = true;
    return "its agent did not renew it for " + duration_text(*order_.stop_unless_renewed);
  }

  // Records how much memory the job uses; returns a reason if it is too much.
  std::optional<std::string> look(std::span<const Granted> granted, const LeaseReference& lease,
                                  std::optional<TimePoint>& above_since) {
    if (std::none_of(granted.begin(), granted.end(),
                     [](const Granted& grant) { return grant.device.backend == "cuda"; }))
      return std::nullopt;
    const MachineSnapshot observed = settings_.context->observer.snapshot();
    if (std::all_of(observed.devices.begin(), observed.devices.end(),
                    [](const ObservedDevice& device) { return device.processes.empty(); })) {
      above_since.reset();
      return std::nullopt;
    }
    const Result<LedgerSnapshot> snapshot = settings_.context->ledger->snapshot();
    const LedgerEntry* const entry = snapshot ? snapshot->find(lease) : nullptr;
    if (!entry) return std::nullopt;
    std::uint64_t all = 0;
    std::optional<std::string> above;
    for (const ObservedDevice& device : observed.devices) {
      const auto mine = std::find_if(granted.begin(), granted.end(),
                                     [&](const Granted& grant) { return grant.device.id == device.info.id; });
      if (mine == granted.end() || !device.telemetry || !device.telemetry->processes) continue;
      const std::uint64_t used = ledger::ProcessOwners(*snapshot, device.processes).bytes_in_use(*entry);
      all += used;
      if (order_.limit == Limit::watch && mine->memory_bytes > 0 && used > mine->memory_bytes)
        above = "it used " + bytes_text(used) + " of the " + bytes_text(mine->memory_bytes) + " requested on " +
                device.info.id.text();
    }
    if (all > progress_.memory_bytes_peak.value_or(0))
      static_cast<void>(write([&](JobProgress& now) { now.memory_bytes_peak = all; }));
    const TimePoint now = real_clock().now();
    if (!above)
      above_since.reset();
    else if (!above_since)
      above_since = now;
    return above && now - *above_since >= memory_grace ? above : std::nullopt;
  }

  const JobOrder& order_;
  const Job job_;
  RunSettings settings_;
  AliveMark alive_;
  Duration renewed_{};
  bool lost_ = false;  // the job was not renewed in time
  StopRequests* stop_ = nullptr;
  SupervisedExit over_;  // of the last attempt
  Duration took_{};
  std::mutex end_mutex_;  // never unlocked by the thread that ends the job
  std::mutex mutex_;      // guards progress_
  JobProgress progress_;
};

std::string read_all(int file) {
  std::string text;
  std::array<char, 65536> part{};
  for (ssize_t got = 0; (got = read(file, part.data(), part.size())) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

[[noreturn]] void supervise_job(const std::string& folder) {
  Result<JobOrder> order = read_order(read_all(STDIN_FILENO));
  if (!order) {
    print_error(order.error());
    _exit(world::wrong_input);
  }
  // The caller waits for its child, which ends here, so it does not wait for the supervisor.
  if (fork() != 0) _exit(0);
  setsid();
  prctl(PR_SET_NAME, supervisor_name);
  // The caller may ignore these signals; the command still gets the caller's settings.
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
  // With this, a write beyond the file-size limit fails instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  world::Descriptor ready(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  world::Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!ready || !nothing) _exit(1);
  dup2(nothing.get(), STDIN_FILENO);
  nothing.close();
  dup2(STDERR_FILENO, STDOUT_FILENO);
  close_inherited_descriptors();
  // Read before switching to the job's user, who cannot read all of the folder.
  const std::filesystem::path path = folder;
  Result<Job> job = find_job(path.parent_path(), path.filename());
  if (!job) {
    print_error(job.error());
    _exit(1);
  }
  Result<AliveMark> alive = AliveMark::set(job->folder);
  if (!alive) _exit(1);
  if (job->request.user) {
    // Sent before switching to the job's user, who can stop this process from then on.
    if (!write_supervisor(*job, this_process())) _exit(1);
    notify_ready(std::exchange(ready, world::Descriptor()));
  }
  if (!order->user.empty()) {
    const Result<world::UserAccount> account = world::find_user(order->user);
    // PR_SET_DUMPABLE lets the user's processes read this one in /proc again, so that they can find its lease. It
    // contains no secret except the order.
    if (!account || !world::become(*account) || prctl(PR_SET_DUMPABLE, 1) != 0) {
      print_error({ErrorCode::io, "the supervisor cannot switch to user " + order->user});
      _exit(1);
    }
    order->environment.emplace("HOME", account->home);
    for (const char* const name : {"USER", "LOGNAME"}) order->environment.emplace(name, account->name);
    for (const char* const name : {"XDG_RUNTIME_DIR", "XDG_STATE_HOME"}) order->removed.insert(name);
  }
  try {
    JobSupervisor(*order, *std::move(job), *std::move(alive)).run(std::move(ready));
  } catch (const std::system_error& shortage) {  // no thread can be started
    print_error({ErrorCode::io, std::string("the supervisor cannot start a thread: ") + shortage.code().message()});
    _exit(1);
  }
}

}  // namespace

void supervisor_entry(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == supervisor_verb) supervise_job(argv[2]);
}

Duration time_since_boot() noexcept {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace berth::machine
