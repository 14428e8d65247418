#include "server/gateway_events.hpp"

#include <gtest/gtest.h>

namespace berth::server {
namespace {

using namespace std::chrono_literals;
using fleet::EventKind;
using fleet::GatewayReport;
using fleet::RequestOutcome;

class GatewayEventsTest : public testing::Test {
 protected:
  // "KIND SUBJECT: TEXT", one event per line.
  static std::string text_of(const std::vector<fleet::Event>& events) {
    std::string text;
    for (const fleet::Event& event : events)
      text += std::string(to_string(event.kind)) + " " + event.subject + ": " + event.text + "\n";
    return text;
  }
  std::string take(const GatewayReport& report) {
    return events_.is_needed("head", report) ? text_of(events_.take("head", report, known_, now_)) : "";
  }
  std::string look(const std::set<std::string>& reporting) { return text_of(events_.look({"head"}, reporting, now_)); }
  static GatewayReport failed(const std::string& reason, const std::string& replica = "chat/0#17") {
    GatewayReport report;
    fleet::RequestRecord& record = report.requests.emplace_back();
    record.outcome = RequestOutcome::failed;
    record.deployment = DeploymentId("chat");
    record.attempts = {{replica, NodeId("n"), RequestOutcome::failed, reason, 1}};
    return report;
  }
  static GatewayReport rejected(const std::string& code, std::uint32_t status, const std::string& deployment = "chat") {
    GatewayReport report;
    fleet::RequestRecord& record = report.requests.emplace_back();
    record.id = "r1";
    record.outcome = RequestOutcome::rejected;
    record.deployment = DeploymentId(deployment);
    record.reason = code;
    record.status = status;
    return report;
  }
  static GatewayReport row(const std::string& problem, bool is_ejected, const std::string& replica = "chat/0#17") {
    GatewayReport report;
    fleet::RequestCounts& counts = report.replicas.emplace_back();
    counts.name = replica;
    counts.problem = problem;
    counts.is_ejected = is_ejected;
    return report;
  }

