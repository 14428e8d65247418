#include "machine/job_control.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "ledger/limits.hpp"
#include "machine/inherited.hpp"
#include "machine/job_output.hpp"
#include "machine/job_processes.hpp"
#include "machine/job_supervisor.hpp"
#include "machine/launch.hpp"
#include "world/files.hpp"
#include "world/user_name.hpp"
#include "world/wall_time.hpp"

extern char** environ;

namespace berth::machine {
namespace {

// The arguments of a command can take 2 MiB, and each byte may be escaped.
constexpr std::size_t order_bytes_max = std::size_t{16} << 20;
constexpr Duration killed_within = std::chrono::seconds(10), look_again = std::chrono::milliseconds(50);

using world::Descriptor;

Error not_started(const std::string& why) {
  return {ErrorCode::io, "cannot start a supervisor: " + why, "check the disk space and the limit on processes"};
}

// An in-memory file, because the text may contain secrets and may be larger than the buffer of a pipe.
bool put_into_memory(const std::string& text, Descriptor& file) {
  file = Descriptor(memfd_create("berth-order", MFD_CLOEXEC));
  if (!file) return false;
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t put = write(file.get(), text.data() + at, text.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += static_cast<std::size_t>(put);
  }
  return lseek(file.get(), 0, SEEK_SET) == 0;
}

// A job requests devices from the machine, not from the lease that it was started in, which may end earlier.
std::vector<std::string> environment_for(const Job& job, const JobOrder& order) {
  std::vector<std::string> all{"BERTH_JOB=" + job.id, std::string(job_folder_variable) + "=" + job_mark(job)};
  for (char** at = environ; *at; ++at) {
    const std::string entry = *at;
    const std::string name = entry.substr(0, entry.find('='));
    if (name != "BERTH_JOB" && name != job_folder_variable && name != "BERTH_LEASE" && !order.removed.contains(name))
      all.push_back(entry);
  }
  return all;
}

// The file that a job writes to, created if it is missing, as a shell does for `>> FILE`.
Result<Descriptor> open_named_output(const std::string& path) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!file)
    return Error{ErrorCode::invalid_argument, "cannot write " + path + ": " + std::strerror(errno),
                 "give --output a file in an existing folder that you can write to"};
  fcntl(file.get(), F_SETFL, O_APPEND);
  return file;
}

Result<void> start_supervisor(const Job& job, const JobOrder& order) {
  const Descriptor output =
      BERTH_TRY(job.request.output.empty() ? open_output(job.output()) : open_named_output(job.output()));
  Descriptor text, ready, outcome;
  std::array<int, 2> ends{};
  if (!put_into_memory(to_text(order), text) || pipe2(ends.data(), O_CLOEXEC) != 0)
    return not_started(std::strerror(errno));
  outcome = Descriptor(ends[0]);
  ready = Descriptor(ends[1]);
  // Prepared before the fork: after it, only async-signal-safe calls are allowed, because other threads of this process
  // may hold any lock.
  std::vector<std::string> variables = environment_for(job, order);
  std::vector<std::string> words{"berth", supervisor_verb, job.folder};
  const std::vector<char*> environment = pointers_to(variables), arguments = pointers_to(words);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return not_started(std::strerror(errno));
  if (child == 0) {
    dup2(text.get(), STDIN_FILENO);
    dup2(ready.get(), STDOUT_FILENO);
    dup2(output.get(), STDERR_FILENO);
    restore_inherited_signals();
    execve("/proc/self/exe", arguments.data(), environment.data());
    _exit(1);
  }
  ready.close();
  // This child ends at once and leaves the supervisor as a grandchild, so the caller need not wait for the end of the
  // job.
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  char byte = 0;
  ssize_t got = 0;
  do got = read(outcome.get(), &byte, 1);
  while (got < 0 && errno == EINTR);
  if (got != 1) return not_started("the supervisor of job " + job.id + " ended immediately");
  return {};
}

// Returns no account if the job runs as the user of this process.
Result<std::optional<world::UserAccount>> check(const JobOrder& order) {
  const auto wrong = [](std::string message, std::string advice) {
    return Error{ErrorCode::invalid_argument, std::move(message), std::move(advice)};
  };
  if (order.command.empty() || order.command.front().empty())
    return wrong("there is no command for the job", "give one");
  if (order.user.empty()) return std::optional<world::UserAccount>();
  world::UserAccount account = BERTH_TRY(world::find_user(order.user));
  if (account.user == geteuid()) return std::optional<world::UserAccount>();
  if (geteuid() != 0) return wrong("only root may start jobs of another user", "leave the user out");
  return std::optional(std::move(account));
}

