#include "gateway/routes.hpp"

#include <gtest/gtest.h>

#include "gateway/fair_queue.hpp"
#include "gateway/json_peek.hpp"

namespace berth::gateway {
namespace {

std::map<DeploymentId, Deployment> deployments(std::vector<Deployment> list) {
  std::map<DeploymentId, Deployment> all;
  for (Deployment& deployment : list) all.emplace(deployment.name, deployment);
  return all;
}

Deployment with(const std::string& name, std::optional<std::string> host, std::optional<std::string> path,
                std::string model = "") {
  Deployment deployment;
  deployment.name = DeploymentId(name);
  deployment.serving.host = std::move(host);
  deployment.serving.path = std::move(path);
  deployment.model = std::move(model);
  return deployment;
}

std::string text(const std::optional<DeploymentId>& id) { return id ? id->text() : "-"; }

TEST(Routes, AHostComesBeforeAPathAndALongPathBeforeAShortOne) {
  const Routes routes(deployments({with("all", {}, "/"), with("chat", {}, "/chat"), with("v2", {}, "/chat/v2/"),
                                   with("own", "own.example", {}), with("part", "own.example", "/part")}));
  const auto at = [&](std::string_view host, std::string_view path) { return text(routes.by_address({host, path})); };
  EXPECT_EQ(at("x", "/other"), "all");
  EXPECT_EQ(at("x", "/chat"), "chat");
  EXPECT_EQ(at("x", "/chat/v1"), "chat");
  EXPECT_EQ(at("x", "/chatter"), "all") << "a prefix ends at a slash";
  EXPECT_EQ(at("x", "/chat/v2/a"), "v2");
  EXPECT_EQ(at("own.example", "/chat"), "own");
  EXPECT_EQ(at("own.example", "/part/x"), "part");
  EXPECT_TRUE(routes.conflicts().empty());
}

TEST(Routes, TwoThatAskForTheSameGetNeitherAndItIsSaid) {
  const Routes routes(
      deployments({with("a", {}, "/x/"), with("b", {}, "/x"), with("c", {}, {}, "llama"), with("d", {}, {}, "llama")}));
  EXPECT_EQ(text(routes.by_address({"", "/x"})), "-");
  EXPECT_EQ(text(routes.by_model("llama")), "-");
  EXPECT_EQ(text(routes.by_model("d")), "d") << "the name of a deployment is always its own";
  ASSERT_EQ(routes.conflicts().size(), 2U);
  EXPECT_NE(routes.conflicts()[0].find("a and b"), std::string::npos) << routes.conflicts()[0];
  EXPECT_NE(routes.conflicts()[1].find("llama"), std::string::npos) << routes.conflicts()[1];
}

TEST(Routes, TheNameOfADeploymentIsStrongerThanTheModelOfAnother) {
  const Routes routes(deployments({with("a", {}, {}, "b"), with("b", {}, {}, "m")}));
  EXPECT_EQ(text(routes.by_model("b")), "b");
  EXPECT_EQ(text(routes.by_model("a")), "a");
  EXPECT_EQ(text(routes.by_model("m")), "b");
}

TEST(Peek, FindsTheModelOfTheOutermostObjectOnly) {
  using Outcome = Peeked::Outcome;
  const auto of = [](std::string_view body) { return peek_member(body, "model"); };
  EXPECT_EQ(of(R"({"messages":[{"model":"inner"}],"model":"outer","x":1})").text, "outer");
  EXPECT_EQ(of(R"({"m\u006fdel":"a\nb"})").text, "a\nb");
  EXPECT_EQ(of(R"({"messages":[{"model":"inner"}]})").outcome, Outcome::absent);
  EXPECT_EQ(of(R"({"model":-5})").text, "-5");
  EXPECT_EQ(of(R"({"model":18446744073709551615})").text, "18446744073709551615");
  for (const char* other : {"5.5", "true", "null", "[]", "{}"})
    EXPECT_EQ(of("{\"model\":" + std::string(other) + "}").outcome, Outcome::absent) << other;
  EXPECT_EQ(of(R"({"model":{"model":"x"}})").outcome, Outcome::absent);
  EXPECT_EQ(of(R"({"model":"a","model":"b"})").outcome, Outcome::ambiguous);
  EXPECT_EQ(of(R"({"model":"a","mode\u006c":null})").outcome, Outcome::ambiguous);
  for (const char* bad :
       {"", "x", "[]", "\"model\"", "5", "null", "{\"model\":\"a\"", "{\"model\":\"a\"} x", "{\"model\":\"\xff\"}"})
    EXPECT_EQ(of(bad).outcome, Outcome::not_json) << bad;
  EXPECT_EQ(of(std::string(100'000, '[')).outcome, Outcome::not_json);
  EXPECT_EQ(of("{\"model\":\"" + std::string(5000, 'x') + "\"}").outcome, Outcome::too_long);
  EXPECT_EQ(of(" {\"model\" : \"a\"}\n").text, "a");
  EXPECT_EQ(peek_member(R"({"user":"u","user_id":"v"})", "user").text, "u");
  EXPECT_EQ(peek_member(R"({"a b":"\u0000"})", "a b").text, std::string(1, '\0'));
}

struct Request {
  std::string name;
};

TEST(FairQueue, CallersTakeTurnsByWeightWhateverTheNumberOfTheirRequests) {
  FairQueue<Request> queue;
  std::vector<Request> greedy(100, {"greedy"}), modest(10, {"modest"}), heavy(20, {"heavy"});
  for (Request& request : greedy) queue.push("greedy", 1, request);
  for (Request& request : modest) queue.push("modest", 1, request);
  for (Request& request : heavy) queue.push("heavy", 2, request);
  std::map<std::string, int> served;
  for (int i = 0; i < 40; ++i) ++served[queue.pop()->name];
  EXPECT_NEAR(served["greedy"], 10, 1);
  EXPECT_NEAR(served["modest"], 10, 1);
  EXPECT_NEAR(served["heavy"], 20, 1);
  EXPECT_EQ(queue.size(), 90U);
}

TEST(FairQueue, AbsenceEarnsNothing) {
  FairQueue<Request> queue;
  std::vector<Request> early(50, {"early"}), late(50, {"late"});
  for (Request& request : early) queue.push("early", 1, request);
  for (int i = 0; i < 30; ++i) queue.pop();
  for (Request& request : late) queue.push("late", 1, request);
  int of_late = 0;
  for (int i = 0; i < 20; ++i) of_late += queue.pop()->name == "late";
  EXPECT_NEAR(of_late, 10, 1);
}

TEST(FairQueue, OneThatGivesUpOrComesBackKeepsTheOrderOfTheOthers) {
  FairQueue<Request> queue;
  Request a{"a"}, b{"b"}, c{"c"};
  for (Request* request : {&a, &b, &c}) queue.push("x", 1, *request);
  EXPECT_TRUE(queue.remove("x", b));
  EXPECT_FALSE(queue.remove("x", b));
  EXPECT_EQ(queue.pop(), &a);
  queue.push_front("x", 1, a);
  EXPECT_EQ(queue.pop(), &a);
  EXPECT_EQ(queue.pop(), &c);
  EXPECT_EQ(queue.pop(), nullptr);
}

}  // namespace
}  // namespace berth::gateway
