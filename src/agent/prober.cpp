#include "agent/prober.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>

#include "device/deadline_call.hpp"
#include "http/client.hpp"
#include "world/descriptor.hpp"
#include "world/user_name.hpp"

namespace berth::agent {
namespace {

std::chrono::milliseconds milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
}

std::optional<std::string> ask_http(const std::string& path, const std::string& url, Duration timeout) {
  Result<http::Client> client = http::Client::create({.url = url, .body_bytes_max = 1 << 20});
  if (!client) return client.error().message;
  const Result<http::Response> answer = client->request("GET", path, {}, {.timeout = milliseconds(timeout)});
  if (!answer) return "GET " + path + ": " + answer.error().message;
  if (answer->status < 200 || answer->status >= 400)
    return "GET " + path + " answers with status " + std::to_string(answer->status);
  return std::nullopt;
}

// Whether a connection is accepted. `where` is for messages.
std::optional<std::string> ask_connection(const sockaddr* address, socklen_t address_size, const std::string& where,
                                          Duration timeout) {
  const world::Descriptor socket(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return where + ": " + std::strerror(errno);
  int failed = ::connect(socket.get(), address, address_size) == 0 ? 0 : errno;
  if (failed == EINPROGRESS) {
    pollfd waiting{socket.get(), POLLOUT, 0};
    socklen_t size = sizeof failed;
    if (::poll(&waiting, 1, static_cast<int>(milliseconds(timeout).count())) != 1)
      failed = ETIMEDOUT;
    else
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failed, &size);
  }
  return failed == 0 ? std::nullopt : std::optional(where + ": " + std::strerror(failed));
}

std::optional<std::string> ask_tcp(const std::string& host, std::uint16_t port, Duration timeout) {
  const std::string where = "port " + std::to_string(port);
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    return ask_connection(reinterpret_cast<const sockaddr*>(&v6), sizeof v6, where, timeout);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return ask_connection(reinterpret_cast<const sockaddr*>(&address), sizeof address, where, timeout);
}

std::optional<std::string> ask_socket(const std::string& path, Duration timeout) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return "the path of its socket is too long";
  path.copy(address.sun_path, path.size());
  return ask_connection(reinterpret_cast<const sockaddr*>(&address), sizeof address, "socket " + path, timeout);
}

// The account of the replica's user, or nothing if it runs as the agent's own user.
Result<std::optional<world::UserAccount>> account_of(const std::string& user) {
  if (user.empty()) return std::optional<world::UserAccount>();
  world::UserAccount account = BERTH_TRY(world::find_user(user));
  if (account.user == ::geteuid()) return std::optional<world::UserAccount>();
  return std::optional(std::move(account));
}

