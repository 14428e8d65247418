#include "agent/prober.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <thread>

#include "http/client.hpp"
#include "world/user_name.hpp"

namespace berth::agent {
namespace {

std::chrono::milliseconds milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
}

std::optional<std::string> ask_http(const std::string& path, std::uint16_t port, Duration timeout) {
  Result<http::Client> client =
      http::Client::create({.url = "http://127.0.0.1:" + std::to_string(port), .body_bytes_max = 1 << 20});
  if (!client) return client.error().message;
  const Result<http::Response> answer = client->request("GET", path, {}, {.timeout = milliseconds(timeout)});
  if (!answer) return "GET " + path + ": " + answer.error().message;
  if (answer->status < 200 || answer->status >= 400)
    return "GET " + path + " answers with status " + std::to_string(answer->status);
  return std::nullopt;
}

std::optional<std::string> ask_tcp(std::uint16_t port, Duration timeout) {
  const std::string where = "port " + std::to_string(port);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return where + ": " + std::strerror(errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int failed = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  if (failed == EINPROGRESS) {
    pollfd waiting{socket, POLLOUT, 0};
    socklen_t size = sizeof failed;
    if (::poll(&waiting, 1, static_cast<int>(milliseconds(timeout).count())) != 1)
      failed = ETIMEDOUT;
    else
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &failed, &size);
  }
  ::close(socket);
  return failed == 0 ? std::nullopt : std::optional(where + ": " + std::strerror(failed));
}

// Of the replica; absent: it is the agent's own.
Result<std::optional<world::UserAccount>> account_of(const std::string& user) {
  if (user.empty()) return std::optional<world::UserAccount>();
  world::UserAccount account = BERTH_TRY(world::find_user(user));
  if (account.user == ::geteuid()) return std::optional<world::UserAccount>();
  return std::optional(std::move(account));
}

std::optional<std::string> ask_command(const std::vector<std::string>& command, const Probing& probing,
                                       Duration timeout) {
  if (!probing.problem.empty()) return probing.problem;
  machine::Launch launch = probing.launch;
  const auto path = launch.environment.find("PATH");
  const Result<std::string> program =
      machine::find_command(command.front(), path == launch.environment.end() ? nullptr : path->second.c_str());
  if (!program) return program.error().message;
  const Result<std::optional<world::UserAccount>> account = account_of(probing.user);
  if (!account) return account.error().message;
  launch.program = *program;
  launch.arguments = command;
  if (*account) {
    launch.environment.emplace("HOME", (*account)->home);
    for (const char* const name : {"USER", "LOGNAME"}) launch.environment.emplace(name, probing.user);
    for (const char* const name : {"XDG_RUNTIME_DIR", "XDG_STATE_HOME"}) launch.removed.insert(name);
  }
  const Result<pid_t> started = machine::start_command(
      launch,
      [&] {
        ::setpgid(0, 0);
        const int nothing = ::open("/dev/null", O_RDWR);
        for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, standard);
        if (*account && !world::become(**account)) ::_exit(126);
        if (::chdir(probing.folder.c_str()) != 0) ::_exit(126);
      },
      [](pid_t) {});
  if (!started) return started.error().message;
  const pid_t child = *started;
  const Deadline deadline = Deadline::after(real_clock(), timeout);
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (deadline.passed(real_clock().now())) {
      ::kill(-child, SIGKILL);
      ::waitpid(child, &status, 0);
      return command.front() + " did not end in time";
    }
    real_clock().sleep_for(std::chrono::milliseconds(10));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return command.front() + (WIFEXITED(status) ? " ended with status " + std::to_string(WEXITSTATUS(status))
                                              : " was ended by signal " + std::to_string(WTERMSIG(status)));
}

}  // namespace

std::optional<std::string> ask(const Probe& probe, const Probing& probing) {
  if (!probe.command.empty()) return ask_command(probe.command, probing, probe.timeout);
  const std::optional<std::uint16_t> port = probe.port ? probe.port : probing.port;
  if (!port) return "the replica has no port";
  return probe.http ? ask_http(*probe.http, *port, probe.timeout) : ask_tcp(*port, probe.timeout);
}

// Owned by its threads as well: a question that takes long outlives the end of its watch.
struct Prober::Watch {
  Probing probing;
  std::mutex mutex;  // guards what follows
  std::condition_variable condition;
  bool ends = false;
  Probed answers;

  static void run(const std::shared_ptr<Watch>& self, const Probe& probe, Probed::Answers Probed::* which,
                  const std::function<void()>& changed) {
    std::unique_lock lock(self->mutex);
    while (!self->ends) {
      lock.unlock();
      const std::optional<std::string> problem = ask(probe, self->probing);
      lock.lock();
      if (self->ends) return;
      Probed::Answers& answers = self->answers.*which;
      const bool was_good = answers.was_good && answers.failures == 0;
      answers.was_good = answers.was_good || !problem;
      answers.failures = problem ? answers.failures + 1 : 0;
      answers.problem = problem.value_or("");
      if (was_good == problem.has_value()) {
        lock.unlock();
        changed();
        lock.lock();
      }
      real_clock().wait_until(self->condition, lock, real_clock().now() + probe.every);
    }
  }
};

Prober::Prober(std::function<void()> changed) : changed_(std::move(changed)) {}
Prober::~Prober() { keep({}); }

void Prober::watch(const std::string& job, const Probing& probing) {
  if ((!probing.readiness && !probing.liveness) || watches_.contains(job)) return;
  const auto watch = std::make_shared<Watch>();
  watch->probing = probing;
  watches_[job] = watch;
  const auto begin = [&](const std::optional<Probe>& probe, Probed::Answers Probed::* which) {
    if (probe)
      std::thread([watch, probe = *probe, which, changed = changed_] {
        Watch::run(watch, probe, which, changed);
      }).detach();
  };
  begin(probing.readiness, &Probed::readiness);
  begin(probing.liveness, &Probed::liveness);
}

void Prober::keep(const std::set<std::string>& jobs) {
  std::erase_if(watches_, [&](const auto& one) {
    if (jobs.contains(one.first)) return false;
    const std::lock_guard lock(one.second->mutex);
    one.second->ends = true;
    one.second->condition.notify_all();
    return true;
  });
}

std::map<std::string, Probed> Prober::answers() const {
  std::map<std::string, Probed> out;
  for (const auto& [job, watch] : watches_) {
    const std::lock_guard lock(watch->mutex);
    out[job] = watch->answers;
  }
  return out;
}

}  // namespace berth::agent
