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
#include "http/listening.hpp"
#include "world/files.hpp"
#include "world/process_lock.hpp"

namespace berth::cli {

using format::LogLevel;

namespace {

constexpr Duration look_every = std::chrono::milliseconds(200), address_every = std::chrono::seconds(1);
constexpr Duration pause_min = std::chrono::milliseconds(200), pause_max = std::chrono::seconds(10);

// In its own session: Ctrl-C at the terminal goes to the server, which then stops the gateway.
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

std::string gateway_start(const std::vector<std::string>& arguments) {
  std::string text = agent_version() + "\n";
  for (const std::string& argument : arguments) text += argument + "\n";
  return text;
}

std::string gateway_start_file(const std::string& folder) { return folder + "/arguments"; }

// Fails if another program listens on the gateway's address.
Result<void> OwnGateway::check_address(bool is_running) const {
  const auto option = std::find(arguments_.begin(), arguments_.end(), "--listen");
  if (option == arguments_.end() || option + 1 == arguments_.end()) return {};
  const std::string& address = *(option + 1);
  // The running gateway passes its own listening address on to its successor.
  const std::string running = is_running ? world::read_text(gateway_start_file(folder_)).value_or("") : "";
  if (running.find("\n--listen\n" + address + "\n") != running.npos) return {};
  return http::check_is_free(BERTH_TRY(http::parse_listen_address(address)));
}

void OwnGateway::watch(const std::stop_token& stop) {
  const std::string lock = gateway::lock_file(folder_);
  // A gateway started by an earlier server keeps running. If its version or arguments differ, a new one takes over.
  bool takes_over = world::read_text(gateway_start_file(folder_)).value_or("") != gateway_start(arguments_);
  pid_t own = 0;  // the gateway started here, while it runs
  Duration pause = pause_min;
  TimePoint started{}, next{};
  std::string problem;  // the last one that was logged
  const auto warn = [&](const std::string& text) {
    if (std::exchange(problem, text) != text) log_({LogLevel::warning, text});
  };
  while (!stop.stop_requested()) {
    int status = 0;
    if (own > 0 && world::ProcessLock::holder(lock) == own) takes_over = false;  // the new gateway has taken over
    if (own > 0 && ::waitpid(own, &status, WNOHANG) == own) {
      own = 0;
      const bool has_run = real_clock().now() - started > pause_max;
      pause = has_run ? pause_min : std::min(2 * pause, pause_max);
      next = real_clock().now() + pause;
      if (has_run) problem.clear();
      const std::string why = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                                  : "status " + std::to_string(WEXITSTATUS(status));
      // If another gateway has taken over from this one, its end needs no warning.
      if (!world::ProcessLock::holder(lock))
        warn("the gateway ended with " + why + " and is being restarted");
      else if (takes_over)
        warn("a new gateway ended with " + why +
             " before it could serve; the server will try again, and the running gateway continues");
    }
    // A gateway started by an earlier server is running while it holds the lock.
    const bool is_running = world::ProcessLock::holder(lock).has_value();
    if (own == 0 && real_clock().now() >= next && (takes_over || !is_running)) {
      next = real_clock().now() + address_every;
      if (const auto is_free = check_address(is_running); !is_free) {
        warn((is_running ? "a new gateway cannot serve, and the running one continues: " : "no gateway is running: ") +
             is_free.error().message + "; " + is_free.error().advice + " with --gateway ADDRESS");
      } else if (const Result<pid_t> pid = start(arguments_)) {
        own = *pid;
        started = real_clock().now();
      } else {
        warn(pid.error().to_text());
        next = real_clock().now() + pause_max;
      }
    }
    real_clock().sleep_for(look_every);
  }
  if (own > 0) ::kill(own, SIGTERM);
  if (own == 0 || takes_over) end_gateway(folder_);
}

}  // namespace berth::cli
