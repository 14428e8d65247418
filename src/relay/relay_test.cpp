// Both ends of the path from a gateway to replicas, with real sockets.
#include "relay/relay.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "http/client.hpp"
#include "http/server.hpp"
#include "http/test_closed_port.hpp"
#include "relay/test_gateway.hpp"
#include "world/test_folder.hpp"

namespace berth::relay {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using test::Running;
using test::TestGateway;

http::Server::Handler replica(const std::string& name) {
  return [name](const http::Request& request, const http::Responder& responder) {
    http::Response response{200, {{"x-name", name}}, request.body};
    for (const auto& [header, value] : request.headers) response.headers.add("got-" + header, value);
    responder.send(std::move(response));
  };
}

// Runs on the thread of a server without listeners.
class TestRelay {
 public:
  explicit TestRelay(RelayOptions options = {}) : running_({}, http::Server::Handler()) {
    options.node = "n1";
    running_.on_thread([&] { return relay_.emplace(running_.server.loop(), std::move(options)), 0; });
  }
  ~TestRelay() {
    running_.end(0ms);
    draining_.reset();
    relay_.reset();
  }
  void drain() {
    running_.on_thread([&] { return draining_.emplace(relay_->drain()), 0; });
  }
  void set(std::vector<Target> targets, const std::vector<std::string>& gateways) {
    running_.on_thread([&] {
      relay_->set_targets(std::move(targets));
      std::vector<http::ClientOptions> options;
      for (const std::string& url : gateways) options.push_back({.url = url});
      relay_->set_gateways(options);
      return 0;
    });
  }
  std::string problem() {
    return running_.on_thread([&] { return relay_->problem(); });
  }
  std::map<std::string, std::uint32_t> in_flight() {
    return running_.on_thread([&] { return relay_->admission().in_flight(); });
  }

 private:
  Running running_;
  std::optional<Relay> relay_;
  std::optional<http::Running> draining_;
};

TEST(Relay, ReplicasAreReachedThroughConnectionsThatTheNodeOpens) {
  Running first({}, replica("first")), second({}, replica("second"));
  TestGateway gateway;
  TestRelay relay;
  relay.set({{"a/0#1", first.url, 4, false}, {"b/0#2", second.url, 4, false}}, {gateway.url()});
  EXPECT_TRUE(eventually([&] { return gateway.idle() == 4; }));
  for (int i = 0; i < 20; ++i) {
    for (const auto& [target, name] : {std::pair("a/0#1", "first"), {"b/0#2", "second"}}) {
      const auto answer = gateway.ask(target);
      ASSERT_TRUE(answer) << answer.error().to_text();
      EXPECT_EQ(answer->status, 200);
      EXPECT_EQ(answer->body, "hello");
      EXPECT_EQ(answer->headers.get("x-name"), name);
      EXPECT_EQ(answer->headers.get(header_load), "1/4");
      EXPECT_FALSE(answer->headers.get("got-x-berth-to")) << "nothing of Berth reaches a replica";
      EXPECT_FALSE(answer->headers.get("got-x-berth-other"));
    }
  }
  EXPECT_LE(gateway.idle(), 6U) << "connections are reused";
}

TEST(Relay, AdmitsWhatAReplicaMayHaveAndRefusesTheRestBeforeItBegins) {
  std::mutex mutex;
  std::vector<http::Responder> held;
  Running busy({}, [&](const http::Request&, const http::Responder& responder) {
    const std::lock_guard lock(mutex);
    held.push_back(responder);
  });
  TestGateway gateway;
  TestRelay relay;
  relay.set({{"a/0#1", busy.url, 3, false}}, {gateway.url()});
  std::vector<std::thread> callers;
  std::atomic<int> answered = 0, refused = 0;
  for (int i = 0; i < 10; ++i)
    callers.emplace_back([&] {
      const auto answer = gateway.ask("a/0#1");
      ASSERT_TRUE(answer) << answer.error().to_text();
      if (answer->status == 200) ++answered;
      if (answer->status == 503 && answer->headers.get(header_refused) == "full") ++refused;
    });
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return refused == 7 && held.size() == 3;  // the others did not reach the replica
  }));
  EXPECT_EQ(relay.in_flight().at("a/0#1"), 3U);
  {
    const std::lock_guard lock(mutex);
    for (const http::Responder& responder : held) responder.send({200, {}, "done"});
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(answered, 3);
  EXPECT_TRUE(eventually([&] { return relay.in_flight().at("a/0#1") == 0; }));
}