// The status, if the child ended in time. If not, it is killed, even if it has left its process group.
std::optional<int> wait_for(pid_t child, Duration timeout) {
  const world::Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const Deadline deadline = Deadline::after(real_clock(), timeout);
  pollfd ended{process.get(), POLLIN, 0};
  int result = 0;
  do {
    const auto left = std::max<std::int64_t>(0, milliseconds(deadline.at - real_clock().now()).count() + 1);
    result = ::poll(&ended, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
  } while ((result < 0 && errno == EINTR) || (result == 0 && !deadline.passed(real_clock().now())));
  if (result != 1) {
    ::kill(-child, SIGKILL);
    ::kill(child, SIGKILL);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return result == 1 ? std::optional(status) : std::nullopt;
}

ProbeAnswer ask_command(const std::vector<std::string>& command, const Probing& probing, Duration timeout) {
  if (!probing.problem.empty()) return {probing.problem};
  machine::Launch launch = probing.launch;
  const auto path = launch.environment.find("PATH");
  const Result<std::string> program =
      machine::find_command(command.front(), path == launch.environment.end() ? nullptr : path->second.c_str());
  if (!program) return {program.error().message};
  const Result<std::optional<world::UserAccount>> account = account_of(probing.user);
  if (!account) return {account.error().message};
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
  if (!started) return {started.error().message, started.error().code != ErrorCode::io};
  const std::optional<int> status = wait_for(*started, timeout);
  if (!status) return {command.front() + " did not end in time"};
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return {};
  return {command.front() + (WIFEXITED(*status) ? " ended with status " + std::to_string(WEXITSTATUS(*status))
                                                : " was ended by signal " + std::to_string(WTERMSIG(*status)))};
}

}  // namespace

ProbeAnswer ask(const Probe& probe, const Probing& probing, machine::PortOwners& owners) {
  if (!probe.command.empty()) return ask_command(probe.command, probing, probe.timeout);
  const std::optional<std::uint16_t> port = probe.port ? probe.port : probing.port;
  const std::string host = probe.port ? "127.0.0.1" : probing.host;
  const std::string url = "http://" + (host.find(':') == host.npos ? host : "[" + host + "]") + ":";
  // If another process has taken the port, its answer must not count, because the relay sends it no requests.
  const bool is_checked = !probe.port && probing.port && !probing.job.empty();
  if (is_checked)
    if (const Result<void> checked = owners.check(*port, probing.job, probing.name); !checked)
      return {checked.error().message};
  if (port)
    return {probe.http ? ask_http(*probe.http, url + std::to_string(*port), probe.timeout)
                       : ask_tcp(host, *port, probe.timeout)};
  if (probing.socket.empty()) return {"the replica has neither a port nor a socket"};
  return {probe.http ? ask_http(*probe.http, "unix:" + probing.socket, probe.timeout)
                     : ask_socket(probing.socket, probe.timeout)};
}

// Shared with its threads, because a slow probe may outlive its watch.
struct Prober::Watch {
  Probing probing;
  std::mutex mutex;  // guards the members below
  std::condition_variable condition;
  bool ends = false;
  Probed answers;

  static void run(const std::shared_ptr<Watch>& self, const Probe& probe, Probed::Answers Probed::* which,
                  const std::function<void()>& changed) {
    machine::PortOwners owners;
    std::unique_lock lock(self->mutex);
    while (!self->ends) {
      lock.unlock();
      const auto [problem, was_asked] = ask(probe, self->probing, owners);
      lock.lock();
      if (self->ends) return;
      Probed::Answers& answers = self->answers.*which;
      const bool was_good = answers.was_good && answers.failures == 0;
      answers.was_good = answers.was_good || !problem;
      answers.failures = !problem ? 0 : answers.failures + (was_asked ? 1 : 0);
      if (answers.failures == 0) answers.failing_since.reset();
      if (answers.failures > 0 && !answers.failing_since) answers.failing_since = real_clock().now();
      answers.problem = problem.value_or("");
      if (was_asked && was_good == problem.has_value()) {
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

bool Prober::watch(const std::string& job, const Probing& probing) {
  if ((!probing.readiness && !probing.liveness) || watches_.contains(job)) return true;
  const auto watch = std::make_shared<Watch>();
  watch->probing = probing;
  const auto begin = [&](const std::optional<Probe>& probe, Probed::Answers Probed::* which) {
    return !probe || device::start_detached([watch, probe = *probe, which, changed = changed_] {
      Watch::run(watch, probe, which, changed);
    });
  };
  watches_[job] = watch;
  if (begin(probing.readiness, &Probed::readiness) && begin(probing.liveness, &Probed::liveness)) return true;
  end(*watch);
  watches_.erase(job);
  return false;
}

void Prober::end(Watch& watch) {
  const std::lock_guard lock(watch.mutex);
  watch.ends = true;
  watch.condition.notify_all();
}

void Prober::keep(const std::set<std::string>& jobs) {
  std::erase_if(watches_, [&](const auto& entry) {
    if (jobs.contains(entry.first)) return false;
    end(*entry.second);
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
