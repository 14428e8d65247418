#include "cli/project_change.hpp"

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>

#include "cli/test_server.hpp"
#include "world/files.hpp"

namespace berth::cli {

using namespace world;

void add_apply(const Verb& command);
void add_plan(const Verb& command);
void add_rollout(const Verb& command);
void add_scale(const Verb& command);

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const std::string project_text =
    "[cluster]\nname = \"lab\"\n[[deployment]]\nname = \"chat\"\nmodel = \"llama\"\nreplicas = 2\ncpus = 2.5\n";
const std::string actions =
    R"("assignments":[{"deployment":"chat","replica":0,"node":"gpu-1","devices":["GPU-ea3b"],"memory_bytes":0,"exclusive":true}],
 "actions":[{"action":"start","deployment":"chat","replica":0,"after":{"deployment":"chat","replica":0,"node":"gpu-1","devices":["GPU-ea3b"],"memory_bytes":0,"exclusive":true}}])";
std::string change(const std::string& pending) {
  return R"({"schema":1,"version":42,"changed":true,"dry_run":false,"changes":[{"deployment":"chat","change":"changed","fields":["command","replicas"]},
 {"deployment":"old","change":"removed"},{"deployment":"new","change":"added"}],"plan":{"format":1,"cluster":"lab",)" +
         actions + R"(,"pending":[)" + pending + "]}}";
}
const std::string pending_chat =
    R"({"deployment":"chat","replicas":[1],"reason":"of_a_newer_version","text":"no node has 8 GPUs free"})";
const std::string text_of_change =
    "~ chat  command, replicas\n"
    "- old\n"
    "+ new\n"
    "\n"
    "+  chat/0  gpu-1  GPU-ea3b  exclusive\n";

std::string status_answer(const std::string& state, int ready, int updated, const std::string& pending = "") {
  return R"({"schema":1,"deployments":[{"name":"chat","state":")" + state + R"(","replicas":2,"ready":)" +
         std::to_string(ready) + R"(,"updated":)" + std::to_string(updated) +
         R"(,"reason":"chat/0 failed 3 times"}],"pending":[)" + pending + "]}";
}
// The answer to a change of one deployment.
std::string change_of_chat() {
  std::string text = change("");
  text.pop_back();
  return text +
         R"(,"deployment":{"name":"chat","state":"updating","spec":{"name":"chat","model":"llama","replicas":2}}})";
}
// The answer of /replicas: replica 1 fails, and `first` is the state of replica 0.
http::Response replicas_answer(const std::string& first) {
  const auto row = [](int number, const std::string& state) {
    return R"({"name":"chat/)" + std::to_string(number) +
           R"(","deployment":"chat","current":true,"node":"a","failures":3,"reason":"exit status 3","state":")" +
           state + "\"}";
  };
  return ok_answer(R"({"schema":1,"replicas":[)" + row(0, first) + "," + row(1, "backing_off") + R"(],"pending":[]})");
}
const std::string fits_nowhere =
    R"({"deployment":"chat","replicas":[1],"reason":{"kind":"taint","text":"all are tainted"}})";

