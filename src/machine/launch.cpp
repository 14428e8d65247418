#include "machine/launch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>

#include "device/host/cores.hpp"
#include "machine/inherited.hpp"
#include "world/descriptor.hpp"

extern char** environ;

namespace berth::machine {
namespace {

// Signals that are forwarded to a child command.
constexpr std::array forwarded{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

int signal_pipe = -1;  // the handler writes here; one launch at a time
// The command's process group is the foreground group of the terminal.
std::atomic<bool> terminal_handed_over = false;

void on_signal(int signal, siginfo_t* info, void*) {
  const int before = errno;
  // The kernel also sends a hang-up to the foreground group, which is the command's.
  const bool sent_to_both = info->si_code > 0 && terminal_handed_over;
  const bool pass_on = signal != SIGCHLD && (signal == SIGCONT || !sent_to_both);
  const unsigned char byte = static_cast<unsigned char>(pass_on ? signal : 0);
  static_cast<void>(!write(signal_pipe, &byte, 1));
  errno = before;
}

// During its lifetime, signals become bytes in a pipe.
class SignalPipe {
 public:
  SignalPipe() {
    if (pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) != 0) return;
    signal_pipe = ends_[1];
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < forwarded.size(); ++i) {
      sigaction(forwarded[i], nullptr, &before_[i]);
      // An ignored signal (nohup) stays ignored, here and in the command.
      if (before_[i].sa_handler != SIG_IGN) sigaction(forwarded[i], &action, nullptr);
    }
    sigaction(SIGCHLD, &action, &before_.back());
  }
  ~SignalPipe() {
    for (std::size_t i = 0; i < forwarded.size(); ++i) sigaction(forwarded[i], &before_[i], nullptr);
    sigaction(SIGCHLD, &before_.back(), nullptr);
    for (const int end : ends_) {
      if (end >= 0) close(end);
    }
  }
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;
  bool works() const { return ends_[0] >= 0; }
  // The next signal to forward; 0: the command changed its state; absent: timeout.
  std::optional<int> wait(int milliseconds) const {
    pollfd what{ends_[0], POLLIN, 0};
    poll(&what, 1, milliseconds);
    unsigned char byte = 0;
    return read(ends_[0], &byte, 1) == 1 ? std::optional<int>(byte) : std::nullopt;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  std::array<struct sigaction, forwarded.size() + 1> before_{};
};

// The controlling terminal of this process, if there is one.
class Terminal {
 public:
  Terminal() : file_(open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)) {}
  ~Terminal() { take_back(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  bool is_there() const { return file_.get() >= 0; }
  // Fails unless this process is in the foreground, because a background job must stay in the background.
  bool hand_over(pid_t group) {
    if (!file_ || tcgetpgrp(file_.get()) != getpgrp() || !make_foreground(group)) return false;
    terminal_handed_over = true;
    return true;
  }
  void take_back() {
    if (terminal_handed_over.exchange(false)) static_cast<void>(make_foreground(getpgrp()));
  }

 private:
  bool make_foreground(pid_t group) {
    // Without this, a background process that changes the foreground group is stopped.
    sigset_t stop, before;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTTOU);
    pthread_sigmask(SIG_BLOCK, &stop, &before);
    const bool made = tcsetpgrp(file_.get(), group) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return made;
  }
  const world::Descriptor file_;
};

Error failed(const std::string& what, int error) {
  return {ErrorCode::io, what + ": " + std::generic_category().message(error)};
}

Error exec_error_of(const std::string& program, int error) {
  return {error == ENOENT ? ErrorCode::not_found : ErrorCode::invalid_argument,
          program + " cannot be run: " + std::generic_category().message(error),
          "check that the file and the interpreter in its first line exist",
          {},
          {}};
}

std::vector<std::string> environment_of(const Launch& command) {
  std::vector<std::string> all;
  for (char** at = environ; *at; ++at) {
    const std::string entry = *at;
    const std::string name = entry.substr(0, entry.find('='));
    if (!command.environment.contains(name) && !command.removed.contains(name)) all.push_back(entry);
  }
  for (const auto& [name, value] : command.environment) all.push_back(name + "=" + value);
  return all;
}

// The test that shells use: a zero byte in the first line means a binary file.
bool is_binary(const char* path) noexcept {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  std::array<char, 256> start{};
  const ssize_t got = read(file, start.data(), start.size());
  close(file);
  for (ssize_t i = 0; i < got; ++i) {
    if (start[static_cast<std::size_t>(i)] == '\n') return false;
    if (start[static_cast<std::size_t>(i)] == 0) return true;
  }
  return got < 0;
}

// Everything that exec needs, prepared before fork: after it, only async-signal-safe
// calls are allowed in the child of a multi-threaded program.
class PreparedExec {
 public:
  explicit PreparedExec(const Launch& command)
      : program_(command.program),
        arguments_(command.arguments),
        shell_arguments_{"/bin/sh", command.program},
        variables_(environment_of(command)),
        inherited_(command.inherited),
        pin_(!command.cores.empty()),
        cores_(command.cores) {
    if (!arguments_.empty()) shell_arguments_.insert(shell_arguments_.end(), arguments_.begin() + 1, arguments_.end());
    argument_pointers_ = pointers_to(arguments_);
    shell_pointers_ = pointers_to(shell_arguments_);
    variable_pointers_ = pointers_to(variables_);
    close_own_descriptors_on_exec();
  }
  PreparedExec(const PreparedExec&) = delete;
  PreparedExec& operator=(const PreparedExec&) = delete;