std::string random_mark() {
  std::array<unsigned char, 16> bytes{};
  BERTH_ASSERT(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string text;
  for (const unsigned char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

// The order that berth rerun repeats: without the job's conditions, and without the environment, which may contain
// secrets.
JobOrder order_to_repeat(JobOrder order, const JobRequest& request) {
  if (order.folder.empty()) order.folder = request.folder;
  order.environment.clear();
  order.after.clear();
  order.after_any.clear();
  order.begin_us.reset();
  order.asked.reset();
  return order;
}

JobRequest request_of(const JobOrder& order, const std::optional<world::UserAccount>& other) {
  JobRequest request;
  request.name = order.name;
  request.command = order.command;
  request.options = order.options;
  request.labels = order.labels;
  request.after = order.after;
  request.after_any = order.after_any;
  request.begin_us = order.begin_us;
  request.time = order.time;
  request.retries = order.retries;
  request.stop_grace = order.stop_grace;
  request.created_us = world::wall_time_us();
  request.machine = machine_name();
  request.boot = boot_id();
  request.pid_namespace = this_process().pid_namespace;
  request.mark = random_mark();
  if (other) request.user = other->user;
  std::error_code failed;
  request.folder = order.folder.empty() ? std::filesystem::current_path(failed).string() : order.folder;
  if (!order.output.empty()) {
    request.output = std::filesystem::path(request.folder) / order.output;
    if (struct stat about{}; stat(request.output.c_str(), &about) == 0)
      request.output_from = static_cast<std::uint64_t>(about.st_size);
  }
  return request;
}

}  // namespace

Result<Job> start_job(const std::string& jobs, const JobOrder& given) { return start_job(jobs, given, nullptr); }

Result<Job> start_job(const std::string& jobs, const JobOrder& given, const CompleteOrder& complete) {
  JobOrder order = given;
  const TimePoint asked = real_clock().now();
  const std::optional<world::UserAccount> other = BERTH_TRY(check(order));
  Result<Job> job = create_job(jobs, [&](const std::string& folder) -> Result<JobRequest> {
    if (complete) BERTH_TRY(complete(order, folder));
    return request_of(order, other);
  });
  if (!job) return job;
  order.asked = asked;
  Result<void> started = other ? give_to_user(*job, other->group) : Result<void>();
  if (started && order.stop_unless_renewed) started = renew_job(*job);
  if (started && order.by_hand)
    started = world::write_private_text(job->order(), to_text(order_to_repeat(order, job->request)));
  if (started) started = start_supervisor(*job, order);
  if (started) return find_job(jobs, job->id);
  std::error_code ignored;
  std::filesystem::remove_all(job->folder, ignored);
  return std::move(started).error();
}

Result<void> check_waiting_limit(const std::string& jobs, std::size_t more) {
  const Result<ledger::UserLimits> limits = ledger::own_limits();
  if (!limits || !limits->any()) return {};
  const std::vector<Job> all = list_jobs(jobs);
  const auto waiting = std::count_if(all.begin(), all.end(), [](const Job& job) {
    return job.progress.state == JobState::waiting && !job.is_elsewhere;
  });
  const auto reached =
      ledger::limit_reached(*limits, ledger::LimitKind::waiting, static_cast<std::uint64_t>(waiting), more);
  if (reached) return reached->error();
  return {};
}

Result<JobOrder> order_to_repeat(const Job& job) {
  const Result<std::string> text = world::read_plain_text(job.order(), order_bytes_max);
  if (text) return read_order(*text);
  if (text.error().code != ErrorCode::not_found) return text.error();
  return Error{ErrorCode::invalid_argument, "the options of job " + job.id + " were not kept",
               "start it again with berth run -d"};
}

void request_stop(const Job& job) {
  if (job.is_elsewhere) return;
  if (job.is_supervised && is_process_of(job, job.progress.supervisor))
    return signal_process(job, job.progress.supervisor, SIGTERM);
  for (const ProcessIdentity& process : JobProcesses().of(job)) signal_process(job, process, SIGTERM);
}

void kill_job(const Job& job) {
  if (job.is_elsewhere) return;
  if (job.is_supervised) signal_process(job, job.progress.supervisor, SIGKILL);
  for (const ProcessIdentity& process : JobProcesses().of(job)) signal_process(job, process, SIGKILL);
}

Result<void> stop_job(const Job& job) {
  request_stop(job);
  return wait_for_stop(job);
}

Result<void> wait_for_stop(const Job& job) {
  if (job.is_elsewhere) {
    const bool is_here = job.request.machine == machine_name() || job.request.boot == boot_id();
    return Error{ErrorCode::unavailable,
                 "job " + job.id + " runs " + (is_here ? "in another container, " : "on ") + job.request.machine,
                 "stop it there"};
  }
  if (job.is_supervised) {
    wait_for_supervisor(job.folder);
    // The supervisor has ended the job, unless it was killed.
    const Result<Job> now = find_job(std::filesystem::path(job.folder).parent_path(), job.id);
    if (!now || now->has_ended()) return {};
    request_stop(*now);
  }
  const auto runs = [&] { return !JobProcesses().of(job).empty(); };
  for (const bool kills : {true, false}) {
    const Deadline deadline = Deadline::after(real_clock(), kills ? job.request.stop_grace : killed_within);
    while (runs() && !deadline.passed(real_clock().now())) real_clock().sleep_for(look_again);
    if (kills && runs()) kill_job(job);
  }
  if (!runs()) return {};
  return Error{ErrorCode::unavailable, "job " + job.id + " was killed but has not ended",
               "check the kernel log for driver messages (dmesg)"};
}

Result<void> renew_job(const Job& job, Duration ago) {
  const std::string path = job.renewed();
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  fchmod(file.get(), 0644);  // so that a supervisor of another user can read it
  // The text always has the same length and is overwritten in place, so the file is never empty.
  char text[32];
  const int length =
      std::snprintf(text, sizeof text, "%020lld\n", static_cast<long long>((time_since_boot() - ago).count()));
  if (!file || pwrite(file.get(), text, static_cast<std::size_t>(length), 0) != length)
    return Error{ErrorCode::io, "cannot write " + path + ": " + std::strerror(errno),
                 "check that the disk is not full"};
  return {};
}

}  // namespace berth::machine