class ProjectChange : public testing::Test {
 protected:
  ProjectChange() {
    std::string name = (fs::temp_directory_path() / "berth-change-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    for (const char* variable : {"BERTH_SERVER", "BERTH_TOKEN_FILE", "BERTH_CA_FILE"}) unsetenv(variable);
    EXPECT_TRUE(write_text(file(), project_text));
  }
  ~ProjectChange() override { fs::remove_all(folder_); }
  std::string file() const { return folder_ + "/project.toml"; }
  std::string plan() const { return folder_ + "/plan.json"; }
  Outcome apply(const TestServer& server, std::vector<std::string> more = {}) const {
    std::vector<std::string> words{"apply", file(), "--server", server.url()};
    words.insert(words.end(), more.begin(), more.end());
    return run_words(words, add_apply);
  }

  std::string folder_;
};

TEST_F(ProjectChange, ApplySendsTheProjectAndShowsTheDifference) {
  const TestServer server({{"PUT /api/v1/project", {ok_answer(change(""))}}});
  const Outcome applied = apply(server);
  ASSERT_EQ(applied.status, done) << applied.err;
  EXPECT_EQ(applied.out,
            text_of_change + "1 to start, 0 to change, 0 to stop, 0 unchanged, 0 pending.\napplied as version 42\n");
  const json::object sent = json::parse(server.requests().back().body).get_object();
  EXPECT_EQ(sent.at("project").at("deployments").at(0).at("name"), "chat");
  EXPECT_FALSE(sent.contains("dry_run"));
  EXPECT_FALSE(sent.contains("if_version"));
  EXPECT_EQ(apply(server, {"--json"}).out, change("") + "\n");
}

TEST_F(ProjectChange, WhatDoesNotFitIsAppliedAndSaidWithStatus3) {
  const TestServer server({{"PUT /api/v1/project", {ok_answer(change(pending_chat))}}});
  const Outcome applied = apply(server);
  EXPECT_EQ(applied.status, does_not_fit);
  EXPECT_NE(applied.out.find("! chat/1  pending: no node has 8 GPUs free\n"), std::string::npos) << applied.out;
  EXPECT_NE(applied.out.find("applied as version 42\n"), std::string::npos);
  EXPECT_EQ(applied.err, "berth: one deployment is not placed; the pending lines above give the reasons\n");
}

TEST_F(ProjectChange, BeforeSomethingDoesNotFitTheFirstReportsOfNodesAreAwaited) {
  const auto awaited = [](int nodes) {
    return ok_answer(R"({"schema":1,"nodes":{"awaited":)" + std::to_string(nodes) + "}}");
  };
  const TestServer server({{"PUT /api/v1/project",
                            {ok_answer(change(pending_chat)), ok_answer(change(pending_chat)), ok_answer(change(""))}},
                           {"GET /api/v1/status", {awaited(2), awaited(1), awaited(0)}}});
  const Outcome applied = apply(server);
  EXPECT_EQ(applied.status, done) << applied.out;
  std::string sent;
  for (const http::Request& request : server.requests())
    sent += request.method == "GET"                             ? "status "
            : request.body.find("dry_run") == std::string::npos ? "apply "
                                                                : "plan ";
  EXPECT_EQ(sent, "status plan status plan status apply ");
}

TEST_F(ProjectChange, AWrongFileIsNotSent) {
  const TestServer server({{"PUT /api/v1/project", {ok_answer(change(""))}}});
  EXPECT_TRUE(write_text(file(), "[cluster]\nnmae = 3\n"));
  EXPECT_EQ(apply(server).status, wrong_input);
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(ProjectChange, AnAnswerWithoutAPlanIsAnErrorNotACrash) {
  for (const char* answer : {R"({"schema":1})", R"({"schema":1,"plan":{"actions":[{}],"assignments":[],"pending":[]}})",
                             R"({"schema":1,"plan":3})"}) {
    const TestServer server({{"PUT /api/v1/project", {ok_answer(answer)}}});
    EXPECT_NE(apply(server).status, done) << answer;
  }
}

TEST_F(ProjectChange, APlanFileIsForOneVersionAndOneProject) {
  const TestServer server({{"PUT /api/v1/project",
                            {ok_answer(change("")), ok_answer(change("")),
                             http::error_response(409, "conflict", "the project is at version 43", "plan again")}}});
  const Outcome planned = run_words({"plan", "--server=" + server.url(), file(), "-o", plan()}, add_plan);
  EXPECT_EQ(planned.status, done) << planned.err;
  EXPECT_EQ(planned.out.substr(0, text_of_change.size()), text_of_change);
  EXPECT_NE(planned.out.find("planned for version 42\n"), std::string::npos);
  EXPECT_EQ(json::parse(server.requests().back().body).at("dry_run"), true);

  EXPECT_EQ(apply(server, {"--plan", plan()}).status, done);
  EXPECT_EQ(json::parse(server.requests().back().body).at("if_version"), 42);
  const Outcome moved = apply(server, {"--plan", plan()});
  EXPECT_EQ(moved.status, environment_error);
  EXPECT_EQ(moved.err, "berth: the project is at version 43; plan again\n");

  const std::size_t sent = server.requests().size();
  EXPECT_TRUE(write_text(file(), project_text + "gpus = 3\n"));
  const Outcome edited = apply(server, {"--plan", plan()});
  EXPECT_EQ(edited.status, environment_error);
  EXPECT_NE(edited.err.find(plan() + " was made for another project file"), std::string::npos) << edited.err;
  for (const char* text : {"", "[]", "{\"version\":1}", "{\"version\":-1,\"project\":{}}"}) {
    EXPECT_TRUE(write_text(plan(), text));
    EXPECT_EQ(apply(server, {"--plan", plan()}).status, wrong_input) << text;
  }
  EXPECT_EQ(server.requests().size(), sent) << "none of these changes was sent";
}

TEST_F(ProjectChange, PlanWithServerUsesTheVariableAndKeepsItsOtherOptions) {
  const TestServer server({{"PUT /api/v1/project", {ok_answer(change(""))}}});
  setenv("BERTH_SERVER", server.url().c_str(), 1);
  const Outcome planned = run_words({"plan", "--server", file()}, add_plan);
  unsetenv("BERTH_SERVER");
  EXPECT_EQ(planned.status, done) << planned.err;
  EXPECT_EQ(server.requests().back().method, "PUT");
  EXPECT_EQ(run_words({"plan", "--server", file(), "--fleet", file()}, add_plan).status, wrong_input);
}

TEST_F(ProjectChange, WaitingEndsWhenAllAreReady) {
  const TestServer server({{"PUT /api/v1/project", {ok_answer(change(""))}},
                           {"GET /api/v1/status",
                            {ok_answer(status_answer("serving", 2, 2)), ok_answer(status_answer("serving", 2, 0)),
                             ok_answer(status_answer("updating", 1, 1)), ok_answer(status_answer("serving", 2, 2))}}});
  const Outcome waited = apply(server, {"--wait"});
  EXPECT_EQ(waited.status, done) << waited.err;
  EXPECT_TRUE(waited.out.ends_with("2 of 2 replicas are ready\n")) << waited.out;
  EXPECT_EQ(server.requests().size(), 8u) << "the first request asks for nodes that have not reported";
  EXPECT_EQ(waited.err, "") << "no progress without a terminal";
}

TEST_F(ProjectChange, WaitingEndsWhenWhatThePlanHasNoPlaceForIsAllThatIsLeft) {
  const TestServer server({{"PUT /api/v1/project", {ok_answer(change(pending_chat))}},
                           {"GET /api/v1/status", {ok_answer(status_answer("degraded", 1, 1, fits_nowhere))}}});
  const Outcome waited = apply(server, {"--wait"});
  EXPECT_EQ(waited.status, does_not_fit);
  EXPECT_TRUE(waited.err.ends_with("berth: chat is pending: all are tainted; see berth status\n")) << waited.err;
}

TEST_F(ProjectChange, WaitingGoesOnWhileWhatThePlanHasAPlaceForIsPending) {
  TestServer::Answers answers{{"PUT /api/v1/project", {ok_answer(change(""))}},
                              {"GET /api/v1/status", {7, ok_answer(status_answer("degraded", 1, 1, fits_nowhere))}}};
  answers["GET /api/v1/status"].push_back(ok_answer(status_answer("serving", 2, 2)));
  const TestServer server(answers);
  EXPECT_EQ(apply(server, {"--wait"}).status, done);
}

TEST_F(ProjectChange, WaitingEndsWhenARolloutPauses) {
  const TestServer server({{"PUT /api/v1/project", {ok_answer(change(""))}},
                           {"GET /api/v1/status", {ok_answer(status_answer("paused", 1, 1))}}});
  const Outcome waited = apply(server, {"--wait"});
  EXPECT_EQ(waited.status, environment_error);
  EXPECT_EQ(waited.err, "berth: chat is paused: chat/0 failed 3 times; see berth status\n");
}

TEST_F(ProjectChange, OfSeveralThatAreNotReadyTheOneInTheSentenceIsNotListedAgain) {
  const std::string reason = "chat/0 failed 3 times in a row: exit status 3";
  const TestServer server(
      {{"PUT /api/v1/project", {ok_answer(change(""))}},
       {"GET /api/v1/status",
        {ok_answer(R"({"schema":1,"deployments":[{"name":"chat","state":"paused","replicas":2,"reason":")" + reason +
                   R"("}]})")}},
       {"GET /api/v1/replicas", {replicas_answer("backing_off")}}});
  const Outcome waited = apply(server, {"--wait"});
  EXPECT_EQ(waited.status, environment_error);
  EXPECT_EQ(waited.err, "berth: chat is paused: " + reason +
                            "; see berth logs chat/0\n  chat/1 on a waiting to restart: exit status 3\n");
}

