#include "agent/prober.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "agent/test_process.hpp"
#include "http/server.hpp"
#include "ledger/test_folder.hpp"
#include "world/descriptor.hpp"

namespace berth::agent {
namespace {

// A server on a port of the loopback address that answers every request with one status.
class StatusServer {
 public:
  StatusServer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
        ::listen(listener_.get(), 16) == 0 &&
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0)
      port = ntohs(address.sin_port);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  std::uint16_t port = 0;
  std::atomic<int> status = 200;

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd waiting{listener_.get(), POLLIN, 0};
      if (::poll(&waiting, 1, 20) != 1) continue;
      const world::Descriptor connection(::accept(listener_.get(), nullptr, nullptr));
      char request[4096];
      if (::recv(connection.get(), request, sizeof request, 0) <= 0) continue;
      const std::string answer =
          "HTTP/1.1 " + std::to_string(status) + " X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
      static_cast<void>(::send(connection.get(), answer.data(), answer.size(), MSG_NOSIGNAL));
    }
  }
  world::Descriptor listener_;
  std::jthread thread_;
};

Probe http_probe() {
  Probe probe;
  probe.http = "/health";
  probe.timeout = std::chrono::seconds(30);
  probe.every = std::chrono::milliseconds(1);
  return probe;
}
Probe command_probe(const std::string& script, Duration timeout = std::chrono::seconds(60)) {
  Probe probe;
  probe.command = {"sh", "-c", script};
  probe.timeout = timeout;
  probe.every = std::chrono::milliseconds(1);
  return probe;
}
ProbeAnswer answer_of(const Probe& probe, const Probing& probing) {
  machine::PortOwners owners;
  return ask(probe, probing, owners);
}
Probing on_port(std::uint16_t port) {
  Probing probing;
  probing.port = port;
  probing.folder = "/";
  return probing;
}

TEST(Prober, AnHttpStatusFrom200To399IsGoodAndAnyOtherIsNot) {
  StatusServer server;
  for (const int good : {200, 204, 302, 399}) {
    server.status = good;
    EXPECT_EQ(answer_of(http_probe(), on_port(server.port)).problem, std::nullopt) << good;
  }
  for (const int bad : {400, 404, 500, 503, 599}) {
    server.status = bad;
    EXPECT_EQ(answer_of(http_probe(), on_port(server.port)).problem,
              "GET /health answers with status " + std::to_string(bad));
  }
}

TEST(Prober, ASocketIsAskedWhereTheReplicaHasNoPort) {
  const ledger::TestFolder folder;
  Probing probing;
  probing.socket = folder.path / "socket";
  Probe tcp = http_probe();
  tcp.http.reset();
  tcp.tcp = true;
  EXPECT_EQ(answer_of(tcp, probing).problem, "socket " + probing.socket + ": No such file or directory");
  http::Server server({}, [](const http::Request& request, const http::Responder& to) {
    to.send({request.path == "/health" ? 200 : 404, {}, ""});
  });
  ASSERT_TRUE(server.listen("unix:" + probing.socket));
  std::thread thread([&] { server.run(); });
  EXPECT_EQ(answer_of(tcp, probing).problem, std::nullopt);
  EXPECT_EQ(answer_of(http_probe(), probing).problem, std::nullopt);
  probing.port = 1;
  EXPECT_NE(answer_of(tcp, probing).problem, std::nullopt) << "the port is probed, not the socket";
  server.shutdown(std::chrono::milliseconds(0));
  thread.join();
}

TEST(Prober, APortIsGoodWhileAProcessListensOnIt) {
  Probe probe;
  probe.tcp = true;
  probe.timeout = std::chrono::seconds(30);
  std::optional<StatusServer> server(std::in_place);
  const std::uint16_t port = server->port;
  EXPECT_EQ(answer_of(probe, on_port(port)).problem, std::nullopt);
  server.reset();
  EXPECT_EQ(answer_of(probe, on_port(port)).problem, "port " + std::to_string(port) + ": Connection refused");
  EXPECT_EQ(answer_of(http_probe(), Probing()).problem, "the replica has neither a port nor a socket");
}

TEST(Prober, ACommandIsGoodIfItEndsWithStatus0InTime) {
  const Probing probing = on_port(1);
  EXPECT_EQ(answer_of(command_probe("exit 0"), probing).problem, std::nullopt);
  EXPECT_EQ(answer_of(command_probe("exit 3"), probing).problem, "sh ended with status 3");
  EXPECT_EQ(answer_of(command_probe("kill -9 $$"), probing).problem, "sh was ended by signal 9");
  EXPECT_EQ(answer_of(command_probe("exec sleep 600", std::chrono::milliseconds(50)), probing).problem,
            "sh did not end in time");
  // The same for a command that has left its process group.
  EXPECT_EQ(answer_of(command_probe("exec setsid --wait sleep 600", std::chrono::milliseconds(50)), probing).problem,
            "sh did not end in time");
  Probe missing = command_probe("");
  missing.command = {"/no/such/program"};
  const ProbeAnswer answer = answer_of(missing, probing);
  EXPECT_TRUE(answer.problem);
  EXPECT_TRUE(answer.was_asked) << "the deployment names a program that is not there";
}

