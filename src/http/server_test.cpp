#include "http/server.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <future>

#include "http/async.hpp"
#include "http/link.hpp"
#include "http/loop.hpp"
#include "http/running_server.hpp"

namespace berth::http {
namespace {

using namespace test;

void echo(const Request& request, const Responder& responder) {
  std::string text = request.method + ' ' + request.path;
  for (const auto& [name, value] : request.query) text += ' ' + name + '=' + value;
  responder.send({200, {{"content-type", "text/plain"}}, text + '\n' + request.body});
}

TEST(Server, AnswersWhatTheHandlerSends) {
  RunningServer server(echo);
  Client client = client_of(server);
  const auto answer = client.request("POST", "/a%20b/c?x=1&y=%2F", "the body");
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "POST /a b/c x=1 y=/\nthe body");
  EXPECT_EQ(answer->headers.get("Content-Type"), "text/plain");
}

TEST(Server, GivesTheHandlerSegmentsHeadersAndPeer) {
  std::promise<Request> seen;
  RunningServer server([&](Request request, const Responder& responder) {
    seen.set_value(std::move(request));
    responder.send({204});
  });
  const auto answer =
      client_of(server).request("GET", "/nodes/" + encoded("a/b") + "/x", {}, {.headers = {{"X-Thing", "7"}}});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 204);
  const Request request = seen.get_future().get();
  EXPECT_EQ(request.segments, (std::vector<std::string>{"nodes", "a/b", "x"}));
  EXPECT_EQ(request.headers.get("x-thing"), "7");
  EXPECT_EQ(request.headers.get("X-THING"), "7");
  EXPECT_EQ(request.peer.address, "127.0.0.1");
  EXPECT_TRUE(request.peer.is_loopback);
  EXPECT_FALSE(request.peer.is_tls);
  EXPECT_FALSE(request.peer.unix_uid);
}

TEST(Server, KeepsAConnectionForManyRequests) {
  RunningServer server(echo);
  Client client = client_of(server);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.request("GET", "/" + std::to_string(i)));
  EXPECT_EQ(server.connections(), 1u);
}

TEST(Server, EveryAnswerHasSecurityHeaders) {
  RunningServer server([](const Request& request, const Responder& responder) {
    if (request.path == "/file") return responder.send({200, {{"cache-control", "max-age=5"}}, "x"});
    responder.send(error_response(404, "not_found", "no"));
  });
  Client client = client_of(server);
  const auto answer = client.request("GET", "/none");
  ASSERT_TRUE(answer);
  const std::string policy(answer->headers.get("content-security-policy").value_or(""));
  EXPECT_TRUE(policy.starts_with("default-src 'none'")) << policy;
  for (const char* more : {"data:", "unsafe", "http", "*"}) EXPECT_EQ(policy.find(more), std::string::npos) << policy;
  EXPECT_EQ(answer->headers.get("x-content-type-options"), "nosniff");
  EXPECT_EQ(answer->headers.get("referrer-policy"), "no-referrer");
  EXPECT_EQ(answer->headers.get("cache-control"), "no-store");
  EXPECT_EQ(answer->body, "{\"schema\":1,\"error\":{\"code\":\"not_found\",\"message\":\"no\"}}\n");
  EXPECT_EQ(client.request("GET", "/file")->headers.get("cache-control"), "max-age=5");
}

TEST(Server, AHeaderValueCannotBeginAnotherHeader) {
  RunningServer server([](const Request& request, const Responder& responder) {
    responder.send({200, {{"x-name", request.query.at("name")}}, "x"});
  });
  const auto answer = client_of(server).request("GET", "/?name=" + encoded("a\r\nSet-Cookie: b=c"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->headers.get("x-name"), "aSet-Cookie: b=c");
  EXPECT_FALSE(answer->headers.get("set-cookie"));
}

TEST(Server, AnswersHeadWithoutABody) {
  RunningServer server(echo);
  Client client = client_of(server);
  const auto answer = client.request("HEAD", "/abc");
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(answer->body, "");
  EXPECT_EQ(answer->headers.get("content-length"), "10");
  EXPECT_TRUE(client.request("GET", "/"));
  EXPECT_EQ(server.connections(), 1u);
}

TEST(Server, AnAnswerMayComeLaterFromAnotherThread) {
  std::promise<Responder> held;
  RunningServer server([&](const Request&, const Responder& responder) { held.set_value(responder); });
  std::thread later([&] { held.get_future().get().send({200, {}, "late"}); });
  const auto answer = client_of(server).request("GET", "/");
  later.join();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "late");
}

