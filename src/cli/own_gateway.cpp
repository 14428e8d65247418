#include "cli/own_gateway.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "berth/clock.hpp"
#include "cli/verbs/agent.hpp"
#include "gateway/gateway_process.hpp"
#include "world/files.hpp"
#include "world/process_lock.hpp"

namespace berth::cli {

using format::LogLevel;

namespace {

constexpr Duration look_every = std::chrono::milliseconds(200);
constexpr Duration pause_min = std::chrono::milliseconds(200), pause_max = std::chrono::seconds(10);

// In a session of its own: Ctrl-C at the terminal is for the server, which ends it.
Result<pid_t> start(const std::vector<std::string>& arguments) {
  std::vector<char*> words{const_cast<char*>("berth")};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, "/proc/self/exe", &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0)
    return Error{ErrorCode::unavailable, std::string("cannot start the gateway: ") + std::strerror(failed)};
  return pid;
}

}  // namespace

OwnGateway::OwnGateway(std::string folder, std::vector<std::string> arguments, format::Log log)
    : folder_(std::move(folder)),
      arguments_(std::move(arguments)),
      log_(std::move(log)),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

OwnGateway::~OwnGateway() = default;

void end_gateway(const std::string& folder) {
  if (const auto holder = world::ProcessLock::holder(gateway::lock_file(folder))) ::kill(*holder, SIGTERM);
}

void OwnGateway::watch(const std::stop_token& stop) {
  // One of an earlier server goes on only if it is of this version and was started in the same way.
  std::string words = agent_version() + "\n";
  for (const std::string& argument : arguments_) words += argument + "\n";
  const std::string file = folder_ + "/arguments";
  bool takes_over = world::read_text(file).value_or("") != words;  // the place of the one that runs
  if (takes_over) {
    if (const auto written = world::write_private_text(file, words); !written)
      log_({LogLevel::warning, written.error().to_text()});
  }
  pid_t own = 0;  // started here and not ended yet
  Duration pause = pause_min;
  TimePoint started{}, next{};
  while (!stop.stop_requested()) {
    int status = 0;
    if (own > 0 && world::ProcessLock::holder(gateway::lock_file(folder_)) == own) takes_over = false;  // it has
    if (own > 0 && ::waitpid(own, &status, WNOHANG) == own) {
      own = 0;
      pause = real_clock().now() - started > pause_max ? pause_min : std::min(2 * pause, pause_max);
      next = real_clock().now() + pause;
      // One that another has taken over from has done what it should.
      if (status != 0 || !world::ProcessLock::holder(gateway::lock_file(folder_)))
        log_({LogLevel::warning,
              "the gateway has ended and is started again",
              {{"reason", WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                              : "status " + std::to_string(WEXITSTATUS(status))}}});
      // The other one is of a version without this, or does not answer.
      if (std::exchange(takes_over, false)) end_gateway(folder_);
    }
    if (own == 0 && real_clock().now() >= next) {
      // One that an earlier server has started still runs as long as it has the lock.
      if (takes_over || !world::ProcessLock::holder(gateway::lock_file(folder_))) {
        if (const Result<pid_t> pid = start(arguments_)) {
          own = *pid;
        } else {
          log_({LogLevel::error, pid.error().to_text()});
          next = real_clock().now() + pause_max;
        }
        started = real_clock().now();
      }
    }
    real_clock().sleep_for(look_every);
  }
  if (own > 0)
    ::kill(own, SIGTERM);
  else
    end_gateway(folder_);
}

}  // namespace berth::cli