// Counts how often the answers of a prober change.
class Changes {
 public:
  std::function<void()> callback() {
    return [state = state_] {
      const std::lock_guard lock(state->mutex);
      state->changed.notify_all();
    };
  }
  // Waits until `condition` holds for the prober.
  template <class Condition>
  testing::AssertionResult until(const Prober& prober, const Condition& condition) {
    const Deadline deadline = Deadline::after(real_clock(), std::chrono::minutes(1));
    std::unique_lock lock(state_->mutex);
    while (!deadline.passed(real_clock().now())) {
      const auto answers = prober.answers();
      if (const auto found = answers.find("j1"); found != answers.end() && condition(found->second))
        return testing::AssertionSuccess();
      real_clock().wait_until(state_->changed, lock, real_clock().now() + std::chrono::milliseconds(5));
    }
    return testing::AssertionFailure() << "the condition did not hold within a minute";
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(Prober, CountsFailuresInARowFromTheLastGoodAnswer) {
  StatusServer server;
  server.status = 503;
  Changes changes;
  Prober prober(changes.callback());
  Probing probing = on_port(server.port);
  probing.readiness = probing.liveness = http_probe();
  ASSERT_TRUE(prober.watch("j1", probing));
  EXPECT_TRUE(changes.until(prober, [](const Probed& probed) {
    return !probed.readiness.was_good && probed.readiness.failures > 2 && probed.liveness.failures > 2 &&
           probed.readiness.problem == "GET /health answers with status 503";
  }));
  server.status = 200;
  EXPECT_TRUE(changes.until(prober, [](const Probed& probed) {
    return probed.readiness.was_good && probed.readiness.failures == 0 && probed.liveness.failures == 0 &&
           probed.readiness.problem.empty();
  }));
  server.status = 500;
  EXPECT_TRUE(changes.until(prober, [](const Probed& probed) {
    return probed.readiness.was_good && probed.readiness.failures > 2 && probed.liveness.failures > 2;
  }));
  prober.keep({});
  EXPECT_TRUE(prober.answers().empty());
}

// Runs as a user without other processes: the limit counts all processes of a user and does not apply to root.
int status_of_process(const char* name) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "agent_test", test_process_verb, name, nullptr);
    _exit(98);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
void limit_processes(rlim_t most) {
  rlimit limit{};
  getrlimit(RLIMIT_NPROC, &limit);
  limit.rlim_cur = std::min(most, limit.rlim_max);
  setrlimit(RLIMIT_NPROC, &limit);
}

int start_probes_without_threads() {
  StatusServer server;
  Changes changes;
  Prober prober(changes.callback());
  Probing probing = on_port(server.port);
  probing.readiness = probing.liveness = http_probe();
  limit_processes(0);
  if (prober.watch("j1", probing) || prober.watches("j1")) return 1;
  limit_processes(RLIM_INFINITY);
  if (!prober.watch("j1", probing)) return 2;
  return changes.until(prober, [](const Probed& probed) { return probed.readiness.was_good; }) ? 0 : 3;
}

int ask_without_processes() {
  Changes changes;
  Prober prober(changes.callback());
  Probing probing = on_port(1);
  probing.liveness = command_probe("exit 0");
  if (!prober.watch("j1", probing)) return 1;
  if (!changes.until(prober, [](const Probed& probed) { return probed.liveness.was_good; })) return 2;
  limit_processes(0);
  if (!changes.until(prober, [](const Probed& probed) { return !probed.liveness.problem.empty(); })) return 3;
  if (prober.answers().at("j1").liveness.failures != 0) return 4;
  limit_processes(RLIM_INFINITY);
  return changes.until(prober, [](const Probed& probed) { return probed.liveness.problem.empty(); }) ? 0 : 5;
}

TEST(Prober, WithoutAThreadItSaysSoAndTriesAgain) { EXPECT_EQ(status_of_process("without_threads"), 0); }

TEST(Prober, AProbeThatCannotBeStartedIsNoFailureOfTheReplica) { EXPECT_EQ(status_of_process("without_processes"), 0); }

}  // namespace

int run_test_process(std::string_view name) {
  if (geteuid() == 0 && setuid(54329) != 0) return 99;
  return name == "without_threads" ? start_probes_without_threads() : ask_without_processes();
}

}  // namespace berth::agent
