// The path of requests on a node: a gateway, a server and an agent in this process; the relay and the replicas are
// separate processes of this program.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <mutex>
#include <thread>

#include "agent/agent.hpp"
#include "agent/free_port.hpp"
#include "agent/one_node_server.hpp"
#include "agent/relay_broker.hpp"
#include "agent/relay_program.hpp"
#include "agent/test_process.hpp"
#include "ledger/test_folder.hpp"
#include "machine/job_store.hpp"
#include "relay/control.hpp"
#include "relay/test_gateway.hpp"
#include "world/descriptor.hpp"
#include "world/files.hpp"
#include "world/user_name.hpp"

namespace berth::agent {
namespace {

using fleet::ReplicaState;
using relay::test::eventually;
using relay::test::TestGateway;

// The PID of the folder's relay, or 0 if none was ever started.
pid_t relay_pid(const std::string& folder) {
  const std::string text = world::read_text(relay::lock_file(relay::relay_folder(folder))).value_or("");
  const std::size_t at = text.find_first_of("0123456789");
  pid_t pid = 0;
  if (at != std::string::npos) std::from_chars(text.data() + at, text.data() + text.size(), pid);
  return pid;
}

bool has_ended(pid_t pid) { return ::kill(pid, 0) != 0; }

// Collects the messages that any thread logs.
struct Messages {
  format::Log log() {
    return [this](const format::LogRecord& record) {
      const std::lock_guard lock(mutex);
      all.push_back(record.message);
    };
  }
  bool contain(const std::string& message) {
    const std::lock_guard lock(mutex);
    return std::find(all.begin(), all.end(), message) != all.end();
  }
  std::mutex mutex;  // guards what follows
  std::vector<std::string> all;
};

// Listens on a port that another process has just left.
world::Descriptor take_port(const std::string& port) {
  world::Descriptor taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(taken.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  EXPECT_TRUE(eventually([&] {
    return ::bind(taken.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
           ::listen(taken.get(), 16) == 0;
  }));
  return taken;
}

struct NodeRelayTest : testing::Test {
  const ledger::TestFolder folder;
  TestGateway gateway{"berth_key"};
  OneNodeServer server{folder.path.string()};
  Messages messages;  // of the agent
  AgentOptions options;
  fleet::ReplicaOrder chat;
  std::jthread agent;

  NodeRelayTest() {
    setenv("OCL_ICD_VENDORS", folder.path.c_str(), 1);  // no devices but the host
    unsetenv("OCL_ICD_FILENAMES");
    options.node = NodeId("n1");
    options.server.url = server.url;
    options.folder = (folder.path / "agent").string();
    options.version = "test";
    options.log = messages.log();
    options.file.pass_environment = {relay_version_variable};
    chat = shell_order("chat", "");
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    chat.spec.command = {self, test_replica_verb};
    chat.spec.environment = {{"AT", "{socket}"}};
    Probe& ready = chat.spec.readiness.emplace();
    ready.http = "/ready";
    ready.every = std::chrono::milliseconds(20);
    ready.timeout = std::chrono::minutes(1);
  }
  ~NodeRelayTest() override {
    // Replicas and the relay outlive an agent: end them here.
    if (!agent.joinable()) start_agent();
    server.order({});
    EXPECT_TRUE(server.until([](const auto& states, const auto&) { return states.empty(); }));
    const pid_t relay = relay_pid(options.folder);
    EXPECT_TRUE(eventually([&] { return relay == 0 || has_ended(relay); })) << "a relay without gateways is ended";
  }

  void start_agent() {
    agent = std::jthread([this](const std::stop_token& stop) {
      const Result<void> ran = run_agent(options, stop);
      EXPECT_TRUE(ran) << ran.error().to_text();
    });
  }
  void stop_agent() {
    agent.request_stop();
    agent.join();
  }
  void order(bool stopping = false) {
    chat.assigned.stopping = stopping;
    server.order({chat}, {}, {{"g", gateway.address(), "berth_key"}});
  }
  testing::AssertionResult until(ReplicaState state) {
    return server.until(
        [&](const auto& states, const auto&) { return states.contains("chat") && states.at("chat") == state; });
  }
  // The body of the replica's answer, or the reason why the relay refused the request.
  std::string call() {
    const auto answer = gateway.ask("chat/0#1");
    if (!answer) return answer.error().to_text();
    if (answer->status == 200) return answer->body;
    return std::string(
        answer->headers.get(relay::header_failed).value_or(answer->headers.get(relay::header_refused).value_or("")));
  }
  bool eventually_called() {
    return eventually([&] { return call() == "served"; });
  }
  std::string port_of_replica() const {
    const std::vector<machine::Job> jobs = machine::list_jobs(options.folder + "/jobs");
    return jobs.size() == 1 ? jobs[0].request.labels.at("port") : "no job";
  }
  // Asks the replica directly, not through the relay.
  std::string ask_replica(const std::string& path) {
    const std::vector<machine::Job> jobs = machine::list_jobs(options.folder + "/jobs");
    if (jobs.size() != 1) return "no job";
    const auto& labels = jobs[0].request.labels;
    const std::string url =
        labels.contains("socket") ? "unix:" + labels.at("socket") : "http://127.0.0.1:" + labels.at("port");
    const auto answer = http::Client::create({.url = url})->request("GET", path);
    return answer ? answer->body : answer.error().to_text();
  }
  // A stream through the gateway, which has begun when this returns.
  std::future<std::string> begin_stream() {
    std::promise<void> begun;
    std::future<void> is_begun = begun.get_future();
    std::future<std::string> stream = std::async(std::launch::async, [this, begun = std::move(begun)]() mutable {
      bool has_begun = false;
      return gateway.read_stream("chat/0#1", "/stream", [&](std::string_view) {
        if (!std::exchange(has_begun, true)) begun.set_value();
      });
    });
    is_begun.wait();
    return stream;
  }
};

TEST_F(NodeRelayTest, AReplicaIsCalledThroughItsSocketAndFinishesItsRequestsBeforeItStops) {
  chat.spec.stop_grace = std::chrono::minutes(2);
  start_agent();
  order();
  EXPECT_TRUE(until(ReplicaState::ready));
  EXPECT_TRUE(eventually_called()) << call();
  std::future<std::string> stream = begin_stream();
  order(true);
  EXPECT_TRUE(until(ReplicaState::stopping));
  EXPECT_TRUE(eventually([&] { return call() == "draining"; })) << call();
  EXPECT_EQ(ask_replica("/write"), "written") << "the replica was not ordered to stop yet";
  EXPECT_EQ(ask_replica("/close"), "closed");
  EXPECT_EQ(stream.get(), "begun.more.");
  EXPECT_TRUE(until(ReplicaState::gone));
}

TEST_F(NodeRelayTest, ARequestThatDoesNotEndIsCutOffWhenTheGraceIsOver) {
  chat.spec.stop_grace = std::chrono::milliseconds(200);
  start_agent();
  order();
  EXPECT_TRUE(eventually_called()) << call();
  std::future<std::string> stream = begin_stream();
  order(true);
  EXPECT_TRUE(until(ReplicaState::gone));
  EXPECT_NE(stream.get(), "begun.");
}

TEST_F(NodeRelayTest, TheRelayOutlivesItsAgentAndIsStartedAgainWhenItWasKilled) {
  start_agent();
  order();
  EXPECT_TRUE(eventually_called()) << call();
  const pid_t first = relay_pid(options.folder);
  EXPECT_EQ(::getsid(first), first) << "in a session of its own";
  std::future<std::string> stream = begin_stream();
  stop_agent();
  EXPECT_EQ(call(), "served") << "the relay works without an agent";
  EXPECT_FALSE(start_relay(options, false, {})) << "a relay is already running";
  start_agent();
  EXPECT_TRUE(until(ReplicaState::ready));
  EXPECT_EQ(call(), "served") << "a new agent uses the running relay";
  EXPECT_EQ(ask_replica("/close"), "closed");
  EXPECT_EQ(stream.get(), "begun.");
  EXPECT_EQ(relay_pid(options.folder), first);

  ::kill(first, SIGKILL);
  EXPECT_TRUE(eventually([&] { return relay_pid(options.folder) != first; }));
  EXPECT_TRUE(eventually_called()) << call();
}

TEST_F(NodeRelayTest, ANewAgentStopsNoRequestsBeforeItKnowsWhatIsReady) {
  start_agent();
  order();
  EXPECT_TRUE(eventually_called()) << call();
  stop_agent();
  EXPECT_EQ(ask_replica("/hold"), "held");
  start_agent();
  EXPECT_TRUE(until(ReplicaState::starting)) << "the replica does not answer its probe";
  EXPECT_EQ(call(), "served");
  EXPECT_EQ(ask_replica("/release"), "released");
  EXPECT_TRUE(until(ReplicaState::ready));
  EXPECT_EQ(call(), "served");
}

TEST_F(NodeRelayTest, APortThatAnotherProcessHasTakenGetsNoRequests) {
  chat.spec.environment = {{"AT", "{port}"}};
  chat.spec.readiness->http.reset();
  chat.spec.readiness->tcp = true;
  chat.spec.readiness->failures = 1'000'000;  // the replica stays ready
  start_agent();
  order();
  EXPECT_TRUE(eventually_called()) << call();
  const std::string port = port_of_replica();
  EXPECT_EQ(ask_replica("/leave"), "left");
  const world::Descriptor taken = take_port(port);
  // A connection that the relay has kept still leads to the replica.
  const std::string problem =
      "port " + port + " belongs to another process (pid " + std::to_string(::getpid()) + "), not to chat/0#1";
  EXPECT_TRUE(eventually([&] { return call() == problem; })) << call();
}

TEST_F(NodeRelayTest, AReplicaWhosePortAnotherProcessHasTakenIsNotReady) {
  chat.spec.environment = {{"AT", "{port}"}};
  chat.spec.readiness->http.reset();
  chat.spec.readiness->tcp = true;
  start_agent();
  order();
  EXPECT_TRUE(until(ReplicaState::ready));
  const std::string port = port_of_replica();
  EXPECT_EQ(ask_replica("/leave"), "left");
  const world::Descriptor taken = take_port(port);
  EXPECT_TRUE(until(ReplicaState::unready));
  EXPECT_TRUE(eventually([&] {
    return server.reason_of("chat") ==
           "port " + port + " belongs to another process (pid " + std::to_string(::getpid()) + "), not to chat/0#1";
  })) << server.reason_of("chat");
}

TEST_F(NodeRelayTest, APortRestsAlsoWhereTheAgentIsRestarted) {
  chat.spec.environment = {{"AT", "{port}"}};
  start_agent();
  order();
  EXPECT_TRUE(until(ReplicaState::ready));
  const auto port = static_cast<std::uint16_t>(std::stoi(port_of_replica()));
  server.order({});
  EXPECT_TRUE(server.until([](const auto& states, const auto&) { return states.empty(); }));
  for (int restarts = 0; restarts < 2; ++restarts) {
    stop_agent();
    EXPECT_TRUE(UsedPorts(options.folder, real_clock().now()).contains(port));
    start_agent();
  }
}

TEST_F(NodeRelayTest, ARelayThatDoesNotAnswerIsKilledAndAnotherIsStarted) {
  start_agent();
  order();
  EXPECT_TRUE(eventually_called()) << call();
  const pid_t first = relay_pid(options.folder);
  ::kill(first, SIGSTOP);
  EXPECT_TRUE(eventually([&] { return relay_pid(options.folder) != first; }, std::chrono::minutes(2)));
  EXPECT_TRUE(eventually([&] { return has_ended(first); }));
  EXPECT_TRUE(eventually_called()) << call();
  EXPECT_TRUE(messages.contain("the agent has killed a relay that did not answer"));
}

// The value of a field in /proc/PID/status.
std::string status_of(pid_t pid, const std::string& field) {
  const std::string text = world::read_text("/proc/" + std::to_string(pid) + "/status").value_or("");
  const std::size_t at = text.find("\n" + field + ":\t");
  if (at == std::string::npos) return "none";
  const std::size_t begin = at + field.size() + 3;
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST_F(NodeRelayTest, TheRelayOfRootHasNoRightsAndIsReplacedWhereItsBrokerEnds) {
  start_agent();
  order();
  EXPECT_TRUE(eventually_called()) << call();
  const pid_t relay = relay_pid(options.folder);
  const std::string children =
      world::read_text("/proc/" + std::to_string(relay) + "/task/" + std::to_string(relay) + "/children").value_or("");
  if (::geteuid() != 0) {
    EXPECT_EQ(children, "") << "without root the relay needs no broker";
    return;
  }
  const std::string user = std::to_string(world::find_user("nobody").value().user);
  EXPECT_EQ(status_of(relay, "Uid"), user + "\t" + user + "\t" + user + "\t" + user);
  for (const char* const set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
    EXPECT_EQ(status_of(relay, set), "0000000000000000") << set;
  EXPECT_EQ(status_of(relay, "NoNewPrivs"), "1");
  ::kill(static_cast<pid_t>(std::stoi(children)), SIGKILL);
  EXPECT_TRUE(eventually([&] { return call() == "served" && relay_pid(options.folder) != relay; })) << call();
}

TEST_F(NodeRelayTest, ASocketOfAnotherUserInThePlaceOfAReplicasGetsNoRequests) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act for another user";
  start_agent();
  order();
  EXPECT_TRUE(eventually_called()) << call();
  const machine::Job job = machine::list_jobs(options.folder + "/jobs").at(0);
  const std::string path = job.request.labels.at("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  const world::Descriptor taken(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::unlink(path.c_str());
  EXPECT_EQ(::bind(taken.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(taken.get(), 16), 0);
  const relay::Target target{"chat/0#1", "unix:" + path, 1, false, job.folder};
  EXPECT_TRUE(TargetChecks()(target)) << "it belongs to the replica's user, like that of a server in a container";
  // Changes only this thread. The kernel reports the user that called listen() as the user of the other side.
  EXPECT_EQ(::syscall(SYS_setresuid, -1, 54329, -1), 0);
  EXPECT_EQ(::listen(taken.get(), 16), 0);
  EXPECT_EQ(::syscall(SYS_setresuid, -1, 0, -1), 0);
  const std::string problem = "socket " + path + " belongs to user 54329, not to chat/0#1";
  EXPECT_TRUE(eventually([&] { return call() == problem; })) << call();
}

TEST_F(NodeRelayTest, AnUpgradeReplacesABusyRelayAndLosesNoRequest) {
  chat.spec.serving.max_concurrent = 4;
  chat.spec.stop_grace = std::chrono::minutes(2);
  options.version = "old";
  setenv(relay_version_variable, "old", 1);
  start_agent();
  order();
  EXPECT_TRUE(eventually_called()) << call();
  const pid_t first = relay_pid(options.folder);
  std::future<std::string> stream = begin_stream();
  std::atomic<bool> is_over = false;
  std::atomic<int> answered = 0;
  std::future<std::string> load = std::async(std::launch::async, [&] {
    while (!is_over) {
      const std::string answer = call();
      // Like a gateway, send a request again if it has not begun.
      if (answer == relay::refused_leaving || answer == "draining" || answer == "unknown") continue;
      if (answer != "served") return answer;
      ++answered;
    }
    return std::string();
  });
  const auto until_answered = [&](int more) {
    const int wanted = answered + more;
    return eventually([&] { return answered >= wanted; });
  };
  EXPECT_TRUE(until_answered(20));

  stop_agent();
  options.version = "new";
  setenv(relay_version_variable, "new", 1);
  start_agent();
  EXPECT_TRUE(eventually([&] { return relay_pid(options.folder) != first; }))
      << "the old relay is replaced although it is never idle";
  EXPECT_TRUE(until_answered(20));
  EXPECT_TRUE(
      eventually([&] { return messages.contain("the agent has replaced the relay, which finishes its requests"); }));
  EXPECT_FALSE(has_ended(first)) << "the old relay still has a stream";
  order(true);
  EXPECT_TRUE(until(ReplicaState::stopping));
  EXPECT_EQ(ask_replica("/write"), "written") << "the replica is not stopped while the old relay has its stream";
  EXPECT_EQ(ask_replica("/close"), "closed");
  EXPECT_EQ(stream.get(), "begun.more.");
  EXPECT_TRUE(eventually([&] { return has_ended(first); }));
  is_over = true;
  EXPECT_EQ(load.get(), "");
  EXPECT_TRUE(until(ReplicaState::gone));
  stop_agent();
  unsetenv(relay_version_variable);
}

TEST_F(NodeRelayTest, AGatewayOfAnotherVersionIsAProblemOfTheNode) {
  http::Server other({}, http::Server::Proxy([](http::Link& link, http::Head&, const http::Peer&) -> http::Async<bool> {
                       co_await link.write(
                           "HTTP/1.1 426 Upgrade Required\r\nupgrade: berth-relay-2\r\n"
                           "content-length: 0\r\n\r\n");
                       co_return false;
                     }));
  const std::string address = other.listen("127.0.0.1:0").value();
  std::thread thread([&] { other.run(); });
  start_agent();
  server.order({chat}, {}, {{"g", gateway.address(), "berth_key"}, {"other", address, ""}});
  EXPECT_TRUE(eventually([&] {
    return server.problem() == "the gateway at " + address +
                                   " uses the relay protocol \"berth-relay-2\", and this berth uses \"berth-relay-1\", "
                                   "so no requests pass between them; upgrade the older berth";
  })) << server.problem();
  EXPECT_TRUE(eventually_called()) << "the other gateway is served: " << call();
  order();
  EXPECT_TRUE(eventually([&] { return server.problem().empty(); })) << server.problem();
  other.shutdown(std::chrono::milliseconds(0));
  thread.join();
}

}  // namespace

void run_test_replica() {
  const std::string at = std::getenv("AT");
  std::mutex mutex;  // guards what follows, which the answers share
  std::vector<http::Stream> streams;
  std::vector<http::Responder> held;  // probes that wait for their answer
  bool is_holding = false;
  http::Server* server = nullptr;
  std::string listening;
  http::Server own({}, [&](const http::Request& request, const http::Responder& to) {
    const std::lock_guard lock(mutex);
    std::string answer = "served";
    if (request.path == "/stream") {
      streams.push_back(to.stream({}));
      streams.back().write("begun.");
      return;
    }
    if (request.path == "/write") {
      for (const http::Stream& stream : streams) stream.write("more.");
      answer = "written";
    }
    if (request.path == "/close") {
      for (const http::Stream& stream : streams) stream.close();
      answer = "closed";
    }
    if (request.path == "/ready" && is_holding) return held.push_back(to);
    if (request.path == "/hold") {
      is_holding = true;
      answer = "held";
    }
    if (request.path == "/release") {
      is_holding = false;
      for (const http::Responder& responder : held) responder.send({200, {}, ""});
      answer = "released";
    }
    if (request.path == "/leave") {
      server->stop_listening(listening);
      answer = "left";
    }
    to.send({200, {{"connection", "close"}}, answer});
  });
  server = &own;
  const Result<std::string> listens = own.listen(at.starts_with('/') ? "unix:" + at : "127.0.0.1:" + at);
  if (!listens) std::_Exit(1);
  listening = *listens;
  own.run();
  std::_Exit(0);
}

}  // namespace berth::agent
