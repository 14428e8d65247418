#include "cli/server_access.hpp"

#include <sys/stat.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <optional>

#include "cli/test_server.hpp"
#include "cli/text/fleet_text.hpp"
#include "world/files.hpp"
#include "world/runtime_folder.hpp"

namespace berth::cli {

using namespace world;

void add_cordon(const Verb& command);
void add_delete(const Verb& command);
void add_drain(const Verb& command);
void add_events(const Verb& command);
void add_logs(const Verb& command);
void add_nodes(const Verb& command);
void add_replicas(const Verb& command);
void add_rollout(const Verb& command);
void add_status(const Verb& command);
void add_token(const Verb& command);
void add_uncordon(const Verb& command);
void add_why(const Verb& command);

namespace {

namespace fs = std::filesystem;

const std::string nodes_answer =
    R"({"schema":1,"revision":7,"nodes":[{"name":"gpu-1","health":"healthy","added_later":[1]}]})";
const std::string node_answer =
    R"({"schema":1,"revision":7,"node":{"name":"gpu-1","health":"healthy","intent":"draining",
 "devices":[{"id":"GPU-ea3b","backend":"cuda","ordinal":0},{"id":"GPU-ea99","backend":"cuda","ordinal":1}],
 "replicas":[{"name":"chat/0","state":"ready","devices":["GPU-ea3b"]},{"name":"chat/1","state":"stopping","devices":["GPU-ea99"]}]}})";
const std::string empty_node = R"({"schema":1,"node":{"name":"gpu-1","replicas":[]}})";
const std::string deployment_answer =
    R"({"schema":1,"version":44,"deployment":{"name":"chat","state":"paused","reason":"looked at"}})";

// Without the variables of the user who runs the test, and with a state folder of its own.
class ServerAccessTest : public testing::Test {
 protected:
  ServerAccessTest() {
    std::string name = (fs::temp_directory_path() / "berth-access-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    for (const char* variable : {"BERTH_SERVER", "BERTH_TOKEN_FILE", "BERTH_CA_FILE"}) unsetenv(variable);
    setenv("BERTH_RUNTIME_DIR", folder_.c_str(), 1);
  }
  ~ServerAccessTest() override {
    for (const char* variable : {"BERTH_SERVER", "BERTH_TOKEN_FILE", "BERTH_RUNTIME_DIR"}) unsetenv(variable);
    fs::remove_all(folder_);
  }

  std::string write(const std::string& name, const std::string& text, mode_t mode) const {
    const std::string path = folder_ + "/" + name;
    EXPECT_TRUE(write_private_text(path, text));
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  static Result<Answer> get(const ServerArguments& arguments, const std::string& target = "/api/v1/nodes") {
    return ServerAccess::open(arguments).and_then([&](ServerAccess server) { return server.call({target}); });
  }

  std::string folder_;
};

TEST_F(ServerAccessTest, WithoutAServerItSaysHowToStartOne) {
  const Result<Answer> answer = get({});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().to_text(),
            "no berth server is running here; start one with berth serve, or set BERTH_SERVER");
  EXPECT_EQ(exit_status(answer.error()), environment_error);
}

TEST_F(ServerAccessTest, AServerThatIsStartingIsWaitedForOnce) {
  std::optional<TestServer> server;
  const std::string folder = state_folder("server").value();
  Result<ServerAccess> access = ServerAccess::open({});
  auto asking = std::async(std::launch::async, [&] { return access->call({"/api/v1/nodes"}); });
  EXPECT_EQ(asking.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout) << "the call waits";
  server.emplace(TestServer::Answers{{"GET /api/v1/nodes", {ok_answer(nodes_answer)}}}, "unix:" + folder + "/socket");
  const Result<Answer> answer = asking.get();
  EXPECT_TRUE(answer) << answer.error().to_text();
  server.reset();
  const TimePoint before = real_clock().now();
  EXPECT_FALSE(access->call({"/api/v1/nodes"})) << "the server has ended";
  EXPECT_LT(real_clock().now() - before, start_wait);
}

TEST_F(ServerAccessTest, TheSocketOfTheOwnServerIsTheDefault) {
  const Result<std::string> place = state_folder("server");
  ASSERT_TRUE(place);
  const TestServer server({{"GET /api/v1/nodes", {ok_answer(nodes_answer)}}}, "unix:" + *place + "/socket");
  EXPECT_TRUE(get({}));
  setenv("BERTH_SERVER", "http://127.0.0.1:1", 1);
  EXPECT_FALSE(get({})) << "the variable comes before the socket";
  EXPECT_TRUE(get({.server = server.url()})) << "the option comes before the variable";
}

TEST_F(ServerAccessTest, ATokenIsReadFromAPrivateFileOnly) {
  const TestServer server({{"GET /api/v1/nodes", {ok_answer(nodes_answer)}}}, "unix:" + folder_ + "/socket");
  setenv("BERTH_TOKEN_FILE", write("open", "secret-1\n", 0644).c_str(), 1);
  const Result<Answer> refused = get(server.arguments());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().to_text().find("is open to other users; make it private: chmod 600"), std::string::npos);
  EXPECT_EQ(refused.error().to_text().find("secret"), std::string::npos);
  EXPECT_EQ(exit_status(refused.error()), wrong_input);
  EXPECT_TRUE(server.requests().empty());

