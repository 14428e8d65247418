#include "cli/launch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <system_error>

#include "device/host_cores.hpp"

extern char** environ;

namespace berth::cli {
namespace {

// What is passed on. The terminal's own stop and continue reach the command by
// themselves, and this process with it.
constexpr std::array forwarded{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

int told = -1;  // where the handler writes; one launch at a time

void on_signal(int signal, siginfo_t* info, void*) {
  const int before = errno;
  // What the terminal sends, it sends to the command as well.
  const bool pass_on = signal != SIGCHLD && info->si_code <= 0;
  const unsigned char byte = static_cast<unsigned char>(pass_on ? signal : 0);
  static_cast<void>(!write(told, &byte, 1));
  errno = before;
}

// While it lives, signals become bytes in a pipe.
class SignalPipe {
 public:
  SignalPipe() {
    if (pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) != 0) return;
    told = ends_[1];
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < forwarded.size(); ++i) {
      sigaction(forwarded[i], nullptr, &before_[i]);
      // A signal that is ignored (nohup) stays ignored, here and in the command.
      if (before_[i].sa_handler != SIG_IGN) sigaction(forwarded[i], &action, nullptr);
    }
    action.sa_flags |= SA_NOCLDSTOP;
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
  // The next signal to pass on, or 0: something else happened.
  int wait() const {
    pollfd what{ends_[0], POLLIN, 0};
    poll(&what, 1, 1000);
    unsigned char byte = 0;
    return read(ends_[0], &byte, 1) == 1 ? byte : 0;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  std::array<struct sigaction, forwarded.size() + 1> before_{};
};

Error failed(const std::string& what, int error) {
  return {ErrorCode::io, what + ": " + std::generic_category().message(error), {}, {}, {}};
}

std::vector<std::string> environment_of(const Launch& command) {
  std::vector<std::string> all;
  for (char** at = environ; *at; ++at) {
    const std::string entry = *at;
    if (!command.environment.contains(entry.substr(0, entry.find('=')))) all.push_back(entry);
  }
  for (const auto& [name, value] : command.environment) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec: only what may follow a fork of many threads.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* variables, const CoreSet* cores,
                         int go, int failure) {
  char byte = 0;
  ssize_t got = 0;
  do {
    got = read(go, &byte, 1);
  } while (got < 0 && errno == EINTR);
  // Nobody is left who could have promised anything.
  if (got != 1) _exit(1);
  // Ours would run in the command's name until the exec.
  struct sigaction usual{};
  usual.sa_handler = SIG_DFL;
  for (const int signal : forwarded) {
    struct sigaction now{};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaction(signal, &usual, nullptr);
  }
  sigaction(SIGCHLD, &usual, nullptr);
  if (cores) sched_setaffinity(0, sizeof(cores->bits), cores->bits.data());
  execve(program, arguments, variables);
  const int error = errno;
  static_cast<void>(!write(failure, &error, sizeof(error)));
  _exit(127);
}

}  // namespace

Result<std::string> find_command(const std::string& name) {
  const auto missing = [&] {
    return Error{
        ErrorCode::not_found, "there is no command '" + name + "'", "check its name, or give its path", {}, {}};
  };
  const auto barred = [&](const std::string& path) {
    return Error{ErrorCode::invalid_argument, path + " cannot be run", "make it executable: chmod +x " + path, {}, {}};
  };
  const auto is_file = [](const std::string& path) {
    struct stat about{};
    return stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode);
  };
  if (name.empty()) return missing();
  if (name.find('/') != std::string::npos) {
    if (!is_file(name)) return missing();
    if (access(name.c_str(), X_OK) != 0) return barred(name);
    return name;
  }
  const char* const path = std::getenv("PATH");
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

Result<Ended> launch(const Launch& command, const std::function<Result<void>(std::uint32_t pid)>& started) {
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> variables = environment_of(command);
  const std::vector<char*> argument_pointers = pointers_to(arguments), variable_pointers = pointers_to(variables);
  const CoreSet cores(command.cores);
  std::array<int, 2> go{}, failure{};
  const SignalPipe signals;
  if (!signals.works() || pipe2(go.data(), O_CLOEXEC) != 0) return failed("cannot start a command", errno);
  if (pipe2(failure.data(), O_CLOEXEC) != 0) {
    const int error = errno;
    for (const int end : go) close(end);
    return failed("cannot start a command", error);
  }
  const pid_t child = fork();
  if (child == 0) {
    // With our end open it would wait for itself for ever.
    close(go[1]);
    become(command.program.c_str(), argument_pointers.data(), variable_pointers.data(),
           command.cores.empty() ? nullptr : &cores, go[0], failure[1]);
  }
  const int fork_error = errno;
  close(go[0]);
  close(failure[1]);
  Result<void> ready = child < 0 ? Result<void>(failed("cannot start another process", fork_error))
                                 : started(static_cast<std::uint32_t>(child));
  if (ready && write(go[1], "x", 1) != 1) ready = failed("cannot start the command", errno);
  close(go[1]);
  int exec_error = 0;
  const bool not_run = read(failure[0], &exec_error, sizeof(exec_error)) == static_cast<ssize_t>(sizeof(exec_error));
  close(failure[0]);
  if (child < 0) return std::move(ready).error();

  Ended ended;
  int status = 0;
  for (;;) {
    const pid_t gone = waitpid(child, &status, WNOHANG);
    if (gone == child || (gone < 0 && errno != EINTR)) break;
    const int signal = signals.wait();
    if (signal == 0) continue;
    ended.was_asked = true;
    kill(child, signal);
  }
  if (!ready) return std::move(ready).error();
  if (not_run) {
    return Error{exec_error == ENOENT ? ErrorCode::not_found : ErrorCode::invalid_argument,
                 command.program + " cannot be run: " + std::generic_category().message(exec_error),
                 "check that the file, and the interpreter its first line names, are there",
                 {},
                 {}};
  }
  ended.by_signal = WIFSIGNALED(status);
  ended.status = ended.by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ended;
}

}  // namespace berth::cli