TEST(Relay, AReplicaDoesNotSpeakForIt) {
  Running server({}, [](const http::Request&, const http::Responder& responder) {
    http::Response response{200, {}, "answer"};
    for (const std::string_view header : {header_refused, header_failed, header_load})
      response.headers.add(header, "forged");
    responder.send(std::move(response));
  });
  TestGateway gateway;
  TestRelay relay;
  relay.set({{"a/0#1", server.url, 4, false}}, {gateway.url()});
  const auto answer = gateway.ask("a/0#1");
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(answer->body, "answer");
  EXPECT_FALSE(answer->headers.get(header_refused));
  EXPECT_FALSE(answer->headers.get(header_failed));
  EXPECT_EQ(answer->headers.get(header_load), "1/4");
}

TEST(Relay, OpensMoreConnectionsWhereTheGatewayHasNoneLeft) {
  Running server({}, replica("a"));
  TestGateway gateway;
  TestRelay relay;
  relay.set({{"a/0#1", server.url, 8, false}}, {gateway.url()});
  EXPECT_TRUE(eventually([&] { return gateway.idle() == 4; }));
  const auto ask = [&](http::Headers headers) {
    headers.set(std::string(header_target), "a/0#1");
    EXPECT_EQ(http::Client::create({.url = gateway.url()})->request("GET", "/", "", {.headers = headers})->status, 200);
  };
  ask({});  // leaves four more connections idle
  EXPECT_TRUE(eventually([&] { return gateway.idle() == 5; }));
  // All are idle at this end; at the other end all are busy with answers that clients have not read yet.
  ask({{std::string(header_more), "4"}});
  EXPECT_TRUE(eventually([&] { return gateway.idle() == 9; }));
  ask({{std::string(header_more), "1"}});
  EXPECT_TRUE(eventually([&] { return gateway.idle() == 10; }));
}

TEST(Relay, ADrainingReplicaFinishesItsRequestsAndTakesNoMore) {
  std::promise<http::Stream> begun;
  Running slow({},
               [&](const http::Request&, const http::Responder& responder) { begun.set_value(responder.stream({})); });
  TestGateway gateway;
  TestRelay relay;
  relay.set({{"a/0#1", slow.url, 3, false}}, {gateway.url()});
  std::future<std::string> stream = std::async(std::launch::async, [&] { return gateway.read_stream("a/0#1"); });
  const http::Stream writer = begun.get_future().get();
  relay.set({{"a/0#1", slow.url, 3, true}}, {gateway.url()});
  const auto refused = gateway.ask("a/0#1");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->headers.get(header_refused), "draining");
  relay.set({}, {gateway.url()});
  EXPECT_EQ(relay.in_flight().at("a/0#1"), 1U);
  writer.write("all");
  writer.close();
  EXPECT_EQ(stream.get(), "all");
  EXPECT_TRUE(eventually([&] { return relay.in_flight().empty(); }));
  EXPECT_EQ(gateway.ask("a/0#1")->headers.get(header_refused), "unknown");
}

TEST(Relay, OneThatEndsAnswersTheNextRequestOnAConnectionThatItHasJustUsed) {
  std::promise<http::Responder> begun;
  Running slow({}, [&](const http::Request&, const http::Responder& responder) { begun.set_value(responder); });
  Running server({}, replica("a"));
  TestGateway gateway;
  TestRelay relay({.connections_max = 1}), next;
  relay.set({{"a/0#1", slow.url, 2, false}}, {gateway.url()});
  const auto ask = [&] { return gateway.ask("a/0#1"); };
  auto first = std::async(std::launch::async, ask);
  const http::Responder responder = begun.get_future().get();
  relay.drain();
  auto second = std::async(std::launch::async, ask);
  EXPECT_TRUE(eventually([&] { return gateway.missing() == 5; })) << "the request waits for a connection";
  responder.send({200, {}, "done"});
  EXPECT_EQ(first.get()->body, "done");
  next.set({{"a/0#1", server.url, 2, false}}, {gateway.url()});
  const auto answer = second.get();
  ASSERT_TRUE(answer) << answer.error().to_text();
  // If the gateway noticed the end of the relay before it sent the request, the next relay gets it.
  EXPECT_TRUE(answer->headers.get(header_refused) == refused_leaving || answer->body == "hello") << answer->status;
}

