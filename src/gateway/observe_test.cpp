// The records, metrics and log lines of requests through a real gateway.
#include <array>
#include <boost/json.hpp>

#include "fleet_format/fleet_json.hpp"
#include "gateway/test_fleet.hpp"

namespace berth::gateway {
namespace {

using fleet::RequestOutcome;

const fleet::RequestCounts& row(const std::vector<fleet::RequestCounts>& rows, std::string_view name) {
  static const fleet::RequestCounts none;
  for (const fleet::RequestCounts& each : rows)
    if (each.name == name) return each;
  ADD_FAILURE() << "there is no row " << name;
  return none;
}

TEST(Observed, ARequestHasOneIdForItsClientItsReplicaAndItsRecord) {
  Replica replica("a");
  Fleet fleet;
  Deployment& deployment = fleet.add("a", {replica.url()});
  deployment.serving.path = "/a";
  deployment.endpoints[0].devices = {DeviceId("GPU-1"), DeviceId("GPU-2")};
  fleet.apply();
  const http::Response made = fleet.ask("/a");
  ASSERT_EQ(made.status, 200) << made.body;
  const std::string id(made.headers.get("x-request-id").value_or(""));
  EXPECT_EQ(id.size(), 16U);
  EXPECT_EQ(replica.last().headers.get("x-request-id"), id);
  EXPECT_EQ(replica.last().headers.get("traceparent").value_or("").size(), 55U);
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const http::Response kept = fleet.ask(
      "/a", "", {{"x-request-id", "order-7"}, {"traceparent", trace}, {"tracestate", "x=1"}, {"x-berth-explain", "1"}});
  EXPECT_EQ(kept.headers.get("x-request-id"), "order-7");
  EXPECT_EQ(kept.headers.get("x-berth-policy"), "least_loaded");
  EXPECT_EQ(kept.headers.get("x-berth-device"), "GPU-1,GPU-2");
  EXPECT_EQ(replica.last().headers.get("x-request-id"), "order-7");
  EXPECT_EQ(replica.last().headers.get("tracestate"), "x=1");
  EXPECT_EQ(replica.last().headers.get("traceparent").value_or("").substr(0, 36), trace.substr(0, 36));
  EXPECT_NE(replica.last().headers.get("traceparent"), trace);
  fleet.ask("/a", "", {{"traceparent", "nonsense"}, {"tracestate", "x=1"}});
  EXPECT_FALSE(replica.last().headers.get("tracestate")) << "it belongs to a trace that is not known";
  EXPECT_EQ(fleet.ask("/none", "", {{"x-request-id", "lost"}}).headers.get("x-request-id"), "lost")
      << "also if the gateway itself answers";
  const auto records = fleet.records(4);
  EXPECT_EQ(records[0].id, id);
  EXPECT_EQ(records[3].id, "lost");
  EXPECT_EQ(records[3].reason, "no_route");
}

TEST(Observed, WhichReplicaAnsweredIsForLocalCallersAndKeysThatMayKnowIt) {
  Replica replica("a");
  Fleet fleet;
  Deployment& deployment = fleet.add("a", {replica.url()});
  deployment.serving.path = "/a";
  deployment.endpoints[0].devices = {DeviceId("GPU-1")};
  const std::string plain = fleet.add_caller("t1", "a"), trusted = fleet.add_caller("t2", "a");
  fleet.view().callers[http::sha256(trusted)].may_explain = true;
  fleet.apply();
  const auto explained = [&](const std::string& key) {
    http::Headers headers{{"x-berth-explain", "1"}};
    if (!key.empty()) headers.add("authorization", "Bearer " + key);
    const http::Response answer = fleet.ask("/a", "", headers);
    EXPECT_EQ(answer.status, 200) << answer.body;
    for (const char* name : {"x-berth-device", "x-berth-policy", "x-berth-wait-ms"})
      EXPECT_EQ(answer.headers.get(name).has_value(), answer.headers.get("x-berth-replica").has_value()) << name;
    return answer.headers.get("x-berth-replica") == "a/0#1";
  };
  EXPECT_TRUE(explained(""));
  EXPECT_TRUE(explained(trusted));
  EXPECT_FALSE(explained(plain));
}

TEST(Observed, TheAnswersOfTheGatewayAreExplainedToo) {
  Replica slow("a", true);
  Fleet fleet;
  Deployment& full = fleet.add("a", {slow.url()}, 1);
  full.serving.path = "/a";
  full.serving.on_capacity_exhausted = OnCapacityExhausted::reject;
  const std::string plain = fleet.add_caller("t1", "a");
  fleet.apply();
  std::future<http::Response> held = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  ASSERT_TRUE(eventually([&] { return slow.held() == 1; }));
  const http::Response refused = fleet.ask("/a", "", {{"x-berth-explain", "1"}});
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.get("x-berth-policy"), "least_loaded");
  EXPECT_EQ(refused.headers.get("x-berth-wait-ms"), "0");
  const http::Response hidden = fleet.ask("/a", "", {{"x-berth-explain", "1"}, {"authorization", "Bearer " + plain}});
  EXPECT_EQ(hidden.status, 429);
  for (const auto& [name, value] : hidden.headers) EXPECT_FALSE(name.starts_with("x-berth-")) << name;
  slow.release(1);
  EXPECT_EQ(held.get().status, 200);
}

TEST(Observed, WhatCannotBeReadAsARequestHasAnIdAndARecordToo) {
  Fleet fleet;
  fleet.apply();
  const std::string get = "GET / HTTP/1.1\r\nhost: a\r\n";
  const std::vector<std::pair<std::string, std::string>> all{{get + "x: " + std::string(20'000, 'x'), "too_long"},
                                                             {get + std::string("x: \0", 4), "invalid_argument"},
                                                             {"GET / HTTP/1.0\r\nhost: a\r\n\r\n", "not_supported"}};
  for (const auto& [text, reason] : all) {
    const int client = sent(fleet.url(), text);
    std::string answer;
    std::array<char, 1024> part{};
    for (ssize_t got = 0; (got = ::recv(client, part.data(), part.size(), 0)) > 0;)
      answer.append(part.data(), static_cast<std::size_t>(got));
    ::close(client);
    const fleet::RequestRecord record = fleet.records(1).at(0);
    EXPECT_EQ(record.reason, reason);
    EXPECT_EQ(record.outcome, RequestOutcome::rejected);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + std::to_string(record.status) + " ")) << answer;
    EXPECT_NE(answer.find("\r\nx-request-id: " + record.id + "\r\n"), answer.npos) << answer;
    EXPECT_TRUE(fleet::is_from_stranger(record)) << "anyone can send such a request";
    EXPECT_NE(fleet.log().find("request=" + record.id), std::string::npos) << fleet.log();
    EXPECT_EQ(row(fleet.report().deployments, "").rejected.at(reason), 1U);
  }
}

TEST(Observed, RequestsAreCountedByOutcome) {
  Replica replica("a"), slow("b", true);
  Fleet fleet;
  fleet.add("a", {replica.url()}).serving.path = "/a";
  Deployment& full = fleet.add("b", {slow.url()}, 1);
  full.serving.path = "/b";
  full.serving.on_capacity_exhausted = OnCapacityExhausted::reject;
  const std::string key = fleet.add_caller("t7", "a");
  fleet.apply();
  EXPECT_EQ(fleet.ask("/a", "", {{"authorization", "Bearer " + key}}).status, 200);
  EXPECT_EQ(fleet.ask("/b", "", {{"authorization", "Bearer " + key}}).status, 403);
  EXPECT_EQ(fleet.ask("/a", "", {{"authorization", "Bearer wrong"}}).status, 401);
  EXPECT_EQ(fleet.ask("/none").status, 404);
  std::future<http::Response> held = std::async(std::launch::async, [&] { return fleet.ask("/b"); });
  ASSERT_TRUE(eventually([&] { return slow.held() == 1; }));
  EXPECT_EQ(fleet.ask("/b").status, 429);
  ASSERT_TRUE(eventually([&] { return fleet.report().deployments.size() == 3; }));
  fleet::GatewayReport report = fleet.report();
  EXPECT_EQ(row(report.deployments, "a").answered.at("2xx"), 1U);
  EXPECT_EQ(row(report.deployments, "b").rejected,
            (std::map<std::string, std::uint64_t>{{"forbidden", 1}, {"full", 1}}));
  EXPECT_EQ(row(report.deployments, "b").in_flight, 1U);
  EXPECT_EQ(row(report.deployments, "").rejected,
            (std::map<std::string, std::uint64_t>{{"no_route", 1}, {"wrong_key", 1}}));
  EXPECT_EQ(row(report.callers, "t7").answered.at("2xx"), 1U);
  EXPECT_EQ(row(report.callers, "t7").rejected.at("forbidden"), 1U);
  EXPECT_EQ(row(report.callers, "local").in_flight, 1U);
  EXPECT_EQ(row(report.callers, "").rejected.at("wrong_key"), 1U) << "a stranger is not a local caller";
  EXPECT_EQ(row(report.replicas, "b/0#2").in_flight, 1U);
  slow.release(1);
  EXPECT_EQ(held.get().status, 200);
  ASSERT_TRUE(eventually([&] { return row(fleet.report().deployments, "b").in_flight == 0; }));
  report = fleet.report();
  EXPECT_EQ(row(report.replicas, "b/0#2").answered.at("2xx"), 1U);
  EXPECT_EQ(row(report.deployments, "b").first_byte.count(), 1U);
}

TEST(Observed, NodesWithoutAConnectionAreReportedUntilTheyConnect) {
  Replica replica("a");
  Fleet fleet({.relay_of = nullptr, .unconnected_time = 0ms});
  fleet.add("a", {replica.url()}).serving.path = "/a";
  EXPECT_TRUE(fleet.report().unconnected.empty());
  fleet.apply_to_gateway();
  EXPECT_EQ(fleet.report().unconnected, std::vector{NodeId("n1")});
  fleet.apply_to_relay();
  EXPECT_TRUE(eventually([&] { return fleet.report().unconnected.empty(); }));
  Fleet patient;
  patient.add("a", {replica.url()});
  patient.apply_to_gateway();
  static_cast<void>(patient.report());
  EXPECT_TRUE(patient.report().unconnected.empty()) << "relays need a moment";
}

TEST(Observed, ARecordNamesTheReplicasTriedAndWhatTheChoiceWasMadeFrom) {
  Replica alive("alive");
  const http::ClosedPort gone;
  Fleet fleet;
  fleet.add("a", {gone.url(), alive.url()}).serving.path = "/a";
  fleet.apply();
  std::optional<fleet::RequestRecord> retried;
  for (int i = 0; i < 4 && !retried; ++i) {
    EXPECT_EQ(fleet.ask("/a").status, 200);
    for (const fleet::RequestRecord& record : fleet.records(1))
      if (record.tries == 2) retried = record;
  }
  ASSERT_TRUE(retried);
  ASSERT_EQ(retried->attempts.size(), 2U);
  EXPECT_EQ(retried->attempts[0].replica, "a/0#1");
  EXPECT_EQ(retried->attempts[0].outcome, RequestOutcome::failed) << "the replica could not be reached";
  EXPECT_FALSE(retried->attempts[0].reason.empty());
  EXPECT_EQ(retried->attempts[1].replica, "a/1#2");
  EXPECT_EQ(retried->outcome, RequestOutcome::answered);
  EXPECT_EQ(retried->status, 200U);
  EXPECT_EQ(retried->policy, "least_loaded");
  ASSERT_EQ(retried->candidates.size(), 2U) << "those of the last choice";
  EXPECT_EQ(retried->candidates[0].replica, "a/1#2");
  EXPECT_EQ(retried->candidates[0].verdict, fleet::CandidateVerdict::winner);
  EXPECT_EQ(retried->candidates[1].verdict, fleet::CandidateVerdict::tried);
  EXPECT_TRUE(retried->first_byte_us);
  EXPECT_GE(retried->total_us, *retried->first_byte_us);
  EXPECT_EQ(row(fleet.report().deployments, "a").retried, 1U);
}

TEST(Observed, FailuresAndClientsThatLeaveAreToldApart) {
  Replica replica("a", true);
  Fleet fleet;
  fleet.add("a", {replica.url()}).serving.path = "/a";
  fleet.apply();
  const int client = sent(fleet.url(), "GET /a HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return replica.held() == 1; }));
  ::close(client);
  const auto left = fleet.records(1);
  EXPECT_EQ(left[0].outcome, RequestOutcome::abandoned);
  EXPECT_EQ(left[0].attempts.size(), 1U);
  std::future<http::Response> held = std::async(std::launch::async, [&] { return fleet.ask("/a"); });
  ASSERT_TRUE(eventually([&] { return replica.held() == 2; }));
  fleet.keep_relays({"another"});
  EXPECT_EQ(held.get().status, 502);
  const auto failed = fleet.records(1);
  EXPECT_EQ(failed[0].outcome, RequestOutcome::failed);
  EXPECT_EQ(failed[0].status, 502U);
  EXPECT_NE(failed[0].reason.find("n1"), std::string::npos) << failed[0].reason;
  EXPECT_EQ(row(fleet.report().deployments, "a").failed, 1U);
  EXPECT_EQ(row(fleet.report().deployments, "a").abandoned, 1U);
}

TEST(Observed, NeitherKeysNorContentsAreInReportsAndLogs) {
  Replica replica("a");
  Fleet fleet;
  Deployment& deployment = fleet.add("a", {replica.url()});
  deployment.serving.path = "/a";
  deployment.model = "llama";
  const std::string key = fleet.add_caller("t7", "a");
  fleet.apply();
  const std::string secret = "hidden-words";
  const http::Headers headers{{"authorization", "Bearer " + key}, {"cookie", "c=" + secret}};
  fleet.ask("/a/" + secret + "?q=" + secret, secret, headers);
  fleet.ask("/x", R"({"model":")" + secret + R"("})", headers);
  fleet.ask("/a", "", {{"authorization", "Bearer " + secret}});
  fleet.ask("/a", "", {{"x-berth-deployment", secret}});
  fleet.ask("/a", "", {{"x-request-id", secret + " " + secret}});
  fleet::GatewayReport report;
  ASSERT_TRUE(eventually([&] {
    fleet::GatewayReport more = fleet.report();
    more.requests.insert(more.requests.end(), report.requests.begin(), report.requests.end());
    report = std::move(more);
    return report.requests.size() == 5;
  }));
  const std::string text = boost::json::serialize(format::to_json(report)), log = fleet.log();
  EXPECT_NE(text.find("t7"), text.npos);
  EXPECT_NE(log.find("caller=t7"), log.npos) << log;
  for (const std::string& word : {key, http::sha256(key), secret}) {
    EXPECT_EQ(text.find(word), text.npos) << text;
    EXPECT_EQ(log.find(word), log.npos) << log;
  }
  const fleet::GatewayReport read = format::gateway_report_of(format::to_json(report), "the report");
  EXPECT_EQ(read, report) << "what is sent is what is read";
}

}  // namespace
}  // namespace berth::gateway
