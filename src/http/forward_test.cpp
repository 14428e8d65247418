#include "http/forward.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "http/dialer.hpp"
#include "http/running_server.hpp"

namespace berth::http::test {
namespace {

// A server that passes every request on to `upstream`, over one kept connection at most.
class Forwarder {
 public:
  explicit Forwarder(const std::string& upstream, ServerOptions options = {.serves_page = false})
      : dialer_(*Dialer::create({.url = upstream})),
        server_([this](Link& client, Head& head, const Peer&) { return pass_on(client, head); }, std::move(options)) {}

  ~Forwarder() {
    server_.join(0ms);
    kept_.reset();  // must be destroyed before its loop
  }

  std::string url() const { return server_.url(); }
  const std::string& address() const { return server_.address(); }
  std::size_t connections() { return server_.connections(); }
  ForwardOptions options;
  std::atomic<int> dialed = 0;

 private:
  Async<bool> pass_on(Link& client, Head& head) {
    if (!kept_) {
      auto connected = co_await dialer_.connect(server_->loop());
      if (!connected) co_return false;
      ++dialed;
      kept_ = *std::move(connected);
    }
    auto server = std::move(kept_);
    ForwardOptions with = options;
    with.text = request_text(head, end_to_end(head.headers), client.body());
    const Forwarded forwarded = co_await forward(client, head, *server, with);
    if (forwarded.is_server_kept) kept_ = std::move(server);
    if (forwarded.end != Forwarded::End::done && !forwarded.reached_client)
      co_await client.write("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    co_return forwarded.is_client_kept;
  }

  Dialer dialer_;
  std::unique_ptr<Link> kept_;
  RunningServer server_;
};

void echo(const Request& request, const Responder& responder) {
  Response response{200, {{"x-method", request.method}, {"x-path", request.path}}, request.body};
  for (const auto& [name, value] : request.headers) response.headers.add("got-" + name, value);
  responder.send(std::move(response));
}

TEST(Forward, PassesRequestsAndAnswersOnOverKeptConnections) {
  RunningServer upstream(echo);
  Forwarder proxy(upstream.url());
  Client client = *Client::create({.url = proxy.url()});
  for (int i = 0; i < 20; ++i) {
    const auto answer =
        client.request("POST", "/a?b=" + std::to_string(i), "body " + std::to_string(i), {.headers = {{"x-own", "1"}}});
    ASSERT_TRUE(answer) << answer.error().to_text();
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, "body " + std::to_string(i));
    EXPECT_EQ(answer->headers.get("x-path"), "/a");
    EXPECT_EQ(answer->headers.get("got-x-own"), "1");
  }
  EXPECT_EQ(proxy.dialed, 1);
  const auto none = client.request("GET", "/");
  ASSERT_TRUE(none);
  EXPECT_EQ(none->body, "");
  EXPECT_FALSE(none->headers.get("got-content-length"));
}

TEST(Forward, LargeBodiesGoBothWays) {
  RunningServer upstream(
      [](const Request& request, const Responder& responder) { responder.send({200, {}, request.body}); },
      {.limits = {.body_bytes = 50'000'000}});
  Forwarder proxy(upstream.url());
  std::string body(20'000'000, 'x');
  for (std::size_t i = 0; i < body.size(); i += 1000) body[i] = static_cast<char>('a' + i / 1000 % 26);
  const auto answer = Client::create({.url = proxy.url()})->request("POST", "/", body);
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_TRUE(answer->body == body);
}

TEST(Forward, AnAnswerToHeadHasItsLengthAndNoBody) {
  RunningServer upstream([](const Request&, const Responder& responder) { responder.send({200, {}, "12345"}); });
  Forwarder proxy(upstream.url());
  Client client = *Client::create({.url = proxy.url()});
  for (int i = 0; i < 2; ++i) {
    const auto answer = client.request("HEAD", "/");
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->headers.get("content-length"), "5");
    EXPECT_EQ(answer->body, "");
  }
  EXPECT_EQ(proxy.dialed, 1);
}

TEST(Forward, AnAnswerToHeadWithoutALengthGetsNone) {
  RunningServer upstream(Server::Proxy([](Link& link, Head&, const Peer&) -> Async<bool> {
                           co_await link.write("HTTP/1.1 200 OK\r\nx-own: 1\r\n\r\n");
                           co_return true;
                         }),
                         {.serves_page = false});
  Forwarder proxy(upstream.url());
  RawConnection client(proxy.address());
  for (int i = 0; i < 2; ++i) {
    client.send("HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 200 OK\r\nx-own: 1\r\n\r\n");
  }
  EXPECT_EQ(proxy.dialed, 1);
}

TEST(Forward, HeadersOfOneConnectionAreNotPassedOn) {
  const Headers passed = end_to_end({{"Connection", "close, X-Mine"},
                                     {"x-mine", "1"},
                                     {"Keep-Alive", "5"},
                                     {"TE", "trailers"},
                                     {"Upgrade", "h2c"},
                                     {"Transfer-Encoding", "chunked"},
                                     {"X-Other", "2"}});
  ASSERT_EQ(passed.size(), 1U);
  EXPECT_EQ(passed.get("x-other"), "2");
  const Headers several =
      end_to_end({{"Connection", " close ,X-A"}, {"connection", ",\tx-b\t,"}, {"x-a", ""}, {"X-B", ""}});
  EXPECT_EQ(several.size(), 0U);
}

// A request may have as many of both as fit into its head, and is forwarded up to 20 times.
TEST(Forward, HeadersAreNotComparedWithEachWordOfConnection) {
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += "a,";
  Headers headers{{"connection", std::move(words)}};
  for (int i = 0; i < 20'000; ++i) headers.add("b", "");
  const TimePoint began = real_clock().now();
  EXPECT_EQ(end_to_end(std::move(headers)).size(), 20'000U);
  EXPECT_LT(real_clock().now() - began, 10s) << "two billion comparisons take longer";
}

TEST(Forward, NoProtocolButThatOfWebSocketsIsPassedOn) {
  const auto asks = [](const char* connection, const char* upgrade) {
    return asks_for_upgrade({{"connection", connection}, {"upgrade", upgrade}});
  };
  EXPECT_TRUE(asks("keep-alive, Upgrade", "WebSocket"));
  EXPECT_FALSE(asks("keep-alive", "websocket"));
  EXPECT_FALSE(asks("Upgrade, HTTP2-Settings", "h2c"));
  EXPECT_FALSE(asks("Upgrade", "h2c, websocket"));
  EXPECT_TRUE(asks_for_upgrade({{"connection", "keep-alive"}, {"connection", "upgrade"}, {"upgrade", "websocket"}}));
  Head head;
  head.method = "GET";
  head.target = "/";
  head.headers = {{"connection", "upgrade"}, {"upgrade", "h2c"}};
  EXPECT_EQ(request_text(head, end_to_end(head.headers), {.length = 0}), "GET / HTTP/1.1\r\n\r\n");
}

// Each write costs about a tenth of a request.
TEST(Forward, WhatComesTogetherGoesOnInOneWrite) {
  for (const std::string_view body :
       {"content-length: 5\r\n\r\nabcde", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"}) {
    asio::io_context context;
    asio::ip::tcp::acceptor acceptor(context, {asio::ip::make_address("127.0.0.1"), 0});
    Forwarder proxy("http://127.0.0.1:" + std::to_string(acceptor.local_endpoint().port()));
    asio::ip::tcp::socket client(context);
    std::promise<std::size_t> before;
    proxy.options.on_server_free = [&] { before.set_value(client.available()); };  // before the last write
    const std::string port = proxy.address().substr(proxy.address().rfind(':') + 1);
    client.connect({asio::ip::make_address("127.0.0.1"), static_cast<std::uint16_t>(std::stoi(port))});
    client.send(asio::buffer(get("/")));
    asio::ip::tcp::socket server = acceptor.accept();
    char buffer[4096];
    server.receive(asio::buffer(buffer));
    server.send(asio::buffer("HTTP/1.1 200 OK\r\n" + std::string(body)));
    EXPECT_EQ(before.get_future().get(), 0U);
    const std::string got(buffer, client.receive(asio::buffer(buffer)));
    EXPECT_TRUE(got.ends_with(body)) << got;
  }
}

TEST(Forward, PiecesOfAStreamComeAsTheyAreWritten) {
  std::promise<Stream> begun;
  RunningServer upstream([&](const Request&, const Responder& responder) { begun.set_value(responder.stream({})); });
  Forwarder proxy(upstream.url());
  std::promise<void> first;
  std::string all;
  std::thread reader([&] {
    const auto read = Client::create({.url = proxy.url()})->stream_bytes("/", [&](std::string_view bytes) {
      if (all.empty()) first.set_value();
      all += bytes;
      return true;
    });
    EXPECT_TRUE(read);
  });
  const Stream stream = begun.get_future().get();
  stream.write("one");
  first.get_future().get();
  stream.write("two");
  stream.close();
  reader.join();
  EXPECT_EQ(all, "onetwo");
}

// The client sends one request, and `ahead` more without waiting for the answer.
void expect_the_request_ends_with_its_client(int ahead, Duration within) {
  std::promise<void> gone;
  RunningServer upstream([&, held = std::vector<Responder>()](const Request&, const Responder& responder) mutable {
    held.push_back(responder);
    responder.on_gone([&] { gone.set_value(); });
  });
  Forwarder proxy(upstream.url());
  {
    RawConnection client(proxy.address());
    client.send(get("/"));
    for (int i = 0; i < ahead; ++i) client.send(get("/next"));
    EXPECT_TRUE(eventually([&] { return upstream.connections() == 1; }));
  }
  EXPECT_EQ(gone.get_future().wait_for(within), std::future_status::ready);
  EXPECT_TRUE(eventually([&] { return proxy.connections() == 0; }));
}

TEST(Forward, AClientThatGoesEndsTheRequestOfTheServer) { expect_the_request_ends_with_its_client(0, 1s); }

TEST(Forward, AClientThatHasSentMoreThanABufferAheadAndGoesEndsTheRequestOfTheServer) {
  expect_the_request_ends_with_its_client(1000, 10s);
}

TEST(Forward, AnAnswerThatComesTogetherWithThePermissionToSendTheBodyEndsTheRequest) {
  asio::io_context context;
  asio::ip::tcp::acceptor acceptor(context, {asio::ip::make_address("127.0.0.1"), 0});
  Forwarder proxy("http://127.0.0.1:" + std::to_string(acceptor.local_endpoint().port()));
  proxy.options.waits_for_continue = true;
  proxy.options.client_time = 600s;
  RawConnection client(proxy.address());
  client.send("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n");
  asio::ip::tcp::socket server = acceptor.accept();
  char buffer[4096];
  server.receive(asio::buffer(buffer));
  server.send(
      asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n"
                                    "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")));
  EXPECT_TRUE(client.read_until("\r\n\r\n").starts_with("HTTP/1.1 403 "));
  EXPECT_TRUE(client.is_closed(30s)) << "it does not wait for the body";
}

TEST(Forward, AServerThatFailsIsNoticed) {
  // It closes the connection, says something else, or stops in the middle of its answer.
  for (const std::string_view answer :
       {"", "garbage\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno chunk\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"}) {
    asio::io_context context;
    asio::ip::tcp::acceptor acceptor(context, {asio::ip::make_address("127.0.0.1"), 0});
    Forwarder proxy("http://127.0.0.1:" + std::to_string(acceptor.local_endpoint().port()));
    std::thread server([&] {
      asio::ip::tcp::socket socket = acceptor.accept();
      char buffer[4096];
      ErrorValue error;
      socket.read_some(asio::buffer(buffer), error);
      if (!answer.empty()) socket.write_some(asio::buffer(answer), error);
    });
    RawConnection client(proxy.address());
    client.send(get("/"));
    const std::string got = client.read_all();
    server.join();
    if (answer.ends_with("half"))
      EXPECT_TRUE(got.starts_with("HTTP/1.1 200") && got.ends_with("half")) << got;
    else
      EXPECT_TRUE(got.starts_with("HTTP/1.1 502")) << got;
  }
}

TEST(Forward, AChangeOfProtocolPassesEverythingOn) {
  asio::io_context context;
  asio::ip::tcp::acceptor acceptor(context, {asio::ip::make_address("127.0.0.1"), 0});
  Forwarder proxy("http://127.0.0.1:" + std::to_string(acceptor.local_endpoint().port()));
  std::string head;
  std::thread server([&] {
    asio::ip::tcp::socket socket = acceptor.accept();
    char buffer[4096];
    ErrorValue error;
    while (head.find("\r\n\r\n") == head.npos) head.append(buffer, socket.read_some(asio::buffer(buffer), error));
    const std::string_view answer =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello";
    socket.write_some(asio::buffer(answer), error);
    while (true) {
      const std::size_t bytes = socket.read_some(asio::buffer(buffer), error);
      if (error) return;
      socket.write_some(asio::buffer(buffer, bytes), error);
    }
  });
  {
    RawConnection client(proxy.address());
    client.send(get("/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"));
    const std::string answer = client.read_until("hello");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 101 ")) << answer;
    EXPECT_NE(answer.find("upgrade: websocket\r\n"), answer.npos);
    client.send("\x81\x02hi");
    EXPECT_NE(client.read_until("hi").find("hi"), std::string::npos);
  }
  server.join();
  EXPECT_NE(head.find("upgrade: websocket\r\n"), head.npos) << head;
  EXPECT_NE(head.find("sec-websocket-key: x\r\n"), head.npos) << head;
}

TEST(Forward, WhatNobodyReadsIsNotCollected) {
  std::promise<Stream> begun;
  RunningServer upstream(
      [&](const Request&, const Responder& responder) {
        begun.set_value(responder.stream({.reader_may_pause = true}));
      },
      {.limits = {.stream_bytes = 200'000'000}});
  Forwarder proxy(upstream.url());
  RawConnection client(proxy.address(), 4096);
  client.send(get("/"));
  const Stream stream = begun.get_future().get();
  stream.write(std::string(100'000'000, 'x'));
  EXPECT_TRUE(eventually([&] {
    const std::size_t before = stream.buffered_bytes();
    std::this_thread::yield();
    return before == stream.buffered_bytes() && before < 100'000'000;
  }));
  EXPECT_GT(stream.buffered_bytes(), 60'000'000U) << "the rest waits at its source";
}

}  // namespace
}  // namespace berth::http::test