TEST_F(ProjectChange, WhatThePlanHasSaidIsNotSaidAgainAtTheEndOfTheWait) {
  const std::string pending =
      R"({"deployment":"chat","replicas":[1],"reason":{"kind":"x","text":"no node has 8 GPUs free"}})";
  const TestServer server({{"PUT /api/v1/project", {ok_answer(change(pending_chat))}},
                           {"GET /api/v1/status", {ok_answer(status_answer("degraded", 1, 1, pending))}}});
  const Outcome waited = apply(server, {"--wait"});
  EXPECT_EQ(waited.status, does_not_fit);
  EXPECT_NE(waited.out.find("! chat/1  pending: no node has 8 GPUs free\n"), std::string::npos) << waited.out;
  EXPECT_EQ(waited.err, "berth: one deployment is not placed; the pending lines above give the reasons\n");
  EXPECT_EQ(apply(server, {"--wait", "--json"}).err,
            "berth: chat is pending: no node has 8 GPUs free; see berth status\n")
      << "the plan was not printed as text";
}

TEST_F(ProjectChange, AScaleARestartAndAnUndoWaitForTheirDeploymentAsAnApplyDoes) {
  const auto wait = [](std::vector<std::string> words, const http::Response& status) {
    const TestServer server({{"POST /api/v1/deployments/chat/scale", {ok_answer(change_of_chat())}},
                             {"POST /api/v1/deployments/chat/rollout", {ok_answer(change_of_chat())}},
                             {"GET /api/v1/status", {status}},
                             {"GET /api/v1/replicas", {replicas_answer("ready")}}});
    words.insert(words.end(), {"--wait", "--server", server.url()});
    return run_words(words, add_rollout, add_scale);
  };
  const http::Response serving = ok_answer(status_answer("serving", 2, 2));
  const Outcome scaled = wait({"scale", "chat", "2"}, serving);
  EXPECT_EQ(scaled.status, done) << scaled.err;
  EXPECT_TRUE(scaled.out.ends_with("applied as version 42\n2 of 2 replicas are ready\n")) << scaled.out;
  for (const char* action : {"restart", "undo"}) {
    const Outcome ready = wait({"rollout", action, "chat"}, serving);
    EXPECT_EQ(ready.status, done) << ready.err;
    EXPECT_TRUE(ready.out.starts_with("chat: updating\n")) << ready.out;
    EXPECT_TRUE(ready.out.ends_with("\n2 of 2 replicas are ready\n")) << ready.out;
  }
  const Outcome stuck = wait({"rollout", "restart", "chat"}, ok_answer(status_answer("degraded", 1, 1)));
  EXPECT_EQ(stuck.status, environment_error);
  EXPECT_EQ(stuck.err,
            "berth: 1 of 2 ready, and no other replica can become ready; see berth logs NAME/N and berth why replica "
            "NAME/N\n  chat/1 on a waiting to restart: exit status 3\n");
}