  setenv("BERTH_TOKEN_FILE", write("private", "secret-2\n", 0600).c_str(), 1);
  ASSERT_TRUE(get(server.arguments()));
  EXPECT_EQ(server.requests().back().headers.get("authorization"), "Bearer secret-2");
  for (const std::string& bad : {folder_ + "/none", folder_, write("empty", "\n", 0600)}) {
    setenv("BERTH_TOKEN_FILE", bad.c_str(), 1);
    EXPECT_FALSE(get(server.arguments())) << bad;
  }
}

TEST_F(ServerAccessTest, ATokenIsNotSentUnencryptedToAnotherMachine) {
  setenv("BERTH_TOKEN_FILE", write("private", "secret", 0600).c_str(), 1);
  for (const char* url : {"http://10.0.0.1:8080", "http://localhost.example:80", "http://[2001:db8::1]:80/"}) {
    const Result<ServerAccess> opened = ServerAccess::open({.server = url});
    ASSERT_FALSE(opened) << url;
    EXPECT_NE(opened.error().message.find("not encrypted"), std::string::npos);
  }
  for (const char* url : {"http://127.0.0.1:8080", "http://localhost:80", "http://[::1]:80", "https://10.0.0.1:8443"})
    EXPECT_TRUE(ServerAccess::open({.server = url})) << url;
}

TEST_F(ServerAccessTest, RefusalsKeepTheirWordsAndDecideTheStatus) {
  const auto status = [](int http, const std::string& code) {
    return exit_status(error_of_answer(http, http::error_response(http, code, "no", "do that").body, "here"));
  };
  EXPECT_EQ(status(400, "invalid_argument"), wrong_input);
  EXPECT_EQ(status(400, "newer_schema"), wrong_input);
  EXPECT_EQ(status(404, "not_found"), wrong_input);
  EXPECT_EQ(status(413, "too_large"), wrong_input);
  for (const char* code :
       {"conflict", "not_logged_in", "forbidden", "too_many", "internal", "unavailable", "of_a_newer_version"})
    EXPECT_EQ(status(409, code), environment_error) << code;
  EXPECT_EQ(
      error_of_answer(409, http::error_response(409, "conflict", "it moved", "plan again").body, "here").to_text(),
      "it moved; plan again");
  EXPECT_EQ(error_of_answer(401, http::error_response(401, "not_logged_in", "who are you?").body, "here").advice,
            "set BERTH_TOKEN_FILE to a file with a token from berth token add");
  EXPECT_EQ(error_of_answer(502, "<html>", "http://here").message, "http://here is not a Berth server (status 502)");
}

TEST_F(ServerAccessTest, WhatIsNoAnswerOfOursIsRefused) {
  for (const char* body : {"", "<html>", "[1]", "{}", R"({"schema":2})"}) {
    const TestServer server({{"GET /api/v1/nodes", {ok_answer(body)}}});
    EXPECT_FALSE(get(server.arguments())) << body;
  }
}

TEST_F(ServerAccessTest, JsonIsTheAnswerWithoutChange) {
  const TestServer server(
      {{"GET /api/v1/nodes", {ok_answer(nodes_answer)}}, {"GET /api/v1/nodes/gpu-1", {ok_answer(node_answer)}}});
  const Outcome json = run_words({"nodes", "--json", "--server", server.url()}, add_nodes);
  EXPECT_EQ(json.out, nodes_answer + "\n");
  EXPECT_EQ(json.status, done);
  EXPECT_EQ(run_words({"nodes", "gpu-1", "--json", "--server", server.url()}, add_nodes).out, node_answer + "\n");
  const Outcome none = run_words({"nodes", "a/b ?", "--server", server.url()}, add_nodes);
  EXPECT_EQ(none.status, wrong_input);
  EXPECT_EQ(none.err, "berth: there is no such thing; look for another\n");
  EXPECT_EQ(server.requests().back().segments.back(), "a/b ?") << "a name is one segment";
}