TEST(Relay, AReplicaThatDoesNotAnswerIsTold) {
  const http::ClosedPort gone;
  TestGateway gateway;
  TestRelay relay({.check = [](const Target& target) -> Result<world::Descriptor> {
    if (target.name == "b/0#2") return Error{ErrorCode::unavailable, "the port belongs to another process"};
    return world::Descriptor();
  }});
  relay.set({{"a/0#1", gone.url(), 3, false}, {"b/0#2", gone.url(), 3, false}}, {gateway.url()});
  const auto answer = gateway.ask("a/0#1");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->headers.get(header_refused), "unreachable");
  EXPECT_TRUE(answer->headers.get(header_failed));
  EXPECT_EQ(relay.in_flight().at("a/0#1"), 0U);
  EXPECT_EQ(gateway.ask("b/0#2")->headers.get(header_failed), "the port belongs to another process");
}

TEST(Relay, TheCheckMayHaveConnectedAlready) {
  const world::TestFolder folder;
  const std::string path = folder.path / "socket";
  Running server({}, replica("a"));
  ASSERT_TRUE(server.on_thread([&] { return server.server.listen("unix:" + path).has_value(); }));
  TestGateway gateway;
  TestRelay relay({.check = [&](const Target&) -> Result<world::Descriptor> {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    world::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return socket;
  }});
  relay.set({{"a/0#1", "unix:/nowhere", 3, false}}, {gateway.url()});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(gateway.ask("a/0#1")->status, 200);
}

TEST(Relay, AGatewayWithAnotherProtocolGetsNoConnectionsAndIsNamed) {
  Running server({}, replica("a"));
  TestGateway gateway;
  for (const std::string answer : {"101 Switching Protocols", "426 Upgrade Required"}) {
    std::atomic<int> asked = 0;
    const auto upgrade = [&](http::Link& link, http::Head& head, const http::Peer&) -> http::Async<bool> {
      EXPECT_EQ(head.headers.get("upgrade"), relay_protocol);
      ++asked;
      co_await link.write("HTTP/1.1 " + answer + "\r\nconnection: upgrade\r\nupgrade: berth-relay-2\r\n" +
                          (answer.starts_with("426") ? "content-length: 0\r\n\r\n" : "\r\n"));
      const http::Link::Piece piece = co_await link.read_raw();
      EXPECT_NE(piece.outcome, http::Link::Outcome::done) << "the relay closes the connection";
      co_return false;
    };
    Running other({}, http::Server::Proxy(upgrade));
    TestRelay relay;
    relay.set({{"a/0#1", server.url, 1, false}}, {gateway.url(), other.url});
    const std::string problem = other.url.substr(7) + " uses the relay protocol \"berth-relay-2\"";
    EXPECT_TRUE(eventually([&] { return asked > 1 && relay.problem().find(problem) != std::string::npos; }))
        << relay.problem();
    EXPECT_EQ(gateway.ask("a/0#1")->status, 200) << "other connections are served";
    relay.set({}, {gateway.url()});
    EXPECT_EQ(relay.problem(), "");
  }
}

TEST(Relay, ALargeBodyIsSentAfterItWasAdmitted) {
  Running server({}, replica("a"));
  TestGateway gateway;
  TestRelay relay;
  relay.set({{"a/0#1", server.url, 1, false}}, {gateway.url()});
  const std::string body(3'000'000, 'x');
  const auto answer = gateway.ask("a/0#1", body);
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_TRUE(answer->body == body);
  const auto refused = gateway.ask("c/0#1", body);
  ASSERT_TRUE(refused) << refused.error().to_text();
  EXPECT_EQ(refused->headers.get(header_refused), "unknown");
}

TEST(Relay, ConnectionsThatFailTogetherCountAsOneFailure) {
  constexpr int together = 16;
  std::atomic<int> tries = 0;
  http::Loop* loop = nullptr;
  Running refusing({}, http::Server::Proxy([&](http::Link&, http::Head&, const http::Peer&) -> http::Async<bool> {
                     for (++tries; tries < together;) co_await http::Signal(*loop).wait(real_clock().now() + 1ms);
                     co_return false;
                   }));
  loop = &refusing.server.loop();
  TestRelay relay({.spare = together, .again_max = 24h});
  relay.set({}, {refusing.url});
  EXPECT_TRUE(eventually([&] { return tries > together; })) << "each of " << together << " refusals doubled the wait";
}

TEST(Relay, AGatewayThatReturnsIsReachedAgain) {
  Running server({}, replica("a"));
  std::string url;
  TestRelay relay;
  {
    TestGateway gateway;
    url = gateway.url();
    relay.set({{"a/0#1", server.url, 1, false}}, {url});
    EXPECT_TRUE(gateway.ask("a/0#1"));
  }
  TestGateway other;
  relay.set({{"a/0#1", server.url, 1, false}}, {other.url()});
  const auto answer = other.ask("a/0#1");
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(answer->status, 200);
}

}  // namespace
}  // namespace berth::relay