TEST_F(ProjectChange, AdviceIsWhatTheDeploymentAllows) {
  const auto advice = [](const std::string& rollout) {
    const json::object deployment{{"deployment", {{"name", "chat"}, {"rollout", json::parse(rollout)}}}};
    const json::object replicas{{"replicas",
                                 {{{"name", "chat/0"}, {"current", true}, {"state", "ready"}},
                                  {{"name", "chat/1"}, {"current", true}, {"state", "backing_off"}}}}};
    return advice_when_stopped(deployment, replicas);
  };
  EXPECT_EQ(advice(R"({"paused":false,"undo_revisions":0})"), "see berth logs chat/1");
  EXPECT_EQ(advice(R"({"paused":true,"undo_revisions":2})"),
            "see berth logs chat/1; to go back: berth rollout undo chat; to try again: berth rollout resume chat");
}

TEST_F(ProjectChange, ProgressTellsWhatWillNotBeReady) {
  const Project project = *read_project(project_text, "project");
  const auto of = [&](const std::string& text) { return progress_of(project, json::parse(text).get_object()); };
  EXPECT_EQ(of(status_answer("updating", 1, 1)).state, ReadyProgress::State::goes_on);
  EXPECT_EQ(of(status_answer("updating", 1, 1)).text, "1 of 2 ready");
  EXPECT_EQ(of(status_answer("updating", 2, 1)).text, "2 of 2 ready, 1 of 2 updated");
  EXPECT_EQ(of(status_answer("serving", 2, 1)).state, ReadyProgress::State::goes_on)
      << "one replica has the earlier revision";
  EXPECT_EQ(of(status_answer("degraded", 0, 1, fits_nowhere)).state, ReadyProgress::State::goes_on)
      << "one replica has a place";
  const ReadyProgress out = of(status_answer("degraded", 1, 1, fits_nowhere));
  EXPECT_EQ(out.state, ReadyProgress::State::does_not_fit);
  EXPECT_EQ(out.text, "chat is pending: all are tainted");
  EXPECT_EQ(of(status_answer("failed", 0, 2)).state, ReadyProgress::State::stopped);
  EXPECT_EQ(of(status_answer("paused", 1, 1)).text, "chat is paused: chat/0 failed 3 times");
  const std::string by_a_user =
      R"({"deployments":[{"name":"chat","state":"paused","replicas":2,"reason":"paused by user:ann"}]})";
  EXPECT_EQ(of(by_a_user).text, "chat is paused by user:ann");
  EXPECT_EQ(of(R"({"schema":1})").state, ReadyProgress::State::goes_on) << "the deployment is not listed yet";
}

