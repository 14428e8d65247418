#include "agent/relay_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "agent/relay_broker.hpp"
#include "agent/secrets.hpp"
#include "machine/inherited.hpp"
#include "machine/job_processes.hpp"
#include "relay/control.hpp"
#include "relay/relay_process.hpp"
#include "world/descriptor.hpp"
#include "world/process_lock.hpp"
#include "world/user_name.hpp"

extern char** environ;

namespace berth::agent {
namespace {

using world::Descriptor;

constexpr Duration starts_within = std::chrono::seconds(20);
constexpr int poll_ms = 100;
constexpr const char* relay_user = "nobody";  // for a relay started by root
constexpr std::chrono::milliseconds killed_within{5'000};

Error not_started(const std::string& why) {
  return {ErrorCode::io, "the relay cannot start: " + why, "check the limits on processes and open files"};
}

// Each request through the relay needs two descriptors; many systems allow 1024 by default.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void leave_parent() {
  ::setsid();
  ::prctl(PR_SET_NAME, "berth-relay");
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) std::signal(signal, SIG_DFL);
  for (const int signal : {SIGHUP, SIGXFSZ}) std::signal(signal, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  const Descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO}) ::dup2(nothing.get(), standard);
  static_cast<void>(::chdir("/") == 0);
  ::umask(077);
  raise_descriptor_limit();
}

// For a process started by root: a broker checks targets with root's rights, and the folder of relays is opened before
// this process drops them.
Result<relay::RelayOptions> give_up_rights(std::string& folder) {
  const world::UserAccount account = BERTH_TRY(world::find_user(relay_user));
  Descriptor entered(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!entered || ::fchownat(entered.get(), "", account.user, account.group, AT_EMPTY_PATH) != 0)
    return Error{ErrorCode::io, "cannot give its folder to user " + account.name + ": " + std::strerror(errno)};
  const auto broker = std::make_shared<Descriptor>(BERTH_TRY(start_broker()));
  relay::RelayOptions options;
  options.check = [broker](const relay::Target& target) {
    Result<Descriptor> answer = ask_broker(*broker, target);
    if (!answer && answer.error().code == ErrorCode::io) ::raise(SIGTERM);  // the agent starts another relay
    return answer;
  };
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !world::become(account))
    return Error{ErrorCode::io, "cannot switch to user " + account.name + ": " + std::strerror(errno)};
  folder = "/proc/self/fd/" + std::to_string(entered.release());
  return options;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The relay does not inherit the variables of a job or a lease in which the agent was started, because it outlives
// both.
std::vector<std::string> relay_environment(const AgentFile& file) {
  const std::set<std::string> withheld = withheld_variables(file);
  std::vector<std::string> all;
  for (char** at = environ; *at; ++at) {
    const std::string entry = *at, name = entry.substr(0, entry.find('='));
    if (!withheld.contains(name) && name != "BERTH_JOB" && name != "BERTH_LEASE" &&
        name != machine::job_folder_variable)
      all.push_back(entry);
  }
  return all;
}

// The status of the child; it is killed if it takes too long.
int wait_for(pid_t child, const std::stop_token& stop) {
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const Deadline deadline = Deadline::after(real_clock(), starts_within);
  pollfd ended{process.get(), POLLIN, 0};
  while (process && ::poll(&ended, 1, poll_ms) != 1)
    if (stop.stop_requested() || deadline.passed(real_clock().now())) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Result<void> run_relay_program(const RelayProgram& program) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return not_started(std::strerror(errno));
  Descriptor outcome(ends[0]), ready(ends[1]);
  std::error_code failed;
  const std::string folder = std::filesystem::absolute(program.folder, failed);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return not_started(std::strerror(errno));
  if (child > 0) {
    ready.close();
    // "+" if the relay is ready, otherwise why it is not.
    std::string text;
    std::array<char, 4096> part{};
    for (ssize_t got = 0; (got = ::read(outcome.get(), part.data(), part.size())) != 0 && text != "+";) {
      if (got < 0 && errno != EINTR) break;
      if (got > 0) text.append(part.data(), static_cast<std::size_t>(got));
    }
    if (text == "+") return {};
    ::waitpid(child, nullptr, 0);
    if (text.empty()) return not_started("it ended immediately");
    const std::size_t line = text.find('\n');
    return Error{ErrorCode::unavailable, "the relay cannot start: " + text.substr(0, line), text.substr(line + 1)};
  }
  outcome.close();
  leave_parent();
  relay::RelayProcessOptions options;
  options.folder = relay::relay_folder(folder);
  ::mkdir(options.folder.c_str(), 0700);
  options.node = program.node;
  options.version = program.version;
  options.replaces = program.replaces;
  options.log = program.log;
  options.relay.check = [checks = std::make_shared<TargetChecks>()](const relay::Target& target) {
    return (*checks)(target);
  };
  if (::geteuid() == 0) {
    if (Result<relay::RelayOptions> without = give_up_rights(options.folder))
      options.relay = *std::move(without);
    else if (program.log)
      program.log({format::LogLevel::warning,
                   "the relay keeps running as root, because it cannot run as another user",
                   {{"reason", without.error().to_text()}}});
  }
  options.on_ready = [&ready] {
    static_cast<void>(::write(ready.get(), "+", 1) == 1);
    ready.close();
  };
  const Result<void> ran = relay::run_relay_process(options);
  if (!ran && ready) {
    const std::string why = ran.error().message + '\n' + ran.error().advice;
    static_cast<void>(::write(ready.get(), why.data(), why.size()) > 0);
  }
  std::_Exit(ran ? 0 : 1);
}

// The pidfd refers to one process, even if its pid is reused. So if the lock still has this holder after the pidfd
// was opened, the pidfd refers to the holder.
bool kill_relay(const std::string& lock_file) {
  const std::optional<pid_t> holder = world::ProcessLock::holder(lock_file);
  if (!holder) return false;
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, *holder, 0)));
  if (!process || world::ProcessLock::holder(lock_file) != holder) return false;
  if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0) return false;
  pollfd ended{process.get(), POLLIN, 0};
  return ::poll(&ended, 1, static_cast<int>(killed_within.count())) == 1;
}

Result<void> start_relay(const AgentOptions& options, bool replaces, const std::stop_token& stop) {
  // After the fork, only async-signal-safe calls are allowed, because other threads of this process may hold any
  // lock.
  std::vector<std::string> variables = relay_environment(options.file);
  std::vector<std::string> words{"berth", relay_verb, "--folder", options.folder, "--node", options.node.text()};
  if (replaces) words.emplace_back(relay_replace_option);
  const std::vector<char*> environment = pointers_to(variables), arguments = pointers_to(words);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return not_started(std::strerror(errno));
  if (child == 0) {
    machine::restore_inherited_signals();
    ::execve("/proc/self/exe", arguments.data(), environment.data());
    ::_exit(127);
  }
  const int status = wait_for(child, stop);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return not_started("its process ended with " + (WIFEXITED(status) ? "status " + std::to_string(WEXITSTATUS(status))
                                                                    : "signal " + std::to_string(WTERMSIG(status))));
}

}  // namespace berth::agent
