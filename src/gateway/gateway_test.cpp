#include "gateway/gateway.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <future>

#include "gateway/test_fleet.hpp"

namespace berth::gateway {
namespace {

TEST(Gateway, BeforeItHasHeardItsServerNoKeyIsCalledWrong) {
  Replica replica("a");
  Fleet fleet;
  fleet.add("a", {replica.url()}).serving.path = "/a";
  const http::Headers key{{"authorization", "Bearer " + fleet.add_caller("c1", "a")}};
  const http::Response early = fleet.ask("/a", "", key);
  EXPECT_EQ(early.status, 503) << early.body;
  EXPECT_EQ(early.headers.get("retry-after"), "1");
  fleet.apply();
  EXPECT_EQ(fleet.ask("/a", "", key).status, 200);
}

TEST(Gateway, RequestsReachTheDeploymentByPathModelOrHeader) {
  Replica chat("chat"), tiles("tiles");
  Fleet fleet;
  fleet.add("chat", {chat.url()}).model = "llama";
  fleet.add("tiles", {tiles.url()}).serving.path = "/tiles";
  fleet.apply();
  EXPECT_EQ(fleet.ask("/tiles/1?x=2").headers.get("x-name"), "tiles");
  EXPECT_EQ(tiles.last().path, "/tiles/1");
  const std::string body = R"({"model":"llama","messages":[]})";
  const http::Response answer = fleet.ask("/v1/chat/completions", body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.get("x-name"), "chat");
  EXPECT_EQ(answer.body, body);
  EXPECT_FALSE(answer.headers.get("x-berth-load")) << "nothing of a replica looks like Berth's own";
  EXPECT_EQ(fleet.ask("/any", "", {{"x-berth-deployment", "chat"}}).headers.get("x-name"), "chat");
  EXPECT_EQ(fleet.ask("/any", R"({"model":"gpt"})").status, 404);
  fleet.add("other", {tiles.url()}).model = "llama";
  fleet.apply();
  const http::Response shared = fleet.ask("/any", R"({"model":"llama"})");
  EXPECT_EQ(shared.status, 400);
  EXPECT_NE(shared.body.find("several deployments serve the model"), std::string::npos) << shared.body;
  EXPECT_EQ(fleet.ask("/any", R"({"model":"other"})").headers.get("x-name"), "tiles");
  fleet.view().deployments.erase(DeploymentId("other"));
  fleet.apply();
  EXPECT_EQ(fleet.ask("/any", R"({"model":"a","model":"b"})").status, 400);
  EXPECT_EQ(fleet.ask("/any").status, 404);
  EXPECT_EQ(
      fleet.ask("/v1/models").body,
      R"({"object":"list","data":[{"id":"chat","object":"model","owned_by":"berth"},{"id":"llama","object":"model","owned_by":"berth"},{"id":"tiles","object":"model","owned_by":"berth"}]})"
      "\n");
}

TEST(Gateway, AClientThatWaitsForPermissionToSendItsBodyGetsIt) {
  Replica replica("a");
  Fleet fleet;
  fleet.add("a", {replica.url()}).serving.path = "/a";
  fleet.apply();
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(fleet.url().substr(fleet.url().rfind(':') + 1))));
  ASSERT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const timeval patience{10, 0};
  ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const auto send = [&](std::string_view text) { return ::send(client, text.data(), text.size(), MSG_NOSIGNAL); };
  const auto read_until = [&](std::string_view end) {
    std::string got;
    char byte = 0;
    while (!got.ends_with(end) && ::recv(client, &byte, 1, 0) == 1) got += byte;
    return got;
  };
  send("POST /a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  send("hello");
  EXPECT_TRUE(read_until("hello").starts_with("HTTP/1.1 200 "));
  ::close(client);
}

TEST(Gateway, WhatIsBerthsOrTheCallersNeverReachesAReplica) {
  Replica replica("a");
  Fleet fleet;
  fleet.add("a", {replica.url()}).serving.path = "/a";
  const std::string key = fleet.add_caller("app", "a");
  fleet.apply();
  const http::Response answer = fleet.ask("/a", "",
                                          {{"authorization", "Bearer " + key},
                                           {"cookie", "berth-1234=secret; other=1; berth-x=y"},
                                           {"x-berth-to", "b/0#1"},
                                           {"x-mine", "1"},
                                           {"X_Forwarded_For", "10.9.8.7"},
                                           {"X_Berth_To", "b/0#1"},
                                           {"content_length", "5"},
                                           {"x-berth-explain", "1"}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  const http::Request got = replica.last();
  EXPECT_FALSE(got.headers.get("authorization"));
  EXPECT_EQ(got.headers.get("cookie"), "other=1");
  EXPECT_FALSE(got.headers.get("x-berth-to"));
  EXPECT_FALSE(got.headers.get("x-berth-explain"));
  EXPECT_EQ(got.headers.get("x-mine"), "1");
  EXPECT_EQ(got.headers.get("x-forwarded-for"), "127.0.0.1");
  for (const auto& [name, value] : got.headers) EXPECT_EQ(name.find('_'), name.npos) << name;
}

TEST(Gateway, AnOpenDeploymentIsNotForPagesOfOtherSites) {
  Replica replica("a");
  Fleet fleet;
  fleet.add("a", {replica.url()}).serving.path = "/a";
  fleet.add("b", {replica.url()}).serving.host = "b.example.org";
  fleet.apply();
  EXPECT_EQ(fleet.ask("/a").status, 200);
  EXPECT_EQ(fleet.ask("/a", "", {{"origin", "https://evil.example"}}).status, 401);
  const auto asked_as = [&](const std::string& host) {
    const int client = sent(fleet.url(), "GET /a HTTP/1.1\r\nhost: " + host + "\r\n\r\n");
    char answer[16] = {};
    EXPECT_GT(::recv(client, answer, 12, MSG_WAITALL), 0);
    ::close(client);
    return std::string(answer);
  };
  EXPECT_EQ(asked_as("evil.example"), "HTTP/1.1 401") << "a name that points at this machine";
  EXPECT_EQ(asked_as("b.example.org"), "HTTP/1.1 421") << "the answer of the replica, which does not know the name";
}

TEST(Gateway, ARelayWhoseKeyIsGoneLosesItsConnections) {
  Replica replica("a", true);
  Fleet fleet;
  fleet.add("a", {replica.url()}).serving.path = "/a";
  fleet.apply();
  std::future<http::Response> held = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  ASSERT_TRUE(eventually([&] { return replica.held() == 1; }));
  fleet.keep_relays({"another"});
  EXPECT_EQ(held.get().status, 502);
}

TEST(Gateway, ALimitOfRequestsAtATimeCountsThoseWhoseBodyIsNotThereYet) {
  Replica replica("a");
  Fleet fleet;
  fleet.add("a", {replica.url()}).serving.path = "/a";
  const std::string key = fleet.add_caller("c", "a");
  fleet.view().callers[http::sha256(key)].concurrent_max = 1;
  fleet.apply();
  const int client = sent(fleet.url(), "POST /a HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer " + key +
                                           "\r\ncontent-length: 3\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return fleet.ask("/a", "", {{"authorization", "Bearer " + key}}).status == 429; }));
  ::close(client);
}

TEST(Gateway, ACallerSendsAsManyRequestsPerSecondAsItMay) {
  Replica replica("a");
  Fleet fleet;
  fleet.add("a", {replica.url()}).serving.path = "/a";
  const std::string key = fleet.add_caller("c", "a"), free = fleet.add_caller("d", "a");
  fleet.view().callers[http::sha256(key)].per_second = 3;
  fleet.apply();
  std::map<int, int> answers;
  const TimePoint began = real_clock().now();
  for (int i = 0; i < 30; ++i) ++answers[fleet.ask("/a", "", {{"authorization", "Bearer " + key}}).status];
  const double seconds = std::chrono::duration<double>(real_clock().now() - began).count();
  EXPECT_GE(answers[200], 3);
  EXPECT_LE(answers[200], 4 + 3 * seconds);
  EXPECT_EQ(answers[200] + answers[429], 30);
  EXPECT_EQ(fleet.ask("/a", "", {{"authorization", "Bearer " + free}}).status, 200);
}

TEST(Gateway, AKeyOpensItsDeploymentAndNothingElse) {
  Replica replica("a");
  Fleet fleet;
  fleet.add("a", {replica.url()}).serving.path = "/a";
  fleet.add("b", {replica.url()}).serving.path = "/b";
  for (auto& [name, deployment] : fleet.view().deployments) deployment.serving.open = false;
  const std::string key = fleet.add_caller("app", "a");
  fleet.apply();
  const auto with = [&](const std::string& path, const std::string& token) {
    return fleet.ask(path, "", {{"authorization", "Bearer " + token}}).status;
  };
  EXPECT_EQ(with("/a", key), 200);
  EXPECT_EQ(fleet.ask("/a", "", {{"x-api-key", key}}).status, 200);
  EXPECT_EQ(fleet.ask("/a", "", {{"authorization", "bearer " + key}}).status, 200);
  EXPECT_EQ(fleet.ask("/a", "", {{"authorization", "Basic " + key}}).status, 401);
  EXPECT_EQ(with("/b", key), 403);
  EXPECT_EQ(with("/a", key + "x"), 401);
  EXPECT_EQ(with("/a", "berth_0000"), 401);
  EXPECT_EQ(fleet.ask("/a").status, 401);
  fleet.view().callers.clear();
  fleet.apply();
  EXPECT_EQ(with("/a", key), 401) << "revoked";
}

TEST(Gateway, WhatDidNotReachAReplicaIsTriedAtAnother) {
  const http::ClosedPort gone;
  Replica alive("alive");
  Fleet fleet;
  fleet.add("a", {gone.url(), gone.url()}).serving.path = "/a";
  fleet.add("b", {gone.url(), alive.url()}).serving.path = "/b";
  fleet.apply();
  EXPECT_EQ(fleet.ask("/a").status, 502);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(fleet.ask("/b", "body").headers.get("x-name"), "alive");
}

http::Server::Proxy dies(std::atomic<int>& begun) {
  return [&begun](http::Link&, http::Head&, const http::Peer&) -> http::Async<bool> {
    ++begun;
    co_return false;
  };
}

TEST(Gateway, OfAReplicaThatDiedOnlyWhatMayRunTwiceIsTriedAtOneOther) {
  std::atomic<int> begun = 0;
  OnThread dying({.serves_page = false}, dies(begun));
  Replica alive("alive");
  Fleet fleet;
  fleet.add("once", {dying.url, alive.url()}).serving.path = "/once";
  fleet.add("twice", {dying.url, alive.url()}).serving.path = "/twice";
  fleet.add("dead", {dying.url, dying.url, dying.url}).serving.path = "/dead";
  fleet.view().deployments.at(DeploymentId("twice")).idempotent = true;
  fleet.view().deployments.at(DeploymentId("dead")).idempotent = true;
  fleet.apply();
  std::set<int> answers;
  for (int i = 0; i < 4; ++i) answers.insert(fleet.ask("/once", "body").status);
  EXPECT_TRUE(answers.contains(502)) << "from the replica that died";
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.ask("/twice", "body").headers.get("x-name"), "alive");
  begun = 0;
  EXPECT_EQ(fleet.ask("/dead", "body").status, 502);
  EXPECT_EQ(begun, 2) << "never on a third replica";
}

TEST(Gateway, WhatMayBeTriedElsewhereWaitsForAReplicaThatIsBusy) {
  std::atomic<int> begun = 0;
  OnThread dying({.serves_page = false}, dies(begun));
  Replica busy("busy", true);
  Fleet fleet;
  const http::ClosedPort gone;
  fleet.add("gone", {gone.url(), busy.url()}, 1).serving.path = "/gone";
  fleet.add("dying", {dying.url, busy.url()}, 1).serving.path = "/dying";
  fleet.view().deployments.at(DeploymentId("dying")).idempotent = true;
  fleet.apply();
  std::atomic<int> answered = 0;
  std::vector<std::jthread> callers;
  for (const char* path : {"/gone", "/gone", "/gone", "/dying", "/dying", "/dying"})
    callers.emplace_back([&, path] { answered += fleet.ask(path, "body").status == 200; });
  EXPECT_TRUE(eventually([&] { return busy.held() == 2 && fleet.waiting() == 4; }));
  EXPECT_TRUE(eventually([&] { return busy.release(1), answered == 6; }));
  EXPECT_LE(begun, 3) << "each request tries it at most once";
}

TEST(Gateway, NodesThatAreNotConnectedYetAreNoReasonToReject) {
  Replica replica("a");
  Fleet fleet;
  Deployment& deployment = fleet.add("a", {replica.url()});
  deployment.serving.path = "/a";
  deployment.serving.on_capacity_exhausted = OnCapacityExhausted::reject;
  fleet.apply_to_gateway();
  const http::Response none = fleet.ask("/a");
  EXPECT_EQ(none.status, 503) << "after the time that nodes have to connect";
  EXPECT_NE(none.body.find("no node with a replica of a is connected to this gateway: n1\""), std::string::npos)
      << none.body;
  EXPECT_NE(none.body.find("berth status shows an operator which nodes are not connected"), std::string::npos)
      << none.body;
  std::future<int> status = std::async(std::launch::async, [&] { return fleet.ask("/a").status; });
  EXPECT_TRUE(eventually([&] { return fleet.waiting() == 1 || status.wait_for(0s) == std::future_status::ready; }));
  fleet.apply_to_relay();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(fleet.ask("/a").status, 200) << "also while the first request still waits";
  EXPECT_EQ(status.get(), 200);
}

TEST(Gateway, AMalformedHostReachesNoReplicaAlsoWithAKey) {
  Replica replica("a");
  Fleet fleet;
  fleet.add("a", {replica.url()}).serving.path = "/a";
  const std::string key = fleet.add_caller("c", "a");
  fleet.apply();
  for (const char* host : {"a b", "user@localhost", "localhost, other", "localhost/a", "[::1"}) {
    const int client = sent(
        fleet.url(), std::string("GET /a HTTP/1.1\r\nhost: ") + host + "\r\nauthorization: Bearer " + key + "\r\n\r\n");
    char answer[13] = {};
    EXPECT_GT(::recv(client, answer, 12, MSG_WAITALL), 0);
    ::close(client);
    EXPECT_STREQ(answer, "HTTP/1.1 400") << host;
  }
  EXPECT_EQ(replica.last().path, "") << "the replica got no request";
}

TEST(Gateway, AClientThatAsksAndNeverReadsIsLetGo) {
  GatewayOptions options;
  options.client_time = 200ms;
  Fleet fleet(std::move(options));
  fleet.add("a", {}).serving.path = "/a";
  fleet.apply();
  const int client = sent(fleet.url(), "");
  const timeval patience{10, 0};
  ::setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  // Answers fill the buffers, then requests do, and then the gateway closes the connection.
  const std::string request = "GET /nowhere HTTP/1.1\r\nhost: localhost\r\nx-request-id: 1\r\n\r\n";
  ssize_t bytes = 0;
  for (int i = 0; i < 1'000'000 && bytes >= 0; ++i)
    bytes = ::send(client, request.data(), request.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(bytes < 0 && (errno == EPIPE || errno == ECONNRESET)) << std::strerror(errno);
  ::close(client);
}

TEST(Gateway, BodiesThatAreSearchedAreBoundedTogether) {
  GatewayOptions options;
  options.peek_bytes_all = options.peek_bytes + 1;
  Fleet fleet(std::move(options));
  fleet.add("a", {});
  fleet.apply();
  // Each body is short enough by itself, and both requests begin before either has sent much.
  std::vector<pollfd> clients;
  for (int i = 0; i < 2; ++i)
    clients.push_back(
        {sent(fleet.url(), "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 250000\r\n\r\n{"), POLLIN, 0});
  EXPECT_TRUE(eventually([&] {
    const auto callers = fleet.report().callers;
    return callers.size() == 1 && callers.front().in_flight == 2;
  }));
  const std::string most(200'000, ' ');
  for (const pollfd& client : clients) ::send(client.fd, most.data(), most.size(), MSG_NOSIGNAL);
  ASSERT_GT(::poll(clients.data(), clients.size(), 10'000), 0) << "one request is refused";
  std::string answer(20, ' ');
  ::recv(clients[clients[0].revents == 0].fd, answer.data(), answer.size(), 0);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503 ")) << answer;
  for (const pollfd& client : clients) ::close(client.fd);
}

TEST(Gateway, ABodyThatIsTooLongToBeSearchedIsRefusedBeforeItComes) {
  Fleet fleet;
  fleet.add("a", {}).model = "m";
  fleet.apply();
  const int client = sent(fleet.url(), "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 300000\r\n\r\n");
  const timeval patience{10, 0};
  ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string answer(13, ' ');
  ::recv(client, answer.data(), answer.size(), MSG_WAITALL);
  EXPECT_EQ(answer, "HTTP/1.1 413 ");
  ::close(client);
}

TEST(Gateway, BodiesThatOneCallerDoesNotFinishTakeNoMemoryFromAnother) {
  Replica replica("a");
  GatewayOptions options;
  options.peek_bytes = 64 * 1024;
  options.peek_bytes_all = 4 * options.peek_bytes;
  Fleet fleet(std::move(options));
  fleet.add("a", {replica.url()}).model = "m";
  const std::string slow = fleet.add_caller("slow", "a"), quick = fleet.add_caller("quick", "a");
  fleet.apply();
  std::vector<int> clients;
  const auto in_flight = [&] {
    for (const fleet::RequestCounts& caller : fleet.report().callers)
      if (caller.name == "slow") return caller.in_flight;
    return std::uint64_t{0};
  };
  const auto begin = [&] {
    clients.push_back(sent(fleet.url(), "POST / HTTP/1.1\r\nhost: localhost\r\nx-api-key: " + slow +
                                            "\r\ncontent-length: 65000\r\n\r\n{" + std::string(60'000, ' ')));
  };
  for (int i = 0; i < 2; ++i) begin();
  EXPECT_TRUE(eventually([&] { return in_flight() == 2; }));
  const auto status = [&](const std::string& key) {
    return fleet.ask("/", R"({"model":"m"})" + std::string(20'000, ' '), {{"x-api-key", key}}).status;
  };
  EXPECT_TRUE(eventually([&] { return status(slow) == 503; })) << "the caller already uses its half";
  for (int i = 0; i < 20; ++i) EXPECT_EQ(status(quick), 200);
  for (const int client : clients) ::close(client);
  EXPECT_TRUE(eventually([&] { return status(slow) == 200; }));
}

TEST(Gateway, ARelayWithAnotherProtocolIsRefusedAndNamed) {
  std::vector<std::string> named;
  GatewayOptions options;
  options.on_other_protocol = [&](const NodeId& node, std::string_view protocol) {
    named.push_back(node.text() + " " + std::string(protocol));
  };
  Replica a("a");
  Fleet fleet(options);
  fleet.add("a", {a.url()}).serving.path = "/a";
  fleet.apply();
  const int client = sent(fleet.url(),
                          "POST /.berth/relay HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n"
                          "upgrade: berth-relay-0\r\nx-berth-node: n2\r\ncontent-length: 0\r\n\r\n");
  std::string answer;
  std::array<char, 1024> part{};
  for (ssize_t got = 0; (got = ::recv(client, part.data(), part.size(), 0)) > 0;)
    answer.append(part.data(), static_cast<std::size_t>(got));
  ::close(client);
  EXPECT_EQ(answer,
            "HTTP/1.1 426 Upgrade Required\r\nconnection: upgrade, close\r\nupgrade: berth-relay-1\r\n"
            "content-length: 0\r\n\r\n");
  EXPECT_EQ(named, std::vector<std::string>{"n2 berth-relay-0"});
  EXPECT_EQ(fleet.ask("/a", "hello").body, "hello");
}

}  // namespace
}  // namespace berth::gateway
