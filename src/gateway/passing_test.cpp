// Requests that a replica refuses or does not answer in time.
#include <linux/sockios.h>
#include <malloc.h>
#include <sys/ioctl.h>

#include <cstdio>
#include <fstream>

#include "gateway/test_fleet.hpp"

namespace berth::gateway {
namespace {

std::string post(const std::string& path, std::size_t length) {
  return "POST " + path + " HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + std::to_string(length) + "\r\n\r\n";
}

std::string read_answer(int client) {
  char buffer[4096];
  const ssize_t got = ::recv(client, buffer, sizeof buffer, 0);
  return got > 0 ? std::string(buffer, static_cast<std::size_t>(got)) : std::string();
}

// Bytes from this connection that the process at its other end, on this machine, has not read.
std::size_t unread(int client) {
  sockaddr_in own{}, other{};
  socklen_t size = sizeof own;
  ::getsockname(client, reinterpret_cast<sockaddr*>(&own), &size);
  ::getpeername(client, reinterpret_cast<sockaddr*>(&other), &size);
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, " %08X:%04X %08X:%04X 01 ", other.sin_addr.s_addr, ntohs(other.sin_port),
                own.sin_addr.s_addr, ntohs(own.sin_port));
  std::ifstream file("/proc/net/tcp");
  for (std::string line; std::getline(file, line);)
    if (const std::size_t found = line.find(wanted); found != line.npos)
      return std::stoul(line.substr(line.find(':', found + std::string(wanted).size()) + 1, 8), nullptr, 16);
  return 0;
}

// Sends until the other end stops reading. All bytes sent so far have then arrived there.
void send_until_stuck(int client) {
  const std::string piece(16 * 1024, 'x');
  int in_a_row = 0;  // unread pieces; too few to close the other end's window
  for (std::size_t before = 0; in_a_row < 3;) {
    ASSERT_EQ(::send(client, piece.data(), piece.size(), MSG_NOSIGNAL), static_cast<ssize_t>(piece.size()));
    ASSERT_TRUE(eventually([&] {
      int waiting = 0;
      return ::ioctl(client, SIOCOUTQ, &waiting) == 0 && waiting == 0;
    }));
    const std::size_t now = unread(client);
    in_a_row = now >= before + piece.size() ? in_a_row + 1 : 0;
    before = now;
  }
}

// Takes connections and reads nothing from them.
class Deaf {
 public:
  Deaf() {
    const int least = 4096;
    ::setsockopt(listening_, SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(listening_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(listening_, 8), 0);
    ::getsockname(listening_, reinterpret_cast<sockaddr*>(&at), &size);
    url = "http://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~Deaf() { ::close(listening_); }
  int take() const { return ::accept(listening_, nullptr, nullptr); }
  std::string url;

 private:
  const int listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

TEST(Passing, AClientThatGoesWhileItsBodyIsNotTakenEndsTheRequestOfTheReplica) {
  for (const bool is_reset : {false, true}) {
    SCOPED_TRACE(is_reset ? "reset" : "closed");
    Deaf replica;
    Fleet fleet;
    fleet.add("app", {replica.url}).serving.path = "/app";
    fleet.apply();
    const int client = sent(fleet.url(), post("/app", 1'000'000'000));
    const int taken = replica.take();
    send_until_stuck(client);
    EXPECT_EQ(fleet.in_flight()["app/0#1"], 1U);
    const linger at_once{.l_onoff = is_reset ? 1 : 0, .l_linger = 0};
    ::setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ::close(client);
    pollfd ended{taken, POLLRDHUP, 0};
    EXPECT_EQ(::poll(&ended, 1, 20'000), 1);
    EXPECT_TRUE(eventually([&] { return fleet.in_flight()["app/0#1"] == 0; }));
    EXPECT_EQ(fleet.records(1).at(0).outcome, fleet::RequestOutcome::abandoned);
    ::close(taken);
  }
}

// A connection to the gateway like one of a relay on node n1.
int relay_connection(const std::string& url) {
  const int connection = sent(
      url, "POST " + std::string(relay::relay_path) +
               " HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: " + std::string(relay::relay_protocol) +
               "\r\nx-berth-node: n1\r\ncontent-length: 0\r\n\r\n");
  const timeval patience{30, 0};
  ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  EXPECT_TRUE(read_answer(connection).starts_with("HTTP/1.1 101 "));
  return connection;
}

TEST(Passing, ARequestThatALeavingRelayRefusesGoesToTheSameReplicaThroughItsSuccessor) {
  Fleet fleet;
  Deployment& app = fleet.add("app", {"http://127.0.0.1:1"});
  app.serving.path = "/app";
  app.serving.on_capacity_exhausted = OnCapacityExhausted::reject;
  fleet.apply_to_gateway();
  const int successor = relay_connection(fleet.url()), leaving = relay_connection(fleet.url());
  auto asked = std::async(std::launch::async, [&] { return fleet.ask("/app"); });
  EXPECT_TRUE(read_answer(leaving).starts_with("GET /app "));
  const auto answer = [](int to, const std::string& head) {
    const std::string text = "HTTP/1.1 " + head + "\r\ncontent-length: 0\r\n\r\n";
    EXPECT_EQ(::send(to, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  };
  answer(leaving, "503 Service Unavailable\r\nconnection: close\r\n" + std::string(relay::header_refused) + ": " +
                      std::string(relay::refused_leaving));
  EXPECT_TRUE(read_answer(successor).starts_with("GET /app "));
  answer(successor, "204 No Content");
  EXPECT_EQ(asked.get().status, 204);
  ::close(leaving);
  ::close(successor);
}

TEST(Passing, AReplicaThatAnswersLateIsOneSentenceAndIsNotReplacedByAnother) {
  Replica holding("a", true), echo("b");
  Fleet fleet;
  Deployment& app = fleet.add("app", {holding.url(), holding.url()});
  app.serving.path = "/app";
  app.idempotent = true;
  Deployment& quick = fleet.add("quick", {echo.url()});
  quick.serving.path = "/quick";
  app.serving.first_byte_timeout = quick.serving.first_byte_timeout = 1s;
  const std::string key = fleet.add_caller("c", "app");
  fleet.apply();
  // The time limit does not apply while a client pauses within its body.
  const int pausing = sent(fleet.url(), post("/quick", 4) + "ab");
  const http::Response late = fleet.ask("/app");
  EXPECT_EQ(late.status, 504);
  EXPECT_NE(late.body.find("did not begin to answer within 1 s"), std::string::npos) << late.body;
  EXPECT_NE(late.body.find("serving.first_byte_timeout of app"), std::string::npos) << late.body;
  EXPECT_NE(late.body.find("the replica app/"), std::string::npos) << late.body;
  EXPECT_EQ(holding.held(), 1U);
  EXPECT_TRUE(eventually([&] { return fleet.in_flight()["app/0#1"] + fleet.in_flight()["app/1#2"] == 0; }));
  const fleet::RequestRecord record = fleet.records(1).at(0);
  EXPECT_EQ(record.status, 504U);
  EXPECT_EQ(record.outcome, fleet::RequestOutcome::failed);
  EXPECT_EQ(record.attempts.size(), 1U);
  const http::Response hidden = fleet.ask("/app", "", {{"authorization", "Bearer " + key}});
  EXPECT_EQ(hidden.status, 504);
  EXPECT_EQ(hidden.body.find("app/"), std::string::npos) << hidden.body;
  ASSERT_EQ(::send(pausing, "cd", 2, 0), 2);
  EXPECT_TRUE(read_answer(pausing).starts_with("HTTP/1.1 200 "));
  ::close(pausing);
}

std::string read_until_closed(int client) {
  std::string all;
  for (std::string piece; !(piece = read_answer(client)).empty();) all += piece;
  ::close(client);
  return all;
}

TEST(Passing, AWaitingRequestWhoseClientHasSentMuchAndGoesLeavesTheLine) {
  Replica replica("a", true);
  Fleet fleet;
  fleet.add("app", {replica.url()}, 1).serving.path = "/app";
  fleet.apply();
  auto held = std::async(std::launch::async, [&] { return fleet.ask("/app"); });
  ASSERT_TRUE(eventually([&] { return replica.held() == 1; }));
  const int client = sent(fleet.url(), post("/app", 1'000'000) + std::string(40'000, 'x'));
  ASSERT_TRUE(eventually([&] { return fleet.waiting() == 1; }));
  ::close(client);
  EXPECT_EQ(fleet.records(1).at(0).outcome, fleet::RequestOutcome::abandoned);
  replica.release(1);
  EXPECT_EQ(held.get().status, 200);
}

TEST(Passing, ARequestWhoseKeyIsRevokedWhileItWaitsReachesNoReplica) {
  Replica replica("a", true);
  Fleet fleet;
  fleet.add("app", {replica.url()}, 1).serving.path = "/app";
  const std::string key = fleet.add_caller("c", "app");
  fleet.apply();
  const auto ask = [&](const http::Headers& headers) {
    return std::async(std::launch::async, [&fleet, headers] { return fleet.ask("/app", "", headers); });
  };
  auto held = ask({{"authorization", "Bearer " + key}});
  ASSERT_TRUE(eventually([&] { return replica.held() == 1; }));
  auto waiting = ask({{"authorization", "Bearer " + key}});
  ASSERT_TRUE(eventually([&] { return fleet.waiting() == 1; }));
  fleet.view().callers.clear();
  fleet.apply();
  EXPECT_EQ(waiting.get().status, 401) << "at once";
  replica.release(1);
  EXPECT_EQ(held.get().status, 200) << "the replica had already begun";
  EXPECT_EQ(replica.held(), 0U);
}

TEST(Passing, ALongBodyThatWasSearchedArrivesWhole) {
  Replica echo("a");
  Fleet fleet;
  fleet.add("app", {echo.url()}).model = "m";
  fleet.apply();
  std::string body = R"({"model":"m","x":")";
  for (int i = 0; body.size() < 200'000; ++i) body += std::to_string(i);
  body += "\"}";
  EXPECT_TRUE(fleet.ask("/", body).body == body);
  char size[16];
  std::snprintf(size, sizeof size, "%zx\r\n", body.size());
  const std::string answer = read_until_closed(sent(
      fleet.url(), "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n" +
                       (size + body) + "\r\n0\r\n\r\n"));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer.substr(0, 200);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n" + body));
}

// A replica that begins each answer and never ends it.
class AnswersThatDoNotEnd {
 public:
  std::string url() const { return server_.url; }

 private:
  std::mutex mutex_;
  std::vector<http::Stream> streams_;
  OnThread server_{{}, http::Server::Handler([this](const http::Request&, const http::Responder& responder) {
                     const std::lock_guard lock(mutex_);
                     streams_.push_back(responder.stream({}));
                     streams_.back().write("begun");
                   })};
};

std::size_t allocated_bytes() {
  const struct mallinfo2 all = ::mallinfo2();
  return all.uordblks + all.hblkhd;
}

TEST(Passing, ABodyTakesNoMemoryWhileItsAnswerGoesOn) {
  const AnswersThatDoNotEnd replica;
  GatewayOptions options;
  options.peek_bytes_all = options.peek_bytes;  // enough for one request at a time
  Fleet fleet(std::move(options));
  fleet.add("app", {replica.url()}, 100).model = "m";
  fleet.apply();
  const std::string request = post("/", 250'000) + R"({"model":"m"})" + std::string(250'000 - 13, ' ');
  std::vector<int> clients;
  const auto begin = [&] {
    clients.push_back(sent(fleet.url(), request));
    std::string answer;
    for (std::string piece; !answer.ends_with("begun\r\n") && !(piece = read_answer(clients.back())).empty();)
      answer += piece;
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
  };
  for (int i = 0; i < 4; ++i) begin();
  const std::size_t before = allocated_bytes();
  constexpr std::size_t count = 20;
  for (std::size_t i = 0; i < count; ++i) begin();
  const std::size_t after = allocated_bytes();
  EXPECT_LT(after, before + count * 125'000) << "less than half a body for each request";
  for (const int client : clients) ::close(client);
}

TEST(Passing, AnAnswerThatStopsIsCutAfterItsTime) {
  const AnswersThatDoNotEnd replica;
  Fleet fleet;
  Deployment& app = fleet.add("app", {replica.url()});
  app.serving.path = "/app";
  app.serving.idle_timeout = 1s;
  fleet.apply();
  const int client = sent(fleet.url(), "GET /app HTTP/1.1\r\nhost: localhost\r\n\r\n");
  std::string all;
  for (std::string piece; !(piece = read_answer(client)).empty();) all += piece;
  EXPECT_TRUE(all.starts_with("HTTP/1.1 200 ")) << all;
  EXPECT_TRUE(all.ends_with("begun\r\n")) << "the answer has no end: " << all;
  EXPECT_TRUE(eventually([&] { return fleet.in_flight()["app/0#1"] == 0; }));
  ::close(client);
}

TEST(Passing, ARequestThatWaitedKeepsItsPlaceInAFullLine) {
  Replica replica("a", true);
  Fleet fleet;
  Deployment& app = fleet.add("app", {replica.url()}, 1);
  app.serving.path = "/app";
  app.serving.queue_max = 1;
  fleet.apply();
  std::vector<std::future<http::Response>> all;
  const auto ask = [&] { all.push_back(std::async(std::launch::async, [&] { return fleet.ask("/app"); })); };
  ask();
  ASSERT_TRUE(eventually([&] { return replica.held() == 1; }));
  ask();
  ASSERT_TRUE(eventually([&] { return fleet.waiting() == 1; }));
  // New requests, repeated until one arrives while the waiting request checks whether there is room.
  std::atomic<bool> ends = false;
  for (int i = 0; i < 6; ++i)
    all.push_back(std::async(std::launch::async, [&] {
      http::Response answer;
      do {
        answer = fleet.ask("/app");
      } while (answer.status == 429 && !ends);
      return answer;
    }));
  EXPECT_TRUE(eventually([&] { return fleet.waiting() > 1 || all[1].wait_for(0s) == std::future_status::ready; }));
  ends = true;
  EXPECT_TRUE(eventually([&] {
    replica.release(1);
    return std::all_of(all.begin(), all.end(),
                       [](auto& future) { return future.wait_for(0s) == std::future_status::ready; });
  }));
  EXPECT_EQ(all[0].get().status, 200);
  EXPECT_EQ(all[1].get().status, 200);
}

}  // namespace
}  // namespace berth::gateway