  // Returns only on failure, with errno.
  int execute() const noexcept {
    for (const int descriptor : inherited_) fcntl(descriptor, F_SETFD, 0);
    if (pin_) sched_setaffinity(0, sizeof(cores_.bits), cores_.bits.data());
    restore_inherited_signals();
    execve(program_.c_str(), argument_pointers_.data(), variable_pointers_.data());
    if (errno == ENOEXEC) {
      if (is_binary(program_.c_str())) return ENOEXEC;
      execve("/bin/sh", shell_pointers_.data(), variable_pointers_.data());
    }
    return errno;
  }

 private:
  const std::string program_;
  std::vector<std::string> arguments_, shell_arguments_, variables_;
  std::vector<char*> argument_pointers_, shell_pointers_, variable_pointers_;
  const std::vector<int> inherited_;
  const bool pin_;
  const device::CoreSet cores_;
};

// The child of launch(): waits until the lease is registered for it.
[[noreturn]] void wait_and_execute(const PreparedExec& command, int go, int failure) {
  char byte = 0;
  ssize_t got = 0;
  do {
    got = read(go, &byte, 1);
  } while (got < 0 && errno == EINTR);
  // Berth ended before the lease was registered, so there is no reservation.
  if (got != 1) _exit(1);
  const int error = command.execute();
  static_cast<void>(!write(failure, &error, sizeof(error)));
  _exit(127);
}

// In a pipeline, another program such as a pager has the terminal until the command asks for it.
bool is_in_pipeline() { return isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1; }

// Stops this process, or its whole group, until a shell continues it. Returns at once
// if there is no such shell.
void stop_by_terminal(pid_t whom) {
  struct sigaction usual{}, before{};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGTSTP, &usual, &before);
  kill(whom, SIGTSTP);
  sigaction(SIGTSTP, &before, nullptr);
}

// Ends a process group that runs longer than its time limit.
class TimeLimit {
 public:
  TimeLimit(pid_t group, std::optional<Duration> time)
      : group_(group), next_(time ? Deadline::after(real_clock(), *time) : Deadline()) {}
  bool passed() const { return sent_ > 0; }
  // Sends the signal that is due now. Returns how long to wait for the next one, at most `milliseconds_max`.
  int enforce(int milliseconds_max) {
    const TimePoint now = real_clock().now();
    if (next_.passed(now)) {
      kill(-group_, sent_++ == 0 ? SIGTERM : SIGKILL);
      kill(-group_, SIGCONT);
      next_ = Deadline::after(real_clock(), grace);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_.at - now).count();
    return static_cast<int>(std::min<std::int64_t>(left, milliseconds_max));
  }
  // Called after the command has ended: ends the rest of its group.
  void end_group() {
    while (sent_ == 1 && kill(-group_, 0) == 0) real_clock().sleep_for(std::chrono::milliseconds(enforce(20)));
  }

 private:
  static constexpr Duration grace = std::chrono::seconds(10);
  const pid_t group_;
  int sent_ = 0;  // number of signals
  Deadline next_;
};

// Forwards signals and the terminal until the command ends; returns its wait status.
int wait_for_exit(pid_t child, const SignalPipe& signals, Terminal& terminal, TimeLimit& limit, CommandExit& ended) {
  constexpr int until_continued_ms = 200, until_next_check_ms = 1000;
  bool shares_terminal = is_in_pipeline();
  bool stopping = false;  // this process stopped itself and was not continued yet
  const auto hand_over = [&] {
    const bool handed = terminal.hand_over(child);
    ended.had_terminal = terminal_handed_over;
    return handed;
  };
  for (int status = 0;;) {
    const pid_t changed = waitpid(child, &status, WNOHANG | WUNTRACED);
    if (changed < 0 && errno != EINTR) return status;
    if (changed == child && !WIFSTOPPED(status)) return status;
    if (changed == child && terminal.is_there() && WSTOPSIG(status) != SIGSTOP) {
      const bool asks_for_terminal = WSTOPSIG(status) == SIGTTIN || WSTOPSIG(status) == SIGTTOU;
      if (asks_for_terminal && hand_over()) {
        shares_terminal = false;
        kill(-child, SIGCONT);
      } else {
        // Ctrl-Z: stop as well, so that the shell shows its prompt. Its fg or bg continues
        // this process, which continues the command.
        const bool had_terminal = terminal_handed_over;
        stopping = had_terminal || !asks_for_terminal;
        terminal.take_back();
        stop_by_terminal(had_terminal ? 0 : getpid());
      }
    }
    const std::optional<int> signal = signals.wait(limit.enforce(stopping ? until_continued_ms : until_next_check_ms));
    if (signal == SIGCONT || (!signal && stopping)) {
      stopping = false;
      if (!shares_terminal) hand_over();
      kill(-child, SIGCONT);
    } else if (signal.value_or(0) != 0) {
      if (signal != SIGTSTP) ended.was_signalled = true;
      kill(-child, *signal);
    }
  }
}

}  // namespace

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