TEST(ChangeText, NamesAndCountsWhatRestartsAndNamesFieldsAsTheFileDoes) {
  const json::value answer =
      json::parse(R"({"changes":[{"deployment":"chat","change":"changed","fields":["command","unready_within_s"]}],
    "restarts":["chat/0"],"plan":{"assignments":[{"deployment":"chat","replica":0,"node":"a","devices":[],"memory_bytes":0,"exclusive":false}],
    "actions":[],"pending":[]}})");
  EXPECT_EQ(change_text(answer.as_object(), {}),
            "~ chat  command, unready_within\n"
            "\n"
            "~  chat/0 to restart, one after another\n"
            "0 to start, 0 to change, 0 to stop, 1 to restart, 0 unchanged, 0 pending.\n");
  json::value moved = answer;
  const json::value from =
      json::parse(R"({"deployment":"chat","replica":0,"node":"b","devices":[],"memory_bytes":0,"exclusive":false})");
  json::object& plan = moved.at("plan").as_object();
  plan["actions"] = json::array{json::object{{"before", from}, {"after", plan.at("assignments").at(0)}}};
  EXPECT_EQ(change_text(moved.as_object(), {}),
            "~ chat  command, unready_within\n"
            "\n"
            "~  chat/0  a  -  moves from b\n"
            "0 to start, 1 to change, 0 to stop, 0 unchanged, 0 pending.\n")
      << "a replica that also moves is counted once";
}

}  // namespace
}  // namespace berth::cli