  GatewayEvents events_;
  const GatewayEvents::KnownSubjects known_{{"chat"}, {"chat/0#17"}};
  TimePoint now_ = TimePoint() + 1h;
};

TEST_F(GatewayEventsTest, FailedRequestsAreOneEventHoweverManyThereAre) {
  EXPECT_EQ(take(failed("it closed the connection")),
            "failed chat/0: a request of the gateway head failed at chat/0#17: it closed the connection\n");
  for (int second = 0; second < 600; ++second) {
    now_ += 1s;
    EXPECT_EQ(take(failed("it closed the connection")), "") << second;
  }
  EXPECT_NE(take(failed("it answered late")), "") << "a new reason";
  EXPECT_EQ(take(failed("it closed the connection")), "") << "at most one in a minute";
  now_ += 61s;
  EXPECT_NE(take(failed("it answered late")), "") << "the last event was a minute ago";
}

TEST_F(GatewayEventsTest, AReplicaThatIsLeftOutAndAnswersAgainIsTwoEvents) {
  EXPECT_EQ(take(row("", false)), "");
  EXPECT_EQ(take(row("it closed the connection", true)),
            "failed chat/0: chat/0#17 failed 5 times in a row; the gateway head skips it for 1 s at first and at most "
            "60 s at "
            "a time; the last reason: it closed the connection\n");
  now_ += 90s;
  EXPECT_EQ(take(row("it closed the connection", false)), "") << "the replica may be tried, but has not answered yet";
  EXPECT_EQ(take(row("", false)), "ready chat/0: chat/0#17 answers the gateway head again after 90 s\n");
  EXPECT_EQ(take(row("", false)), "");
  EXPECT_NE(take(row("it answered with 503", false)).find("still sends it requests"), std::string::npos);
}

TEST_F(GatewayEventsTest, RejectionsAreOneEventForEachReasonUntilThereWereNoneForAWhile) {
  EXPECT_EQ(
      take(rejected("full", 429)),
      "refused chat: the gateway head rejects requests for chat with 429: its replicas are busy, and the queue is "
      "full or they waited too long (berth why request r1)\n");
  EXPECT_EQ(take(rejected("full", 429)), "");
  for (const char* code : {"ambiguous", "busy", "forbidden", "invalid_argument", "no_route", "timeout", "too_long",
                           "too_many", "unavailable"})
    EXPECT_NE(take(rejected(code, 400)), "") << code;
  for (const char* code : {"no_route", "invalid_argument", "not_supported", "too_long", "too_many_connections"})
    EXPECT_TRUE(take(rejected(code, 400, "")).starts_with("refused gateway/head: the gateway head rejects")) << code;
  EXPECT_EQ(take(rejected("unavailable", 503, "")), "");
  now_ += GatewayEvents::rejections_apart + 1s;
  EXPECT_EQ(take({}), "");
  EXPECT_NE(take(rejected("full", 429)), "");
}

TEST_F(GatewayEventsTest, WhatAGatewaySaysOfThingsThatDoNotExistIsNoEvent) {
  EXPECT_EQ(take(failed("x", "chat/9#9")), "");
  EXPECT_EQ(take(row("x", true, "chat/9#9")), "");
  EXPECT_EQ(take(rejected("full", 429, "none")), "");
  EXPECT_EQ(take(rejected("invented", 429)), "");
  EXPECT_EQ(take(rejected("no_key", 401, "")), "") << "anyone can send such requests";
}

TEST_F(GatewayEventsTest, AGatewayThatIsSilentIsLostOnceAndItsReturnSaysForHowLong) {
  EXPECT_EQ(look({}), "");
  now_ += 9s;
  EXPECT_EQ(look({}), "");
  now_ += 1s;
  EXPECT_TRUE(look({}).starts_with("failed gateway/head: the gateway head is lost: no report for 10 s"));
  EXPECT_EQ(look({}), "");
  now_ += 20s;
  EXPECT_EQ(take({}), "server gateway/head: the gateway head reports again after 30 s\n");
  EXPECT_EQ(look({"head"}), "");
  GatewayReport late;
  late.silent_s = 3600;
  EXPECT_EQ(take(late),
            "server gateway/head: the gateway head reports again after 3600 s without this server, during which "
            "it used its last known state\n");
  EXPECT_EQ(take({}), "");
}

TEST_F(GatewayEventsTest, GatewaysThatAreNotLostArePresent) {
  const auto look_at = [&](const std::set<std::string>& expected, const std::set<std::string>& reporting) {
    events_.look(expected, reporting, now_);
    return events_.present();
  };
  EXPECT_EQ(events_.present(), 0u);
  EXPECT_EQ(look_at({"head", "edge"}, {}), 2u) << "a new leader waits for reports of gateways";
  now_ += 10s;
  EXPECT_EQ(look_at({"head", "edge"}, {"head"}), 1u);
  EXPECT_EQ(take({}), "");
  look_at({"head", "edge"}, {"head"});
  text_of(events_.take("edge", {}, known_, now_));
  EXPECT_EQ(look_at({"head", "edge"}, {"head", "edge"}), 2u);
  EXPECT_EQ(look_at({"head"}, {"head", "edge"}), 1u) << "its credential was removed";
}

TEST_F(GatewayEventsTest, OneThatLeavesIsNotTheGateway) {
  look({"head"});
  now_ += 10s;
  EXPECT_NE(look({}), "");
  GatewayReport leaving;
  leaving.is_leaving = true;
  EXPECT_EQ(take(leaving), "");
}

TEST_F(GatewayEventsTest, RoutesThatConflictAreAnEventWhenTheyBegin) {
  EXPECT_FALSE(events_.has_compared(3));
  EXPECT_EQ(text_of(events_.compare_routes(3, "lab", {"old"})), "") << "the route existed when this server started";
  EXPECT_TRUE(events_.has_compared(3));
  EXPECT_EQ(text_of(events_.compare_routes(4, "lab", {"old", "new"})), "refused lab: new\n");
  EXPECT_EQ(text_of(events_.compare_routes(5, "lab", {})), "");
  EXPECT_EQ(text_of(events_.compare_routes(6, "lab", {"new"})), "refused lab: new\n");
}

}  // namespace
}  // namespace berth::server