Result<std::string> find_command(const std::string& name, const char* path) {
  const auto missing = [&] {
    return Error{
        ErrorCode::not_found, "there is no command '" + name + "'", "check its name, or give its path", {}, {}};
  };
  const auto barred = [&](const std::string& path) {
    return Error{ErrorCode::invalid_argument, path + " is not executable", "run chmod +x " + path};
  };
  const auto is_file = [](const std::string& path) {
    struct stat about{};
    return stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode);
  };
  if (name.empty()) return missing();
  if (name.find('/') != std::string::npos) {
    if (std::error_code failed; std::filesystem::is_directory(name, failed))
      return Error{ErrorCode::invalid_argument, name + " is a folder", "give the path of a program"};
    if (!is_file(name)) return missing();
    if (access(name.c_str(), X_OK) != 0) return barred(name);
    return name;
  }
  if (!path) path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
  std::string found;
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (!is_file(candidate)) continue;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    if (found.empty()) found = candidate;
  }
  if (!found.empty()) return barred(found);
  return missing();
}

Error exec_command(const Launch& command) {
  if (command.before_start) command.before_start(getpid());
  const PreparedExec prepared(command);
  std::fflush(nullptr);
  return exec_error_of(command.program, prepared.execute());
}

Result<pid_t> start_command(const Launch& command, const std::function<void()>& in_child,
                            const std::function<void(pid_t)>& in_parent) {
  const PreparedExec prepared(command);
  std::array<int, 2> go{}, failure{};
  if (pipe2(go.data(), O_CLOEXEC) != 0) return failed("cannot start a command", errno);
  if (pipe2(failure.data(), O_CLOEXEC) != 0) {
    const int error = errno;
    for (const int end : go) close(end);
    return failed("cannot start a command", error);
  }
  const pid_t child = fork();
  if (child == 0) {
    // If the child kept this end open, its read from the other end would never return.
    close(go[1]);
    in_child();
    wait_and_execute(prepared, go[0], failure[1]);
  }
  const int fork_error = errno;
  close(go[0]);
  close(failure[1]);
  Result<void> ready;
  if (child < 0) ready = failed("cannot start another process", fork_error);
  if (ready) in_parent(child);
  if (ready && command.before_start) command.before_start(child);
  if (ready && write(go[1], "x", 1) != 1) ready = failed("cannot start the command", errno);
  close(go[1]);
  int exec_errno = 0;
  if (read(failure[0], &exec_errno, sizeof(exec_errno)) == static_cast<ssize_t>(sizeof(exec_errno)))
    ready = exec_error_of(command.program, exec_errno);
  close(failure[0]);
  if (ready) return child;
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return std::move(ready).error();
}

Result<CommandExit> launch(const Launch& command, std::optional<Duration> time) {
  const SignalPipe signals;
  if (!signals.works()) return failed("cannot start a command", errno);
  Terminal terminal;
  const Result<pid_t> child = start_command(
      command, [] { setpgid(0, 0); },
      [&](pid_t pid) {
        // Called in parent and child, because either may need the group first.
        setpgid(pid, pid);
        if (!is_in_pipeline()) static_cast<void>(terminal.hand_over(pid));
      });
  if (!child) return child.error();
  CommandExit ended;
  ended.had_terminal = terminal_handed_over;
  TimeLimit limit(*child, time);
  set_exit(ended, wait_for_exit(*child, signals, terminal, limit, ended));
  limit.end_group();
  ended.timed_out = limit.passed();
  return ended;
}

void set_exit(CommandExit& ended, int wait_status) noexcept {
  ended.signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
  ended.status = ended.signal ? 128 + ended.signal : WEXITSTATUS(wait_status);
}

void exit_like(const CommandExit& ended) {
  std::fflush(nullptr);
  if (ended.signal == 0) std::_Exit(ended.status);
  // The command crashed; a core file of Berth would hide that of the command.
  prctl(PR_SET_DUMPABLE, 0);
  signal(ended.signal, SIG_DFL);
  sigset_t open;
  sigemptyset(&open);
  sigaddset(&open, ended.signal);
  pthread_sigmask(SIG_UNBLOCK, &open, nullptr);
  // The terminal sent the signal to the command only. The shell script around this
  // process must receive it too, or its loop continues.
  const bool from_keyboard = ended.had_terminal && (ended.signal == SIGINT || ended.signal == SIGQUIT);
  kill(from_keyboard ? 0 : getpid(), ended.signal);
  std::_Exit(ended.status);
}

}  // namespace berth::machine
