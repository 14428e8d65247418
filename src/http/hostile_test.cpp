// Input that no honest client sends: the server answers with an error or closes, and continues to serve others.
#include <future>
#include <vector>

#include "berth/assert.hpp"
#include "berth/clock.hpp"
#include "berth/random.hpp"
#include "http/connection_count.hpp"
#include "http/running_server.hpp"

namespace berth::http {
namespace {

using namespace test;

void echo_in_brackets(const Request& request, const Responder& responder) {
  responder.send({200, {}, request.method + ' ' + request.path + " [" + request.body + "]"});
}

std::string status_of(const std::string& answer) { return answer.substr(0, std::string("HTTP/1.1 400").size()); }

// What the server answers to these bytes, until it closes the connection.
std::string answer_to(const RunningServer& server, std::string_view bytes) {
  RawConnection connection(server.address());
  connection.send(bytes);
  connection.close_half();
  return connection.read_all();
}

ServerOptions with(const std::function<void(Limits&)>& change) {
  ServerOptions options;
  change(options.limits);
  return options;
}

TEST(Hostile, MalformedRequestsGet400AndAreClosed) {
  RunningServer server([](const Request& request, const Responder&) { ADD_FAILURE() << request.path; });
  const std::string host = "Host: 127.0.0.1\r\n";
  for (const std::string& bytes : std::vector<std::string>{
           std::string("GARBAGE\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\n\r\n"),        // no Host
           "GET / HTTP/1.1\r\n" + host + host + "\r\n",  // two
           "GET /%zz HTTP/1.1\r\n" + host + "\r\n",
           "GET /a/../b HTTP/1.1\r\n" + host + "\r\n",
           "GET /%2e%2e/b HTTP/1.1\r\n" + host + "\r\n",
           "GET /a%00b HTTP/1.1\r\n" + host + "\r\n",
           "GET http://127.0.0.1/ HTTP/1.1\r\n" + host + "\r\n",
           "OPTIONS * HTTP/1.1\r\n" + host + "\r\n",
           "CONNECT 127.0.0.1:80 HTTP/1.1\r\n" + host + "\r\n",
           "GET / HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
           "GET / HTTP/1.1\r\n" + host + "A\x01b: c\r\n\r\n",
           "GET / HTTP/1.1\r\n" + host + "A: b\nc\r\n\r\n",
           "GET / HTTP/9.9\r\n" + host + "\r\n",
       }) {
    const std::string answer = answer_to(server, bytes);
    EXPECT_EQ(status_of(answer), "HTTP/1.1 400") << bytes << answer;
    EXPECT_NE(answer.find("\"error\":{\"code\":\"invalid_argument\""), answer.npos) << answer;
    EXPECT_NE(answer.find("connection: close"), answer.npos);
  }
  EXPECT_EQ(status_of(answer_to(server, "GET / HTTP/1.0\r\n" + host + "\r\n")), "HTTP/1.1 505");
}

TEST(Hostile, NoRequestHidesInAnother) {
  RunningServer server([](const Request& request, const Responder&) { ADD_FAILURE() << request.path; });
  const std::string head = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n";
  const std::string hidden = "GET /hidden HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
  for (const std::string& bytes : std::vector<std::string>{
           head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
           head + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
           head + "Content-Length: 5, 5\r\n\r\nabcde",
           head + "Content-Length: +5\r\n\r\nabcde",
           head + "Content-Length: -1\r\n\r\n",
           head + "Content-Length: 99999999999999999999999\r\n\r\n",
           head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
           head + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + hidden,
           head + "Transfer-Encoding: identity\r\n\r\n" + hidden,
           head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + hidden,
           head + "Transfer-Encoding: chunked, identity\r\n\r\n" + hidden,
           head + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
           head + "Transfer-Encoding: xchunked\r\n\r\n" + hidden,
           head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n" + hidden,
           head + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + hidden,
           head + "Transfer-Encoding: chunked\r\n\r\n5\r\nabcdeXX0\r\n\r\n" + hidden,
           head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + hidden,
       })
    EXPECT_EQ(status_of(answer_to(server, bytes)).substr(0, 10), "HTTP/1.1 4") << bytes;
}

TEST(Hostile, ATrailerChangesNoHeader) {
  std::promise<bool> has_token;
  RunningServer server([&](const Request& request, const Responder& responder) {
    has_token.set_value(request.headers.get("authorization").has_value());
    responder.send({200, {}, request.body});
  });
  const std::string answer = answer_to(server,
                                       "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                                       "3\r\nabc\r\n0\r\nAuthorization: Bearer x\r\n\r\n");
  EXPECT_EQ(status_of(answer), "HTTP/1.1 200");
  EXPECT_TRUE(answer.ends_with("\r\n\r\nabc"));
  EXPECT_FALSE(has_token.get_future().get());
}

TEST(Hostile, ALongHeaderIsRefused) {
  RunningServer server(echo_in_brackets);
  EXPECT_EQ(status_of(answer_to(server, get("/", "X: " + std::string(20'000, 'x') + "\r\n"))), "HTTP/1.1 431");
  EXPECT_EQ(status_of(answer_to(server, "GET /" + std::string(20'000, 'x'))), "HTTP/1.1 431");
  std::string many;
  for (int i = 0; i < 5'000; ++i) many += "a: b\r\n";
  EXPECT_EQ(status_of(answer_to(server, get("/", many))), "HTTP/1.1 431");
  EXPECT_EQ(status_of(answer_to(server, get("/", "X: " + std::string(15'000, 'x') + "\r\nConnection: close\r\n"))),
            "HTTP/1.1 200");
}

TEST(Hostile, ALongBodyIsRefusedBeforeItIsRead) {
  ServerOptions options = with([](Limits& limits) { limits.body_bytes = 100; });
  options.body_bytes = [](const Request& head) -> std::size_t {
    EXPECT_TRUE(head.headers.get("host") && head.body.empty());
    return head.path == "/big" ? 1000 : 100;
  };
  RunningServer server(echo_in_brackets, options);
  Client client = client_of(server);
  EXPECT_EQ(client.request("POST", "/", std::string(100, 'x'))->status, 200);
  EXPECT_EQ(client.request("POST", "/", std::string(101, 'x'))->status, 413);
  EXPECT_EQ(client.request("POST", "/big", std::string(1000, 'x'))->status, 200);
  EXPECT_EQ(client.request("POST", "/big", std::string(1001, 'x'))->status, 413);
  // The answer arrives although the client continues to send more than the sockets hold.
  const auto refused = client.request("POST", "/", std::string(3'000'000, 'x'));
  EXPECT_TRUE(!refused || refused->status == 413);
  RawConnection connection(server.address());
  connection.send("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) connection.send("a\r\n0123456789\r\n");
  EXPECT_EQ(status_of(connection.read_all()), "HTTP/1.1 413");
}

TEST(Hostile, AnEndlessChunkLineIsRefused) {
  RunningServer server(echo_in_brackets);
  const std::string head = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status_of(answer_to(server, head + "1;" + std::string(100'000, 'x'))), "HTTP/1.1 400");
  EXPECT_EQ(status_of(answer_to(server, head + "0\r\n" + std::string(100'000, 'x'))).substr(0, 10), "HTTP/1.1 4");
  std::string trailer = "0\r\n";
  for (int i = 0; i < 20'000; ++i) trailer += "a: b\r\n";
  EXPECT_EQ(status_of(answer_to(server, head + trailer + "\r\n")), "HTTP/1.1 400");
}

TEST(Hostile, SlowHeadersAndBodiesAreEnded) {
  RunningServer server(echo_in_brackets, with([](Limits& limits) { limits.header_time = limits.body_time = 150ms; }));
  RawConnection silent(server.address());
  RawConnection header(server.address());
  header.send("GET / HT");
  RawConnection body(server.address());
  body.send("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(status_of(header.read_all()), "HTTP/1.1 408");
  EXPECT_EQ(status_of(body.read_all()), "HTTP/1.1 408");
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_TRUE(silent.is_closed());
}

TEST(Hostile, ADripOfBytesDoesNotExtendTheTime) {
  RunningServer server(echo_in_brackets, with([](Limits& limits) { limits.header_time = 300ms; }));
  RawConnection connection(server.address());
  connection.send("GET / HTTP/1.1\r\n");
  int sent = 0;
  while (!connection.is_closed(20ms) && connection.read_all(1ms).empty() && sent < 500) {
    connection.send("a");
    ++sent;
  }
  EXPECT_LT(sent, 100);
}

TEST(Hostile, IdleConnectionsAreClosed) {
  RunningServer server(echo_in_brackets, with([](Limits& limits) { limits.idle_time = 100ms; }));
  RawConnection connection(server.address());
  connection.send(get("/"));
  EXPECT_NE(connection.read_all().find("GET /"), std::string::npos);
  EXPECT_TRUE(connection.is_closed());
}

TEST(Hostile, AReaderThatStopsIsDropped) {
  RunningServer server(
      [](const Request&, const Responder& responder) { responder.send({200, {}, std::string(20'000'000, 'x')}); },
      with([](Limits& limits) { limits.write_time = 150ms; }));
  RawConnection connection(server.address(), 4096);
  connection.send(get("/"));
  EXPECT_TRUE(eventually([&] { return server.connections() == 1; }));
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST(Hostile, AClientThatAlwaysHasAnotherRequestKeepsNoOtherFromBeingAnswered) {
  std::optional<RawConnection> flood;
  const Deadline hang = Deadline::after(real_clock(), 10s);
  bool is_other_answered = false;
  std::promise<void> begun;
  int count = 0;
  RunningServer server([&](const Request& request, const Responder& responder) {
    responder.send({200, {}, "x"});
    if (request.path == "/other") {
      is_other_answered = !hang.passed(real_clock().now());
    } else if (!is_other_answered && !hang.passed(real_clock().now())) {
      // This runs on the server's thread: another request is always there when it reads again.
      flood->read_all(0ms);
      flood->send(get("/flood"));
      if (++count == 10) begun.set_value();
    }
  });
  flood.emplace(server.address());
  std::string many;  // more than is read at once
  while (many.size() < 64 * 1024) many += get("/flood");
  flood->send(many);
  begun.get_future().wait();
  ASSERT_TRUE(client_of(server).request("GET", "/other", "", {.timeout = 20s}));
  EXPECT_TRUE(is_other_answered);
}

TEST(Hostile, PipelinedRequestsAreAnsweredInOrder) {
  std::vector<Responder> held;
  RunningServer server([&](const Request& request, const Responder& responder) {
    if (request.path != "/later") return echo_in_brackets(request, responder);
    held.push_back(responder);
    if (held.size() == 1) responder.on_gone([] { ADD_FAILURE(); });
  });
  RawConnection connection(server.address());
  std::string many = get("/1") + get("/later");
  for (int i = 0; i < 2'000; ++i) many += get("/x");  // more than is read ahead
  std::thread writer([&] { connection.send(many + get("/last", "Connection: close\r\n")); });
  std::string answers = connection.read_until("GET /1 []");
  server.on_thread([] {});
  EXPECT_TRUE(eventually([&] {
    bool arrived = false;
    server.on_thread([&] { arrived = held.size() == 1; });
    return arrived;
  }));
  server.on_thread([&] { held.at(0).send({200, {}, "LATE"}); });
  answers = connection.read_all();
  writer.join();
  EXPECT_LT(answers.find("LATE"), answers.find("GET /x []"));
  std::size_t count = 0;
  for (std::size_t at = answers.find("GET /x []"); at != answers.npos; at = answers.find("GET /x []", at + 1)) ++count;
  EXPECT_EQ(count, 2'000u);
  EXPECT_TRUE(answers.ends_with("GET /last []"));
}

TEST(Hostile, WhatFollowsAnUnansweredRequestStaysOutside) {
  std::promise<Responder> held;
  RunningServer server([&](const Request&, const Responder& responder) { held.set_value(responder); });
  RawConnection connection(server.address());
  connection.send(get("/"));
  const Responder responder = held.get_future().get();
  EXPECT_LT(connection.send_until_full(50'000'000), 20'000'000u);
}

TEST(Hostile, ARefusedClientMayFinishSending) {
  RunningServer server(echo_in_brackets);
  RawConnection connection(server.address());
  connection.send("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n");
  EXPECT_EQ(status_of(connection.read_until("}}\n")), "HTTP/1.1 413");
  server.on_thread([] {});  // the server has noticed that the answer is written
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(connection.send(std::string(10'000, 'x'))) << "no reset";
  connection.send_until_full(5'000'000);
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; })) << "but not forever";
}

TEST(Hostile, AHalfClosedClientStillGetsItsAnswer) {
  std::promise<Responder> held;
  RunningServer server([&](const Request&, const Responder& responder) { held.set_value(responder); });
  RawConnection connection(server.address());
  connection.send(get("/"));
  connection.close_half();
  const Responder responder = held.get_future().get();
  std::promise<void> gone;
  responder.on_gone([&] { gone.set_value(); });
  EXPECT_EQ(gone.get_future().wait_for(5s), std::future_status::ready);
  responder.send({200, {}, "still"});
  EXPECT_TRUE(connection.read_all().ends_with("still"));
}

TEST(Hostile, AFloodOfConnectionsIsTurnedAway) {
  ServerOptions options = with([](Limits& limits) { limits.connections = 10; });
  std::atomic<int> refused = 0;
  options.on_refused = [&](Response& answer) {
    ++refused;
    answer.headers.set("x-own", "1");
  };
  RunningServer server(echo_in_brackets, options);
  {
    std::vector<RawConnection> flood;
    for (int i = 0; i < 10; ++i) flood.emplace_back(server.address());
    EXPECT_TRUE(eventually([&] { return server.connections() == 10; }));
    for (int i = 0; i < 30; ++i) {
      RawConnection extra(server.address());
      const std::string answer = extra.read_all();
      EXPECT_EQ(status_of(answer), "HTTP/1.1 503");
      EXPECT_NE(answer.find("x-own: 1\r\n"), answer.npos);
    }
    EXPECT_EQ(refused, 30);
    EXPECT_EQ(server.connections(), 10u);
    flood.front().send(get("/in"));
    EXPECT_NE(flood.front().read_until("GET /in").find("200 OK"), std::string::npos)
        << "accepted connections are served";
  }
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
  EXPECT_EQ(client_of(server).request("GET", "/")->status, 200);
}

TEST(Hostile, OneAddressCannotTakeAllConnections) {
  Limits limits;
  limits.connections = 6;
  limits.connections_of_address = 2;
  limits.connections_of_loopback = 3;
  limits.connections_of_unix = 1;
  ConnectionCount count(limits);
  const Peer far{.address = "192.0.2.1", .unix_uid = {}};
  const Peer other{.address = "192.0.2.2", .unix_uid = {}};
  const Peer near{.address = "127.0.0.1", .unix_uid = {}, .is_loopback = true};
  const Peer near_too{.address = "127.0.0.2", .unix_uid = {}, .is_loopback = true};
  const Peer own{.address = "unix", .unix_uid = 7, .is_loopback = true};
  EXPECT_TRUE(count.add(near));
  EXPECT_TRUE(count.add(near));
  EXPECT_TRUE(count.add(near_too));
  EXPECT_FALSE(count.add(near)) << "places are reserved for other machines";
  EXPECT_FALSE(count.add(near_too)) << "this machine, whatever its address";
  EXPECT_TRUE(count.add(far));
  EXPECT_TRUE(count.add(far));
  EXPECT_FALSE(count.add(far));
  EXPECT_TRUE(count.add(other));
  EXPECT_FALSE(count.add(other)) << "all are taken";
  EXPECT_TRUE(count.add(own)) << "it has separate places";
  EXPECT_FALSE(count.add(own));
  EXPECT_EQ(count.all(), 7u);
  count.remove(far);
  EXPECT_TRUE(count.add(other));
  for (const Peer& peer : {far, other, other, near, near, near_too, own}) count.remove(peer);
  EXPECT_EQ(count.all(), 0u);
  EXPECT_EQ(count.addresses(), 0u) << "closed connections take no memory";
}

TEST(Hostile, AForeignHostOrOriginIsRefused) {
  RunningServer server(echo_in_brackets, {.names = {"berth.example"}});
  const auto status = [&](const std::string& host, const std::string& more = "") {
    return status_of(answer_to(server, "GET / HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n")).substr(9);
  };
  EXPECT_EQ(status("localhost:8080"), "200");
  EXPECT_EQ(status("berth.example"), "200");
  EXPECT_EQ(status("evil.example"), "421");
  EXPECT_EQ(status("evil.example:8080"), "421");
  EXPECT_EQ(status("127.0.0.1.evil.example"), "421");
  EXPECT_EQ(status(""), "421");
  EXPECT_EQ(status("localhost:8080", "Origin: http://localhost:8080\r\n"), "200");
  EXPECT_EQ(status("localhost:8080", "Origin: http://localhost:3000\r\n"), "403");
  EXPECT_EQ(status("localhost:8080", "Origin: http://evil.example\r\n"), "403");
  EXPECT_EQ(status("localhost:8080", "Origin: null\r\n"), "403");
}

TEST(Hostile, ContinuesABodyThatWaitsForPermission) {
  RunningServer server(echo_in_brackets);
  RawConnection connection(server.address());
  connection.send("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(connection.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  connection.send("abc");
  EXPECT_NE(connection.read_until("[abc]").find("200 OK"), std::string::npos);
  RawConnection refused(server.address());
  refused.send("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(status_of(refused.read_all()), "HTTP/1.1 413");
}

// Random bytes, and valid requests with random changes, in random pieces.
TEST(Hostile, RandomInputNeverStopsTheServer) {
  constexpr std::uint64_t seed = 20261117;
  set_assert_seed(seed);
  SeededRandom random(seed);
  const auto below = [&](std::uint64_t end) { return static_cast<std::size_t>(random.below(end)); };
  RunningServer server(echo_in_brackets, with([](Limits& limits) { limits.header_time = limits.body_time = 20ms; }));
  const std::string valid[] = {
      get("/a/b%20c?x=1&y", "Connection: keep-alive\r\nX: y\r\n"),
      "POST /p HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\nhello",
      "PUT /p HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: u\r\n\r\n"};
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    if (below(4) == 0) {
      for (std::size_t i = below(3000); i > 0; --i) bytes += static_cast<char>(below(256));
    } else {
      for (std::size_t i = 1 + below(3); i > 0; --i) bytes += valid[below(3)];
      for (std::size_t i = below(6); i > 0; --i) {
        const std::size_t at = below(bytes.size());
        if (const std::size_t kind = below(3); kind == 0)
          bytes[at] = static_cast<char>(below(256));
        else if (kind == 1)
          bytes.erase(at, 1 + below(8));
        else
          bytes.insert(at, bytes.substr(below(bytes.size()), below(30)));
        if (bytes.empty()) bytes = "x";
      }
    }
    RawConnection connection(server.address());
    while (!bytes.empty()) {
      const std::size_t piece = 1 + below(bytes.size());
      if (!connection.send(bytes.substr(0, piece))) break;
      bytes.erase(0, piece);
    }
    if (below(2) == 0) connection.close_half();
    if (below(4) != 0) {
      const std::string answer = connection.read_all(30ms);
      EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 ")) << "round " << round << ": " << answer;
    }
  }
  EXPECT_EQ(client_of(server).request("GET", "/")->status, 200);
}

}  // namespace
}  // namespace berth::http