TEST(Server, OnlyTheFirstAnswerCounts) {
  RunningServer server([](const Request&, const Responder& responder) {
    responder.send({200, {}, "first"});
    responder.send({500, {}, "second"});
    EXPECT_FALSE(responder.stream({}).write("third"));
  });
  Client client = client_of(server);
  EXPECT_EQ(client.request("GET", "/")->body, "first");
  EXPECT_EQ(client.request("GET", "/")->body, "first");
}

TEST(Server, AForgottenRequestIsAnsweredWith500) {
  RunningServer server([](const Request& request, const Responder&) {
    if (request.path == "/throw") throw 7;
  });
  Client client = client_of(server);
  EXPECT_EQ(client.request("GET", "/")->status, 500);
  EXPECT_EQ(client.request("GET", "/throw")->status, 500);
  EXPECT_EQ(server.connections(), 1u);
}

TEST(Server, TellsThatTheClientOfALongPollIsGone) {
  std::promise<void> arrived;
  std::promise<void> gone;
  std::optional<Responder> held;
  RunningServer server([&](const Request&, const Responder& responder) {
    held = responder;
    responder.on_gone([&] { gone.set_value(); });
    arrived.set_value();
  });
  {
    RawConnection connection(server.address());
    connection.send(get("/"));
    arrived.get_future().wait();
  }
  EXPECT_EQ(gone.get_future().wait_for(5s), std::future_status::ready);
  held->send({200});  // has no effect
  held.reset();
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST(Server, ListensOnAUnixSocketForItsUserOnly) {
  const Folder folder;
  const std::string path = folder / "socket";
  std::promise<Peer> peer;
  RunningServer server(
      [&](const Request& request, const Responder& responder) {
        peer.set_value(request.peer);
        responder.send({200, {}, "x"});
      },
      {}, "unix:" + path);
  EXPECT_EQ(server.address(), "unix:" + path);
  struct stat entry{};
  ASSERT_EQ(stat(path.c_str(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 0777, 0600u);
  auto client = Client::create({.url = "unix:" + path});
  ASSERT_TRUE(client);
  const auto answer = client->request("GET", "/");
  ASSERT_TRUE(answer) << answer.error().to_text();
  const Peer seen = peer.get_future().get();
  EXPECT_EQ(seen.unix_uid, getuid());
  EXPECT_TRUE(seen.is_loopback);
  server.join(1s);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Server, ReplacesALeftOverSocketButNoLivingOneAndNoFile) {
  const Folder folder;
  const std::string address = "unix:" + (folder / "socket");
  Server first({}, echo);
  ASSERT_TRUE(first.listen(address));
  Server second({}, echo);
  EXPECT_EQ(second.listen(address).error().code, ErrorCode::unavailable);
  // The socket file remains, as after kill -9.
  std::filesystem::rename(folder / "socket", folder / "kept");
  first.stop_listening(address);
  std::filesystem::rename(folder / "kept", folder / "socket");
  EXPECT_TRUE(second.listen(address));

  std::filesystem::create_directory(folder / "folder");
  EXPECT_EQ(second.listen("unix:" + (folder / "folder")).error().code, ErrorCode::io);
  EXPECT_EQ(second.listen("unix:/" + std::string(200, 'x')).error().code, ErrorCode::invalid_argument);
}

TEST(Server, SaysThatAPortIsInUse) {
  Server first({}, echo);
  const auto address = first.listen("127.0.0.1:0");
  ASSERT_TRUE(address);
  Server second({}, echo);
  const auto refused = second.listen(*address);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_NE(refused.error().message.find("is in use by another process"), std::string::npos);
  first.stop_listening(*address);
  EXPECT_TRUE(second.listen(*address));
}

TEST(Server, RefusesAddressesItCannotRead) {
  Server server({}, echo);
  for (const char* text : {"", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "::1:80", "[::1]",
                           "example.org:80", "unix:", "unix:relative", "[127.0.0.1]:80", "127.0.0.1:-1"})
    EXPECT_EQ(server.listen(text).error().code, ErrorCode::invalid_argument) << text;
  EXPECT_EQ(server.listen("192.0.2.1:0").error().code, ErrorCode::io);
}

TEST(Server, ListensOnSeveralAddressesAtOnce) {
  RunningServer server(echo);
  std::string second;
  server.on_thread([&] { second = server->listen("127.0.0.2:0").value(); });
  EXPECT_TRUE(client_of(server).request("GET", "/"));
  EXPECT_TRUE(Client::create({.url = "http://" + second})->request("GET", "/"));
  server.on_thread([&] { server->stop_listening(second); });
  EXPECT_EQ(Client::create({.url = "http://" + second})->request("GET", "/").error().code, ErrorCode::unavailable);
  EXPECT_TRUE(client_of(server).request("GET", "/"));
}

TEST(Server, ListensOnTheNamedAddressesOnlyAndKeepsConnections) {
  RunningServer server(echo);
  const auto answers = [](const std::string& address) {
    return Client::create({.url = "http://" + address})->request("GET", "/").has_value();
  };
  auto kept = client_of(server);
  ASSERT_TRUE(kept.request("GET", "/"));
  std::string second;
  server.on_thread([&] {
    EXPECT_EQ(server->listen_only({{"127.0.0.3:0"}, {"192.0.2.1:0"}}).error().code, ErrorCode::io);
    second = server->listen_only({{"127.0.0.1:0"}, {"127.0.0.2:0"}}).value()[1];
  });
  EXPECT_TRUE(answers(server.address())) << "the address stays, with its port";
  EXPECT_TRUE(answers(second));
  server.on_thread([&] { EXPECT_EQ(server->listen_only({{"127.0.0.2:0"}}).value(), std::vector{second}); });
  EXPECT_FALSE(answers(server.address()));
  EXPECT_TRUE(answers(second));
  EXPECT_TRUE(kept.request("GET", "/")) << "existing connections continue";
}

TEST(Server, ListensOnIpv6WhereTheMachineHasIt) {
  Server probe({}, echo);
  if (const auto address = probe.listen("[::1]:0"); !address) {
    EXPECT_EQ(address.error().code, ErrorCode::io);
    return;
  }
  RunningServer server(echo, {}, "[::1]:0");
  EXPECT_TRUE(server.address().starts_with("[::1]:")) << server.address();
  const auto answer = client_of(server).request("GET", "/");
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(answer->status, 200) << answer->body;
}

TEST(Server, RunsPostedFunctionsAndTimersOnItsThread) {
  RunningServer server(echo);
  std::promise<std::thread::id> posted;
  std::promise<std::thread::id> timed;
  server->post([&] { posted.set_value(std::this_thread::get_id()); });
  server->after(10ms, [&] { timed.set_value(std::this_thread::get_id()); });
  const auto id = posted.get_future().get();
  EXPECT_NE(id, std::this_thread::get_id());
  EXPECT_EQ(timed.get_future().get(), id);
}

TEST(Server, HandlesSignalsAgainAndAgain) {
  RunningServer server(echo);
  std::atomic<int> seen = 0;
  server.on_thread([&] { ASSERT_TRUE(server->on_signal({SIGUSR2}, [&](int number) { seen += number == SIGUSR2; })); });
  raise(SIGUSR2);
  EXPECT_TRUE(eventually([&] { return seen == 1; }));
  raise(SIGUSR2);
  EXPECT_TRUE(eventually([&] { return seen == 2; }));
}

TEST(Server, AShutdownWaitsForRequestsInProgress) {
  std::promise<Responder> held;
  RunningServer server([&](const Request& request, const Responder& responder) {
    if (request.path == "/slow") return held.set_value(responder);
    responder.send({200, {}, "quick"});
  });
  Client idle = client_of(server);
  ASSERT_TRUE(idle.request("GET", "/"));
  auto answer = std::async(std::launch::async, [&] { return client_of(server).request("GET", "/slow"); });
  const Responder responder = held.get_future().get();
  server->shutdown(5s);
  EXPECT_TRUE(eventually([&] { return server.connections() == 1; })) << "the idle connection is closed";
  responder.send({200, {}, "done"});
  const auto got = answer.get();
  ASSERT_TRUE(got) << got.error().to_text();
  EXPECT_EQ(got->body, "done");
  EXPECT_EQ(got->headers.get("connection"), "close");
  server.join(5s);
  EXPECT_EQ(idle.request("GET", "/").error().code, ErrorCode::unavailable);
}

TEST(Server, AShutdownAnswersAClientThatHasJustConnectedAndClosesIdleConnections) {
  RunningServer server([](const Request&, const Responder& responder) { responder.send({200, {}, "here"}); });
  const std::string request = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
  RawConnection used(server.address()), fresh(server.address()), silent(server.address());
  ASSERT_TRUE(used.send(request));
  EXPECT_NE(used.read_until("here").find("here"), std::string::npos);
  while (server.connections() < 3) std::this_thread::yield();
  server->shutdown(20s);
  EXPECT_TRUE(used.is_closed());
  ASSERT_TRUE(fresh.send(request));
  const std::string answer = fresh.read_all();
  EXPECT_NE(answer.find("here"), std::string::npos);
  EXPECT_NE(answer.find("connection: close"), std::string::npos);
  EXPECT_TRUE(silent.is_closed()) << "a silent connection does not delay the shutdown";
}

// The proxy keeps connections open until a shutdown begins, which happens while it handles /last.
TEST(Server, AShutdownAnswersTheNextRequestOfAClientWhoseConnectionAProxyKeeps) {
  Server* own = nullptr;
  std::atomic<bool> is_kept = true;
  RunningServer server(Server::Proxy([&](Link& link, Head& head, const Peer&) -> Async<bool> {
                         const bool keeps = is_kept;
                         const std::string more = keeps ? "" : "connection: close\r\n";
                         co_await link.write("HTTP/1.1 200 OK\r\n" + more + "content-length: 4\r\n\r\nhere");
                         if (head.target == "/last") {
                           own->shutdown(20s, 20s);
                           is_kept = false;
                           Signal is_begun(own->loop());
                           own->post([&] { is_begun.notify(); });
                           co_await is_begun.wait();
                         }
                         co_return keeps;
                       }),
                       {.serves_page = false});
  own = &*server;
  RawConnection idle(server.address()), late(server.address()), silent(server.address());
  for (RawConnection* client : {&idle, &silent}) {
    ASSERT_TRUE(client->send(get("/")));
    EXPECT_NE(client->read_until("here").find("here"), std::string::npos);
  }
  ASSERT_TRUE(late.send(get("/last")));
  EXPECT_NE(late.read_until("here").find("here"), std::string::npos);
  while (is_kept) std::this_thread::yield();
  server.on_thread([] {});  // the shutdown has begun
  for (RawConnection* client : {&idle, &late}) {
    ASSERT_TRUE(client->send(get("/")));
    const std::string answer = client->read_all();
    EXPECT_NE(answer.find("connection: close"), std::string::npos) << answer;
  }
  EXPECT_FALSE(silent.is_closed(200ms));
  server->shutdown(10s, 1ms);
  EXPECT_TRUE(silent.is_closed()) << "a second shutdown leaves less time";
}

TEST(Server, WithoutFreeFileDescriptorsClientsWaitAndTheProblemIsReportedOnce) {
  std::atomic<int> problems = 0;
  ServerOptions options;
  options.on_accept_problem = [&](const std::string&) { ++problems; };
  RunningServer server(echo, std::move(options));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> taken;
  for (int next = dup(1); next >= 0; next = dup(1)) taken.push_back(next);
  ASSERT_FALSE(taken.empty());
  ::close(taken.back());
  taken.pop_back();
  RawConnection client(server.address());
  EXPECT_TRUE(client.send(get("/")));
  EXPECT_TRUE(eventually([&] { return problems > 0; }));
  for (const int descriptor : taken) ::close(descriptor);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(client.read_until("GET /").find("GET /"), std::string::npos);
  EXPECT_EQ(problems, 1);
}

TEST(Server, AShutdownEndsAtItsDeadline) {
  std::promise<Responder> held;
  RunningServer server([&](const Request&, const Responder& responder) { held.set_value(responder); });
  RawConnection connection(server.address());
  connection.send(get("/"));
  std::optional<Responder> responder = held.get_future().get();
  server.join(50ms);
  responder->send({200});
  responder.reset();
}

TEST(Server, ASecondShutdownMayOnlyShortenTheFirst) {
  std::promise<Responder> held;
  RunningServer server([&](const Request&, const Responder& responder) { held.set_value(responder); });
  RawConnection connection(server.address());
  connection.send(get("/"));
  std::optional<Responder> responder = held.get_future().get();
  server->shutdown(1h);
  server->shutdown(2h);
  EXPECT_FALSE(connection.is_closed(200ms));
  server.join(50ms);
  responder.reset();
}

TEST(Server, AShutdownAnswersClientsOfABurstOfWhichTheLastIsBeingAccepted) {
  RunningServer server([](const Request&, const Responder& responder) { responder.send({200, {}, "here"}); });
  std::vector<RawConnection> clients;
  std::promise<void> asked;
  // The loop accepts both connections, and the shutdown comes before the second one is handled.
  server->post([&] {
    for (int i = 0; i < 2; ++i) clients.emplace_back(server.address()).send(get("/"));
    server->post([&] {
      server->shutdown(20s);
      asked.set_value();
    });
  });
  asked.get_future().get();
  for (RawConnection& client : clients) EXPECT_NE(client.read_all().find("here"), std::string::npos);
}

TEST(Server, AResponderMayOutliveItsServer) {
  std::promise<Responder> held;
  std::optional<Responder> responder;
  {
    RunningServer server([&](const Request&, const Responder& given) {
      given.on_gone([given] {});  // must not keep each other alive
      held.set_value(given);
    });
    RawConnection connection(server.address());
    connection.send(get("/"));
    responder = held.get_future().get();
  }
  responder->send({200});
}

}  // namespace
}  // namespace berth::http
