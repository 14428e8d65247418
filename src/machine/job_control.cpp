#include "machine/job_control.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "ledger/process.hpp"
#include "machine/inherited.hpp"
#include "machine/job_output.hpp"
#include "machine/job_supervisor.hpp"
#include "world/user_name.hpp"
#include "world/wall_time.hpp"

extern char** environ;

namespace berth::machine {
namespace {

constexpr Duration grace = std::chrono::seconds(10), look_again = std::chrono::milliseconds(20);

class Descriptor {
 public:
  explicit Descriptor(int file = -1) noexcept : file_(file) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return file_; }
  void reset(int file = -1) noexcept {
    if (file_ >= 0) close(file_);
    file_ = file;
  }

 private:
  int file_;
};

Error not_started(const std::string& why) {
  return {ErrorCode::io, "cannot start a supervisor: " + why, "look at the disk and at the limit on processes"};
}

// A file in memory, because the text may hold secrets; a pipe would not take all of it at once.
bool put_into_memory(const std::string& text, Descriptor& file) {
  file.reset(memfd_create("berth-order", MFD_CLOEXEC));
  if (file.get() < 0) return false;
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t put = write(file.get(), text.data() + at, text.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += static_cast<std::size_t>(put);
  }
  return lseek(file.get(), 0, SEEK_SET) == 0;
}

// A job asks the machine, not the lease that it was started in, which ends without it.
std::vector<std::string> environment_for(const Job& job, const JobOrder& order) {
  std::vector<std::string> all{"BERTH_JOB=" + job.id};
  for (char** at = environ; *at; ++at) {
    const std::string entry = *at;
    const std::string name = entry.substr(0, entry.find('='));
    if (name != "BERTH_JOB" && name != "BERTH_LEASE" && !order.removed.contains(name)) all.push_back(entry);
  }
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

Result<void> start_supervisor(const Job& job, const JobOrder& order) {
  const Result<int> opened = open_output(job.output());
  if (!opened) return opened.error();
  const Descriptor output(*opened);
  Descriptor text, ready, told;
  std::array<int, 2> ends{};
  if (!put_into_memory(to_text(order), text) || pipe2(ends.data(), O_CLOEXEC) != 0)
    return not_started(std::strerror(errno));
  told.reset(ends[0]);
  ready.reset(ends[1]);
  if (!order.user.empty()) {
    const Result<world::UserAccount> account = world::find_user(order.user);
    if (!account) return account.error();
    // The folder last: from then on that user can put other files there.
    for (const char* const name : {"/job.json", "/output", "/renewed", ""})
      if (lchown((job.folder + name).c_str(), account->user, account->group) != 0 && errno != ENOENT)
        return not_started(std::strerror(errno));
  }
  // After the fork only what a signal handler may do: other threads of this process may hold any lock.
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
  ready.reset();
  // The supervisor is a child of this one, which ends at once: the caller need not wait for the end of the job.
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  char byte = 0;
  ssize_t got = 0;
  do got = read(told.get(), &byte, 1);
  while (got < 0 && errno == EINTR);
  if (got != 1) return not_started("that of job " + job.id + " ended at once");
  return {};
}

Result<void> check(const JobOrder& order) {
  const auto wrong = [](std::string message, std::string advice) {
    return Error{ErrorCode::invalid_argument, std::move(message), std::move(advice)};
  };
  if (order.command.empty() || order.command.front().empty()) return wrong("the job has no command", "name one");
  if (order.user.empty()) return {};
  const Result<world::UserAccount> account = world::find_user(order.user);
  if (!account) return account.error();
  if (geteuid() != 0 && account->user != geteuid())
    return wrong("only root may start jobs of another user", "leave the user out");
  return {};
}

bool is_alive(const Job& job, const ProcessIdentity& process) {
  return process.pid > 1 && ledger::process_state(process, job.user) == ledger::ProcessState::alive;
}

bool runs_unsupervised(const Job& job) {
  return !job.is_supervised && job.progress.command && is_alive(job, *job.progress.command);
}

void tell_to_end(const Job& job, int signal) {
  pid_t whom = 0;
  if (job.is_supervised && is_alive(job, job.progress.supervisor))
    whom = static_cast<pid_t>(job.progress.supervisor.pid);
  else if (runs_unsupervised(job))
    whom = -static_cast<pid_t>(job.progress.command->pid);
  if (whom == 0) return;
  kill(whom, signal);
  kill(whom, SIGCONT);  // a stopped process must go on to hear of it
}

}  // namespace

Result<Job> start_job(const std::string& jobs, const JobOrder& order) {
  if (Result<void> right = check(order); !right) return std::move(right).error();
  JobRequest request;
  request.name = order.name;
  request.command = order.command;
  request.options = order.options;
  request.labels = order.labels;
  request.after = order.after;
  request.time = order.time;
  request.retries = order.retries;
  request.created_us = world::wall_time_us();
  request.machine = machine_name();
  request.boot = boot_id();
  std::error_code failed;
  request.folder = order.folder.empty() ? std::filesystem::current_path(failed).string() : order.folder;
  Result<Job> job = create_job(jobs, request);
  if (!job) return job;
  Result<void> started;
  if (order.stop_unless_renewed) started = renew_job(*job);
  if (started) started = start_supervisor(*job, order);
  if (started) return find_job(jobs, job->id);
  std::filesystem::remove_all(job->folder, failed);
  return std::move(started).error();
}

void request_stop(const Job& job) {
  if (!job.is_elsewhere) tell_to_end(job, SIGTERM);
}

Result<void> stop_job(const Job& job) {
  request_stop(job);
  return wait_for_stop(job);
}

Result<void> wait_for_stop(const Job& job) {
  if (job.is_elsewhere)
    return Error{ErrorCode::unavailable, "job " + job.id + " runs on " + job.request.machine, "stop it there"};
  if (job.is_supervised) {
    wait_for_supervisor(job.folder);
    return {};
  }
  for (const int signal : {SIGKILL, 0}) {
    const Deadline deadline = Deadline::after(real_clock(), grace);
    while (runs_unsupervised(job) && !deadline.passed(real_clock().now())) real_clock().sleep_for(look_again);
    if (signal != 0) tell_to_end(job, signal);
  }
  if (!runs_unsupervised(job)) return {};
  return Error{ErrorCode::unavailable, "job " + job.id + " was killed and does not end",
               "look at its driver's messages in the kernel's log"};
}

Result<void> renew_job(const Job& job, Duration ago) {
  const std::string path = job.folder + "/renewed";
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  // Always of the same length and in place, so that the file is never empty.
  char text[32];
  const int length =
      std::snprintf(text, sizeof text, "%020lld\n", static_cast<long long>((time_since_boot() - ago).count()));
  if (file.get() < 0 || pwrite(file.get(), text, static_cast<std::size_t>(length), 0) != length)
    return Error{ErrorCode::io, "cannot write " + path + ": " + std::strerror(errno), "look at the disk"};
  return {};
}

}  // namespace berth::machine
