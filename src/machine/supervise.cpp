#include "machine/supervise.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "machine/job_processes.hpp"

namespace berth::machine {
namespace {

constexpr Duration look_period = std::chrono::seconds(1);

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&set, signal);
  return set;
}

// If this job has started other jobs, their processes are left alone: a supervisor or, if it was killed, its command.
// Both have their job's folder in their environment from the start. The id would not be enough, because each folder of
// jobs has its own ids.
bool is_of_another_job(const std::filesystem::path& process) {
  const char* const own = std::getenv(job_folder_variable);
  const std::string name = std::string(job_folder_variable) + "=";
  std::ifstream file(process / "environ");
  for (std::string entry; own && std::getline(file, entry, '\0');)
    if (entry.starts_with(name)) return entry.substr(name.size()) != own;
  return false;
}

// Children of this process: the command, and the processes it left behind.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry("/proc", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
    std::ifstream file(entry->path() / "stat");
    std::string line;
    std::getline(file, line);
    // "pid (name) state parent ..."; a name may have blanks and brackets.
    const std::size_t bracket = line.rfind(')');
    if (bracket == std::string::npos || bracket + 4 >= line.size()) continue;
    pid_t parent = 0;
    std::from_chars(line.data() + bracket + 4, line.data() + line.size(), parent);
    if (parent == getpid() && !is_of_another_job(entry->path())) found.push_back(pid);
  }
  return found;
}

// Reaps ended processes. Returns the wait status of `command` if it is among them.
std::optional<int> reap(pid_t command) {
  std::optional<int> ended;
  int status = 0;
  pid_t pid = 0;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
    if (pid == command) ended = status;
  // Another part of the program has reaped the command, so its status is unknown.
  if (!ended && pid < 0 && errno == ECHILD && command > 0) ended = W_EXITCODE(255, 0);
  return ended;
}

// Sends SIGTERM to the remaining processes, and SIGKILL after `grace`. A process stuck in a driver call is abandoned.
void end_leftovers(Duration grace) {
  const Deadline deadline = Deadline::after(real_clock(), grace), last = Deadline::after(real_clock(), 2 * grace);
  std::vector<pid_t> signalled;
  for (;;) {
    reap(0);
    const std::vector<pid_t> left = children();
    if (left.empty() || last.passed(real_clock().now())) return;
    const bool late = deadline.passed(real_clock().now());
    for (const pid_t pid : left) {
      if (!late && std::find(signalled.begin(), signalled.end(), pid) != signalled.end()) continue;
      kill(pid, late ? SIGKILL : SIGTERM);
      signalled.push_back(pid);
    }
    real_clock().sleep_for(std::chrono::milliseconds(20));
  }
}

int milliseconds_until(TimePoint when) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - real_clock().now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

}  // namespace

StopRequests::StopRequests() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = world::Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  over_ = world::Descriptor(eventfd(0, EFD_CLOEXEC));
  if (signals_ && over_) thread_ = std::thread([this] { receive(); });
}

StopRequests::~StopRequests() {
  if (!thread_.joinable()) return;
  eventfd_write(over_.get(), 1);
  thread_.join();
}

bool StopRequests::requested() const noexcept {
  pollfd pending{signals_.get(), POLLIN, 0};
  return poll(&pending, 1, 0) == 1;
}

std::optional<std::uint32_t> StopRequests::sender() const noexcept {
  signalfd_siginfo request{};
  if (read(signals_.get(), &request, sizeof request) != sizeof request) return std::nullopt;
  return request.ssi_uid;
}

void StopRequests::receive() {
  pollfd watched[2] = {{signals_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}};
  while (poll(watched, 2, -1) < 0) {
  }
  if (watched[1].revents != 0) return;
  const std::lock_guard lock(mutex_);
  if (end_) end_();
}

void StopRequests::during(const std::function<void()>& step, const std::function<void()>& end) {
  {
    const std::lock_guard lock(mutex_);
    end_ = end;
    if (requested()) end_();
  }
  step();
  const std::lock_guard lock(mutex_);
  end_ = nullptr;
}

Result<SupervisedExit> supervise(const Launch& command, const Supervision& supervision, const StopRequests& stop) {
  // Processes that the command leaves behind become children of this process.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const auto detach = [output = supervision.output, with_parent = supervision.ends_with_supervisor] {
    setsid();
    if (with_parent) prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
  };
  const Result<pid_t> child = start_command(command, detach, [&](pid_t pid) {
    if (supervision.started) supervision.started(pid);
  });
  if (!child) return child.error();

  SupervisedExit over;
  const TimePoint began = real_clock().now();
  std::optional<TimePoint> kill_at;
  TimePoint look_at = began + look_period;
  const auto end_it = [&](SupervisedExit::Cause cause, std::string reason) {
    if (kill_at) return;
    over.cause = cause;
    over.reason = std::move(reason);
    kill_at = real_clock().now() + supervision.grace;
    kill(-*child, SIGTERM);
    kill(-*child, SIGCONT);
  };
  const world::Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, *child, 0)));
  for (;;) {
    if (const std::optional<int> status = reap(*child)) {
      set_exit(over.ended, *status);
      // The user who stops a job may also signal its command, which then ends before the request is handled.
      if (!kill_at && over.ended.status != 0 && stop.requested()) over.cause = SupervisedExit::Cause::stop_request;
      break;
    }
    const TimePoint now = real_clock().now();
    if (stop.requested()) end_it(SupervisedExit::Cause::stop_request, "");
    if (supervision.time && now - began >= *supervision.time) end_it(SupervisedExit::Cause::time, "");
    if (now >= look_at && supervision.look) {
      look_at = now + look_period;
      if (std::optional<std::string> reason = supervision.look())
        end_it(SupervisedExit::Cause::look, *std::move(reason));
    }
    if (kill_at && now >= *kill_at) {
      kill(-*child, SIGKILL);
      kill_at = now + look_period;  // a process in a driver call may not end at once
    }
    TimePoint next = look_at;
    if (kill_at) next = std::min(next, *kill_at);
    if (!kill_at && supervision.time) next = std::min(next, began + *supervision.time);
    // After a stop request its descriptor stays readable, so it is no longer polled.
    pollfd watched[2] = {{process.get(), POLLIN, 0}, {stop.descriptor(), POLLIN, 0}};
    poll(watched, stop.requested() ? 1 : 2, std::max(1, milliseconds_until(next)));
  }
  end_leftovers(supervision.grace);
  return over;
}

}  // namespace berth::machine