TEST_F(ServerAccessTest, ReplicasOfADeploymentAreAListAndOneExplainsItself) {
  const TestServer server(
      {{"GET /api/v1/replicas", {ok_answer(R"({"schema":1,"replicas":[],"pending":[]})")}},
       {"GET /api/v1/replicas/chat/0", {ok_answer(R"({"schema":1,"name":"chat/0","why":{"text":"it runs"}})")}}});
  EXPECT_EQ(run_words({"replicas", "chat", "--server", server.url()}, add_replicas).out, "there are no replicas\n");
  EXPECT_EQ(server.requests().back().query.at("deployment"), "chat");
  EXPECT_EQ(run_words({"replicas", "chat/0", "--server", server.url()}, add_replicas).out, "chat/0: it runs\n");
  EXPECT_EQ(run_words({"why", "replica", "chat/0", "--server", server.url()}, add_why).out, "chat/0: it runs\n");
  for (const char* name : {"chat/", "/0", "chat/x", "chat"})
    EXPECT_EQ(run_words({"why", "replica", name, "--server", server.url()}, add_why).status, wrong_input) << name;
  EXPECT_EQ(run_words({"why", "j1", "chat/0", "--server", server.url()}, add_why).status, wrong_input);
}

TEST_F(ServerAccessTest, LogsOfAReplicaAreItsBytes) {
  const std::string bytes = "one\ntwo\x1b\r\xff\nthree";
  http::Response text{200, {{"content-type", "text/plain; charset=utf-8"}}, bytes};
  const TestServer server({{"GET /api/v1/replicas/chat/0/logs", {text}}});
  const Outcome logs = run_words({"logs", "chat/0", "--tail", "5", "-f", "--server", server.url()}, add_logs);
  EXPECT_EQ(logs.out, bytes);
  EXPECT_EQ(logs.status, done);
  EXPECT_EQ(logs.err, "berth: the output has ended: chat/0 is gone\n");
  EXPECT_EQ(server.requests().front().query,
            (std::map<std::string, std::string, std::less<>>{{"follow", "1"}, {"tail", "5"}}));
  EXPECT_EQ(run_words({"logs", "chat/0", "--server", server.url()}, add_logs).out, bytes);
  EXPECT_EQ(run_words({"logs", "chat/1", "--server", server.url()}, add_logs).status, wrong_input);
}

TEST_F(ServerAccessTest, EventsAreFollowedOverTheStreamAndAfterItsEnd) {
  const auto event = [](int id, const std::string& subject) {
    const std::string number = std::to_string(id);
    return R"({"id":)" + number + R"(,"at_ms":1794873600000,"kind":"ready","actor":"node:a","subject":")" + subject +
           R"(","text":"number )" + number + R"("})";
  };
  const auto events = [&](int id) {
    return ok_answer(R"({"schema":1,"events":[)" + event(id, "chat/0") + R"(],"last":)" + std::to_string(id) + "}");
  };
  const auto stream_event = [&](int id, const std::string& subject) {
    return to_text(http::Event{"event", std::to_string(id), event(id, subject)});
  };
  const http::Response stream{200,
                              {{"content-type", "text/event-stream"}},
                              to_text(http::Event{"change", "", R"({"revision":7})"}) + stream_event(1, "chat/0") +
                                  stream_event(2, "chat/0") + stream_event(3, "draw/0") + stream_event(4, "chat/0")};
  const TestServer server({{"GET /api/v1/events", {events(1), events(5)}},
                           {"GET /api/v1/stream", {stream, http::error_response(404, "not_found", "that is all")}}});
  const Outcome followed = run_words({"events", "-f", "--subject", "chat", "--server", server.url()}, add_events);
  std::string expected;
  for (const char* number : {"1", "2", "4", "5"})
    expected += "2026-11-17 00:00:00  ready       chat/0            number " + std::string(number) + " (node:a)\n";
  EXPECT_EQ(followed.out, expected);
  EXPECT_EQ(followed.err, "berth: that is all\n");
  ASSERT_EQ(server.requests().size(), 4u);
  EXPECT_FALSE(server.requests()[0].query.contains("after"));
  EXPECT_EQ(server.requests()[1].headers.get("last-event-id"), "1");
  EXPECT_EQ(server.requests()[2].query.at("after"), "4");
}

