#include "http/client.hpp"

#include <atomic>
#include <future>
#include <mutex>
#include <vector>

#include "berth/clock.hpp"
#include "http/running_server.hpp"

namespace berth::http {
namespace {

using namespace test;

TEST(Client, RefusesUrlsItCannotUse) {
  for (const char* url :
       {"", "127.0.0.1:80", "ftp://a", "http://", "http://a:b", "http://a:0", "http://a:99999", "http://a/path",
        "http://a b", "unix:", "unix:x", "http://[::1", "https://user@host", "http://a?x", "http://a#x", "http://a,b"})
    EXPECT_EQ(Client::create({.url = url}).error().code, ErrorCode::invalid_argument) << url;
  for (const char* url : {"http://a", "http://a:80/", "https://[::1]:8443", "unix:/x/y", "http://127.0.0.1:1"})
    EXPECT_TRUE(Client::create({.url = url})) << url;
  EXPECT_FALSE(Client::create({.url = "http://a", .token = "a\r\nb"}));
  EXPECT_FALSE(Client::create({.url = "https://a", .fingerprint = "12"}));
  EXPECT_FALSE(Client::create({.url = "https://a", .ca_file = "/no/such/file"}));
}

TEST(Client, APasswordInAUrlIsNotRepeated) {
  const auto refused = Client::create({.url = "https://user:geheim@host"});
  EXPECT_EQ(refused.error().to_text().find("geheim"), std::string::npos);
}

TEST(Client, RefusesMalformedRequests) {
  RunningServer server([](const Request&, const Responder& responder) { responder.send({200}); });
  Client client = client_of(server);
  for (const char* target : {"", "x", "/a b", "/a\r\nX: y", "/\xc3\xa4", "/a#b"})
    EXPECT_EQ(client.request("GET", target).error().code, ErrorCode::invalid_argument) << target;
  EXPECT_EQ(client.request("GET /", "/").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(client.request("GET", "/", {}, {.headers = {{"a", "b\r\nc: d"}}}).error().code,
            ErrorCode::invalid_argument);
}

TEST(Client, SaysThatNoServerListens) {
  std::string address;
  {
    Server server({}, Server::Handler());
    address = *server.listen("127.0.0.1:0");
  }
  auto client = Client::create({.url = "http://" + address});
  const auto refused = client->request("GET", "/");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_EQ(refused.error().message, "cannot connect to http://" + address + ": Connection refused");
  const Folder folder;
  EXPECT_EQ(Client::create({.url = "unix:" + (folder / "none")})->request("GET", "/").error().code,
            ErrorCode::unavailable);
}

TEST(Client, SendsTheTokenOverASocketAndNeverShowsIt) {
  const Folder folder;
  std::promise<std::string> seen;
  std::string url;
  std::optional<Client> client;
  {
    RunningServer server(
        [&](const Request& request, const Responder& responder) {
          seen.set_value(std::string(request.headers.get("authorization").value_or("")));
          responder.send({200});
        },
        {}, "unix:" + (folder / "socket"));
    client = *Client::create({.url = server.address(), .token = "geheim"});
    ASSERT_TRUE(client->request("GET", "/"));
  }
  EXPECT_EQ(seen.get_future().get(), "Bearer geheim");
  EXPECT_EQ(client->request("GET", "/").error().to_text().find("geheim"), std::string::npos);
  EXPECT_EQ(client->url().find("geheim"), std::string::npos);
}

TEST(Client, GivesUpAtItsTimeout) {
  std::promise<Responder> held;
  RunningServer server([&](const Request&, const Responder& responder) { held.set_value(responder); });
  Client client = client_of(server);
  const auto late = client.request("GET", "/", {}, {.timeout = 50ms});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::timeout);
}

TEST(Client, ACallThatIsOutOfTimeOnAKeptConnectionIsNotSentAgain) {
  const Folder folder;
  std::atomic<int> count = 0;
  std::mutex mutex;
  std::vector<Responder> held;
  RunningServer server(
      [&](const Request& request, const Responder& responder) {
        ++count;
        if (request.path != "/hold") return responder.send({200});
        const std::lock_guard lock(mutex);
        held.push_back(responder);
      },
      {}, "unix:" + (folder / "socket"));
  auto client = Client::create({.url = server.address()});
  for (int round = 1; round <= 3; ++round) {
    EXPECT_TRUE(client->request("GET", "/"));
    EXPECT_EQ(client->request("GET", "/hold", {}, {.timeout = 20ms}).error().code, ErrorCode::timeout);
    EXPECT_TRUE(client->request("GET", "/"));
    EXPECT_TRUE(eventually([&] { return count >= 3 * round; }));
    EXPECT_EQ(count, 3 * round);
  }
}

TEST(Client, AnotherThreadStopsACall) {
  std::promise<Responder> held;
  RunningServer server([&](const Request& request, const Responder& responder) {
    if (request.path == "/held") return held.set_value(responder);
    responder.send({200});
  });
  Client client = client_of(server);
  std::stop_source stop;
  std::thread stopper([&] {
    held.get_future().wait();
    stop.request_stop();
  });
  const auto stopped = client.request("GET", "/held", {}, {.timeout = 0ms, .stop = stop.get_token()});
  stopper.join();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
  EXPECT_EQ(client.request("GET", "/", {}, {.stop = stop.get_token()}).error().code, ErrorCode::cancelled);
  EXPECT_TRUE(client.request("GET", "/")) << "the next call without a stop works";
}

TEST(Client, AnotherThreadStopsAStream) {
  std::promise<Stream> begun;
  RunningServer server([&](const Request&, const Responder& responder) { begun.set_value(responder.stream({})); });
  std::stop_source stop;
  std::thread stopper([&] {
    begun.get_future().wait();
    stop.request_stop();
  });
  const auto stopped = client_of(server).stream_bytes("/", [](std::string_view) { return true; },
                                                      {.timeout = 0ms, .stop = stop.get_token()});
  stopper.join();
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
}

TEST(Client, ConnectsAgainAfterTheServerClosedTheConnection) {
  RunningServer server(
      [](const Request& request, const Responder& responder) { responder.send({200, {}, request.body}); },
      {.limits = {.idle_time = 50ms}});
  Client client = client_of(server);
  for (int i = 0; i < 3; ++i) {
    const auto answer = client.request("POST", "/", "body");
    ASSERT_TRUE(answer) << answer.error().to_text();
    EXPECT_EQ(answer->body, "body");
    EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
  }
}

TEST(Client, SurvivesARestartOfTheServer) {
  const auto answer = [](const Request&, const Responder& responder) { responder.send({200, {}, "x"}); };
  auto first = std::make_unique<RunningServer>(answer);
  const std::string address = first->address();
  Client client = client_of(*first);
  ASSERT_TRUE(client.request("GET", "/"));
  first.reset();
  EXPECT_EQ(client.request("GET", "/").error().code, ErrorCode::unavailable);
  RunningServer second(answer, {}, address);
  EXPECT_TRUE(client.request("GET", "/"));
}

TEST(Client, ALongAnswerIsAnError) {
  RunningServer server([](const Request& request, const Responder& responder) {
    if (request.path == "/whole") return responder.send({200, {}, std::string(1001, 'x')});
    const Stream stream = responder.stream({});
    stream.write(std::string(1001, 'x'));
    stream.close();
  });
  auto client = Client::create({.url = server.url(), .body_bytes_max = 1000});
  for (const char* path : {"/whole", "/stream"}) {
    const auto answer = client->request("GET", path);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::io);
    EXPECT_NE(answer.error().message.find("longer than 1000 bytes"), std::string::npos) << answer.error().message;
  }
}

TEST(Client, ALargeBodyGoesBothWays) {
  RunningServer server(
      [](const Request& request, const Responder& responder) { responder.send({200, {}, request.body}); });
  std::string body(4 * 1024 * 1024, 'x');
  for (std::size_t i = 0; i < body.size(); i += 997) body[i] = static_cast<char>(i);
  const auto answer = client_of(server).request("PUT", "/", body);
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_TRUE(answer->body == body);
}

TEST(Client, ResolvesNames) {
  RunningServer server([](const Request&, const Responder& responder) { responder.send({200, {}, "x"}); });
  const std::string port = server.address().substr(server.address().rfind(':'));
  const auto answer = Client::create({.url = "http://localhost" + port})->request("GET", "/");
  EXPECT_TRUE(answer) << answer.error().to_text();
}

TEST(Client, ManyThreadsWithAClientEach) {
  RunningServer server(
      [](const Request& request, const Responder& responder) { responder.send({200, {}, request.path}); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Client client = client_of(server);
      for (int i = 0; i < 50; ++i) {
        const std::string path = '/' + std::to_string(t) + '/' + std::to_string(i);
        EXPECT_EQ(client.request("GET", path)->body, path);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace berth::http
