#include "worker/worker_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace berth::worker {
namespace {

Error start_error(int code) {
  return {ErrorCode::unavailable, std::string("cannot start a worker: ") + std::strerror(code),
          "check the limits on processes and files, and WorkerOptions::program"};
}

// The environment for a worker of this device. CUDA starts faster if only one device is visible.
std::vector<std::string> environment_for(const Setup& setup, const std::vector<std::string>& given) {
  std::vector<std::string> variables;
  const bool cuda = setup.backend.text() == "cuda";
  for (const std::string& variable : given)
    if (!cuda || !variable.starts_with("CUDA_VISIBLE_DEVICES=")) variables.push_back(variable);
  if (cuda) variables.push_back("CUDA_VISIBLE_DEVICES=" + setup.device.text().value_or(""));
  variables.push_back(std::string(worker_variable) + "=1");
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// A copy above the numbers that a worker inherits, so that dup2 to those numbers does not overwrite it.
world::Descriptor raised(int descriptor) noexcept {
  world::Descriptor copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 16));
  if (!copy && errno == EINVAL) errno = EMFILE;  // the limit on descriptors is below 16
  return copy;
}

// Returns 0 or an error number.
int spawn(const std::string& program, std::vector<std::string> variables, const Setup& setup, int socket, int channel,
          int shared, pid_t& pid) {
  const world::Descriptor raised_socket = raised(socket);
  const world::Descriptor raised_channel = raised(channel);
  const world::Descriptor raised_shared = raised(shared);
  if (!raised_socket || !raised_channel || !raised_shared) return errno;
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  if (const int failed = posix_spawn_file_actions_init(&files)) return failed;
  if (const int failed = posix_spawnattr_init(&attributes)) {
    posix_spawn_file_actions_destroy(&files);
    return failed;
  }
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, raised_socket.get(), worker_socket);
  posix_spawn_file_actions_adddup2(&files, raised_channel.get(), worker_channel);
  posix_spawn_file_actions_adddup2(&files, raised_shared.get(), worker_shared);
  posix_spawn_file_actions_addclosefrom_np(&files, worker_shared + 1);
  // In its own process group, because Ctrl-C is for the program. No signal is blocked or ignored.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::array<char, 4096> own{};  // the worker's name in a list of processes
  const ssize_t length = readlink(program.c_str(), own.data(), own.size());
  std::vector<std::string> arguments{length > 0 ? std::string(own.data(), static_cast<std::size_t>(length)) : program,
                                     worker_argument, setup.device.text().value_or("")};
  const int failed =
      posix_spawn(&pid, program.c_str(), &files, &attributes, pointers(arguments).data(), pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return failed;
}

std::string how_ended(const siginfo_t& ended) {
  if (ended.si_code == CLD_EXITED) return "exited with status " + std::to_string(ended.si_status);
  const char* const name = sigabbrev_np(ended.si_status);
  return "was ended by signal " + std::to_string(ended.si_status) + (name ? " (SIG" + std::string(name) + ")" : "");
}

}  // namespace

Result<std::shared_ptr<WorkerProcess>> WorkerProcess::start(const std::string& program,
                                                            const std::vector<std::string>& environment,
                                                            const Setup& setup, int shared) {
  Channel channel = BERTH_TRY(Channel::make(setup));
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return start_error(errno);
  world::Descriptor own(ends[0]), given(ends[1]);
  pid_t pid = 0;
  const int failed =
      spawn(program, environment_for(setup, environment), setup, given.get(), channel.descriptor(), shared, pid);
  given.close();
  if (failed != 0) return start_error(failed);
  world::Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) {
    const int code = errno;
    // If the program ignores SIGCHLD, the worker may be gone and its pid reused.
    if (code != ESRCH) {
      ::kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    return start_error(code);
  }
  return std::shared_ptr<WorkerProcess>(new WorkerProcess(std::move(channel), pid, std::move(process), std::move(own)));
}

void WorkerProcess::kill(Error why, bool blames_device) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_) {
      reason_ = std::move(why);
      blames_device_.store(blames_device, std::memory_order_release);
    }
  }
  killed_.store(true, std::memory_order_release);
  syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0);
}

Error WorkerProcess::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_.value_or(Error{ErrorCode::worker_lost, "the worker has not ended"});
}

std::optional<Result<void>> WorkerProcess::read_message() {
  std::array<char, 512> part{};
  ssize_t got = 0;
  while (may_send_ && (got = recv(socket_.get(), part.data(), part.size(), MSG_DONTWAIT)) >= 0) {
    if (got == 0) may_send_ = false;
    received_.append(part.data(), static_cast<std::size_t>(got));
    if (received_.size() > worker_text_bytes_max) {
      received_.resize(worker_text_bytes_max);
      received_.back() = '\n';
      may_send_ = false;
    }
  }
  const std::size_t end = received_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  const std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  if (line == "ready") return Result<void>();
  std::size_t code = 0, digits = 0;
  while (digits < line.size() && digits < 3 && line[digits] >= '0' && line[digits] <= '9')
    code = 10 * code + static_cast<std::size_t>(line[digits++] - '0');
  const bool known = digits > 0 && code <= static_cast<std::size_t>(ErrorCode::internal);
  return Result<void>(Error{known ? static_cast<ErrorCode>(code) : ErrorCode::internal,
                            line.substr(std::min(line.size(), digits + 1))});
}

bool WorkerProcess::has_ended() const noexcept {
  pollfd ended{process_.get(), POLLIN, 0};
  return poll(&ended, 1, 0) > 0;
}

void WorkerProcess::reap() noexcept {
  siginfo_t ended{};
  // The program may have waited for all of its children, including ours.
  const auto by_descriptor = static_cast<idtype_t>(P_PIDFD);
  const bool known = waitid(by_descriptor, static_cast<id_t>(process_.get()), &ended, WEXITED | WNOWAIT) == 0;
  if (known) {
    ::kill(-pid_, SIGKILL);  // kill the processes it has started, too; its group keeps this number until it is reaped
    siginfo_t again{};
    waitid(by_descriptor, static_cast<id_t>(process_.get()), &again, WEXITED);
  }
  const std::lock_guard lock(mutex_);
  if (reason_) return;
  reason_ = Error{ErrorCode::worker_lost,
                  "the worker (process " + std::to_string(pid_) + ") " + (known ? how_ended(ended) : "has ended")};
}

void WorkerProcess::give_up(Error why) noexcept {
  const std::lock_guard lock(mutex_);
  reason_ = std::move(why);
}

void WorkerProcess::be_over(std::optional<std::uint64_t> death) noexcept {
  death_ = death;
  over_.store(true, std::memory_order_release);
  for (std::size_t i = 0; i < channel_.mailboxes(); ++i) wake(channel_.mailbox(i).state);
}

std::optional<std::uint64_t> WorkerProcess::private_memory_bytes() const {
  const std::string path = "/proc/" + std::to_string(pid_) + "/statm";
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (!file) return std::nullopt;
  unsigned long long size = 0, resident = 0, shared = 0;
  const int read = std::fscanf(file, "%llu %llu %llu", &size, &resident, &shared);
  std::fclose(file);
  if (read != 3) return std::nullopt;
  return (resident - std::min(resident, shared)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace berth::worker