TEST_F(ServerAccessTest, ChangesAreWhatTheApiTakes) {
  const TestServer server(
      {{"POST /api/v1/deployments/chat/rollout", {ok_answer(deployment_answer)}},
       {"GET /api/v1/deployments/chat", {ok_answer(deployment_answer)}},
       {"DELETE /api/v1/deployments/chat", {ok_answer(R"({"schema":1,"version":43,"removed":"chat"})")}},
       {"DELETE /api/v1/nodes/gpu-1", {ok_answer(R"({"schema":1,"removed":"gpu-1"})")}},
       {"DELETE /api/v1/tokens/t3", {ok_answer(R"({"schema":1,"removed":"t3"})")}}});
  const auto last = [&] { return server.requests().back().body; };
  EXPECT_EQ(run_words({"rollout", "pause", "chat", "--reason", "looked at", "--server", server.url()}, add_rollout)
                .out.substr(0, 24),
            "chat: paused; looked at\n");
  EXPECT_EQ(last(), R"({"schema":1,"action":"pause","reason":"looked at"})");
  run_words({"rollout", "undo", "chat", "--server", server.url()}, add_rollout);
  EXPECT_EQ(last(), R"({"schema":1,"action":"undo"})");
  EXPECT_EQ(run_words({"rollout", "status", "chat", "--server", server.url()}, add_rollout).status, done);
  EXPECT_EQ(run_words({"delete", "chat", "--server", server.url()}, add_delete).out,
            "chat is removed; its replicas stop\n");
  EXPECT_EQ(run_words({"delete", "node/gpu-1", "--server", server.url()}, add_delete).out,
            "gpu-1 is removed from the fleet; its credential is revoked\n");
  EXPECT_EQ(run_words({"token", "remove", "t3", "--server", server.url()}, add_token).out, "token t3 is revoked\n");
}

TEST_F(ServerAccessTest, ANewTokenIsAloneOnStdout) {
  const TestServer server(
      {{"POST /api/v1/tokens",
        {ok_answer(R"({"schema":1,"id":"t3","role":"join","token":"berth_abc","expires_at_ms":1794877200000})")}}});
  const Outcome added = run_words({"token", "add", "join", "--ttl", "1h", "--server", server.url()}, add_token);
  EXPECT_EQ(added.out, "berth_abc\n");
  EXPECT_EQ(added.err, "berth: token t3 of role join, until 2026-11-17 01:00:00 UTC; it is not shown again\n");
  EXPECT_EQ(server.requests().back().body, R"({"schema":1,"role":"join","ttl_s":3600})");
}

TEST_F(ServerAccessTest, IntentsOfNodesGoToTheServer) {
  const TestServer server({
      {"GET /api/v1/nodes/gpu-1", {ok_answer(node_answer)}},
      {"PUT /api/v1/nodes/gpu-1/intent", {ok_answer(node_answer)}},
  });
  EXPECT_EQ(run_words({"cordon", "node/gpu-1", "--server", server.url()}, add_cordon).out,
            "gpu-1 is cordoned; these replicas are not interrupted: chat/0\n");
  EXPECT_EQ(server.requests().back().body, R"({"schema":1,"intent":"cordoned"})");
  EXPECT_EQ(run_words({"uncordon", "node/gpu-1", "--server", server.url()}, add_uncordon).out, "gpu-1 is in service\n");
  EXPECT_EQ(server.requests().back().body, R"({"schema":1,"intent":"in_service"})");
  EXPECT_EQ(run_words({"drain", "node/gpu-1", "--server", server.url()}, add_drain).out,
            "gpu-1 is draining; these replicas will be moved: chat/0\n")
      << "chat/1 is stopping already";
  for (const char* wrong : {"node/", "node/gpu-1/cuda:0", "node/gpu-9"})
    EXPECT_EQ(run_words({"drain", wrong, "--server", server.url()}, add_drain).status, wrong_input) << wrong;
  EXPECT_EQ(run_words({"cordon", "cuda:4095", "--json"}, add_cordon).status, wrong_input);
}

TEST_F(ServerAccessTest, ADrainWaitsForTheReplicasToLeave) {
  const TestServer server({{"GET /api/v1/nodes/gpu-1", {ok_answer(node_answer), ok_answer(empty_node)}},
                           {"PUT /api/v1/nodes/gpu-1/intent", {ok_answer(node_answer)}}});
  const Outcome gone = run_words({"drain", "node/gpu-1", "--wait", "10s", "--server", server.url()}, add_drain);
  EXPECT_EQ(gone.out, "gpu-1 is draining; these replicas will be moved: chat/0\nno replica is left on gpu-1\n");
  EXPECT_EQ(gone.status, done);
  const TestServer full({{"GET /api/v1/nodes/gpu-1", {ok_answer(node_answer)}},
                         {"PUT /api/v1/nodes/gpu-1/intent", {ok_answer(node_answer)}}});
  const Outcome left = run_words({"drain", "node/gpu-1", "--wait", "100ms", "--server", full.url()}, add_drain);
  EXPECT_EQ(left.status, environment_error);
  EXPECT_EQ(left.err, "berth: gpu-1 still has chat/0, chat/1; to see why, run berth why replica chat/0\n");
  EXPECT_EQ(run_words({"drain", "node/gpu-1", "--wait", "0s", "--server", full.url()}, add_drain).status,
            environment_error);
  run_words({"drain", "node/gpu-1", "--plan", "--server", full.url()}, add_drain);
  EXPECT_EQ(full.requests().back().body, R"({"schema":1,"intent":"draining","dry_run":true})")
      << "--plan changes nothing";
}

}  // namespace
}  // namespace berth::cli
