#include "server/gateway_reports.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "fleet_format/fleet_json.hpp"
#include "server/request_metrics.hpp"
#include "server/route_view.hpp"
#include "server/test_leader.hpp"
#include "server/unconnected.hpp"

namespace berth::server {
namespace {

const TimePoint reports_start = TimePoint() + 1h;

// `requests` requests to "a" since the gateway started, each of 3 ms.
fleet::GatewayReport counted(std::uint64_t requests, std::uint64_t started_ms = 1) {
  fleet::GatewayReport report;
  report.started_ms = started_ms;
  fleet::RequestCounts row;
  row.name = "a";
  row.answered["2xx"] = requests;
  row.rejected["full"] = requests / 10;
  row.in_flight = 2;
  for (std::uint64_t i = 0; i < requests; ++i) {
    row.first_byte.add(3ms);
    row.total.add(3ms);
  }
  report.deployments = {row};
  row.name = "a/0#1";
  report.replicas = {row};
  return report;
}

fleet::RequestRecord request_of(const std::string& id, std::uint64_t at_ms) {
  fleet::RequestRecord record;
  record.id = id;
  record.at_ms = at_ms;
  return record;
}

TEST(GatewayReports, RatesAreThoseOfTheLastSecondsAndAbsentBeforeTheyAreKnown) {
  GatewayReports reports;
  TimePoint now = reports_start;
  EXPECT_FALSE(reports.of_deployment("a", now));
  reports.take("head", counted(1000), now);
  EXPECT_FALSE(reports.of_deployment("a", now)->requests_per_s) << "the earlier count is not known";
  EXPECT_FALSE(reports.of_deployment("a", now)->first_byte_s_p50) << "the measured times may be old";
  EXPECT_EQ(reports.of_deployment("a", now)->in_flight, 2U);
  for (std::uint64_t second = 1; second <= 60; ++second) {
    now += 1s;
    reports.take("head", counted(1000 + (second <= 30 ? 100 * second : 3000)), now);
    const auto traffic = reports.of_deployment("a", now);
    if (second <= 30) {
      EXPECT_NEAR(*traffic->requests_per_s, 110, 2) << second;
      EXPECT_NEAR(*traffic->rejected_per_s, 10, 2) << second;
    } else if (second > 50) {
      EXPECT_EQ(traffic->requests_per_s, 0) << "no request came in the last 20 s, " << second;
      EXPECT_FALSE(traffic->total_s_p50);
    }
  }
  EXPECT_FALSE(reports.of_replica("a/1#2", now));
  reports.take("head", counted(5, 2), now);
  EXPECT_FALSE(reports.of_deployment("a", now)->requests_per_s) << "the gateway was started again";
}

TEST(GatewayReports, GatewaysAreSummedAndASilentOneCountsForFiveSeconds) {
  GatewayReports reports;
  reports.take("head", counted(0), reports_start);
  reports.take("edge", counted(0), reports_start);
  reports.take("head", counted(100), reports_start + 10s);
  reports.take("edge", counted(300), reports_start + 10s);
  const auto both = reports.of_replica("a/0#1", reports_start + 10s);
  EXPECT_NEAR(*both->requests_per_s, 44, 0.1) << "10 % were rejected as well";
  EXPECT_EQ(both->in_flight, 4U);
  EXPECT_GT(*both->first_byte_s_p99, 0.002);
  EXPECT_LE(*both->first_byte_s_p99, 0.004);
  reports.take("head", counted(100), reports_start + 14s);
  EXPECT_EQ(reports.current(reports_start + 15s).size(), 2U);
  EXPECT_EQ(reports.current(reports_start + 15s + 1ms).size(), 1U);
  EXPECT_EQ(reports.of_replica("a/0#1", reports_start + 16s)->in_flight, 2U);
  EXPECT_FALSE(reports.of_replica("a/0#1", reports_start + 20s));
}

TEST(GatewayReports, AGatewayThatWasReplacedCountsUntilItEndsWithoutDisturbingItsSuccessor) {
  GatewayReports reports;
  const auto leaving = [](std::uint64_t requests, std::uint64_t in_flight) {
    fleet::GatewayReport report = counted(requests);
    report.is_leaving = true;
    report.deployments[0].in_flight = in_flight;
    return report;
  };
  const auto has = [&](const std::string& line, TimePoint now) {
    return request_metrics_text(reports, now).find(line + "\n") != std::string::npos;
  };
  reports.take("head", counted(100), reports_start);
  reports.take("head", counted(100), reports_start + 1s);
  reports.take("head", counted(0, 2), reports_start + 2s);
  EXPECT_EQ(reports.of_deployment("a", reports_start + 2s)->in_flight, 2U)
      << "the old gateway has not reported that it leaves";
  reports.take("head", leaving(100, 1), reports_start + 3s);
  reports.take("head", counted(40, 2), reports_start + 12s);
  reports.take("head", leaving(110, 0), reports_start + 12s);
  const TimePoint now = reports_start + 12s;
  EXPECT_EQ(reports.of_deployment("a", now)->in_flight, 2U);
  EXPECT_NEAR(*reports.of_deployment("a", now)->requests_per_s, 44 / 10.0 + 11 / 12.0, 0.1);
  EXPECT_EQ(reports.current(now).at("head")->started_ms, 2U);
  EXPECT_TRUE(has(R"(berth_requests_total{gateway="head",deployment="a",outcome="2xx"} 40)", now));
  EXPECT_TRUE(has(R"(berth_requests_total{gateway="head",leaving="1",deployment="a",outcome="2xx"} 110)", now));
  reports.take("head", counted(40, 2), now + 6s);
  EXPECT_EQ(request_metrics_text(reports, now + 6s).find("leaving"), std::string::npos) << "the old gateway has ended";
  for (std::uint64_t start = 10; start < 10'000; ++start) {
    fleet::GatewayReport forged = leaving(1, 0);
    forged.started_ms = start;
    reports.take("head", forged, now + 6s);
  }
  EXPECT_LE(reports.leaving(now + 6s).size(), GatewayReports::gateways_of_name_max) << "memory is bounded";
}

TEST(GatewayReports, OfCallersTheTimesOfAllGatewaysAreInTheMetrics) {
  GatewayReports reports;
  fleet::GatewayReport report;
  fleet::RequestCounts row;
  row.name = "t7";
  report.callers = {row};
  reports.take("head", report, reports_start);
  for (int i = 0; i < 100; ++i) report.callers[0].first_byte.add(3ms), report.callers[0].total.add(100ms);
  report.callers[0].answered["2xx"] = 100;
  report.callers[0].retried = 10;
  report.callers[0].waiting = 3;
  report.callers[0].rejected["full"] = 2;
  const TimePoint now = reports_start + 10s;
  reports.take("head", report, now);
  EXPECT_EQ(reports.callers(now), std::set<std::string>{"t7"});
  EXPECT_EQ(reports.of_caller("t7", now)->retried_per_s, 1);
  EXPECT_EQ(reports.of_caller("t7", now)->waiting, 3U);
  const std::string text = request_metrics_text(reports, now);
  for (const char* line : {"berth_caller_first_byte_seconds{caller=\"t7\",quantile=\"0.5\"} 0.003\n",
                           "berth_caller_request_seconds{caller=\"t7\",quantile=\"0.99\"} 0.1",
                           "berth_caller_requests_rejected_total{gateway=\"head\",caller=\"t7\",reason=\"full\"} 2\n",
                           "berth_caller_request_retries_total{gateway=\"head\",caller=\"t7\"} 10\n",
                           "berth_caller_requests_waiting{gateway=\"head\",caller=\"t7\"} 3\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(GatewayReports, OfReplicasTheTimesOfAllGatewaysAreInTheMetrics) {
  GatewayReports reports;
  fleet::GatewayReport report;
  report.replicas.emplace_back().name = "chat/0#17";
  for (const char* const gateway : {"head", "edge"}) reports.take(gateway, report, reports_start);
  for (int i = 0; i < 100; ++i) report.replicas[0].first_byte.add(3ms), report.replicas[0].total.add(100ms);
  const TimePoint now = reports_start + 10s;
  for (const char* const gateway : {"head", "edge"}) reports.take(gateway, report, now);
  const std::string text = request_metrics_text(reports, now);
  const std::string labels = "{deployment=\"chat\",replica=\"chat/0\",incarnation=\"17\",quantile=";
  for (const std::string& line : {"\nberth_replica_first_byte_seconds" + labels + "\"0.5\"} 0.003\n",
                                  "\nberth_replica_request_seconds" + labels + "\"0.99\"} 0.1"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(GatewayReports, TheLastRequestsAreKeptAndTheNewestOfAnIdComesFirst) {
  GatewayReports reports;
  fleet::GatewayReport report;
  for (std::uint64_t i = 0; i < GatewayReports::records_max + 5; ++i)
    report.requests.push_back(request_of("r" + std::to_string(i), i));
  report.requests.push_back(request_of("twice", 1));
  report.requests.push_back(request_of("twice", 2));
  report.requests.push_back(request_of("twice", 2));
  reports.take("head", std::move(report), reports_start);
  EXPECT_EQ(reports.records(), GatewayReports::records_max);
  EXPECT_TRUE(reports.find("r4").empty());
  ASSERT_EQ(reports.find("r100").size(), 1U);
  EXPECT_EQ(reports.find("r100")[0].gateway, "head");
  const auto twice = reports.find("twice");
  ASSERT_EQ(twice.size(), 2U) << "a report that came twice";
  EXPECT_EQ(twice[0].at_ms, 2U);
}

TEST(GatewayReports, MetricsAreHistogramsOfPrometheusPerGateway) {
  GatewayReports reports;
  EXPECT_EQ(request_metrics_text(reports, reports_start).find("{"), std::string::npos) << "nothing is known";
  fleet::GatewayReport report = counted(3);
  report.deployments[0].first_byte.add(1h);
  fleet::RequestCounts row;
  row.name = "a\"b";
  row.failed = 1;
  report.callers = {row};
  row = {};
  row.rejected["no_route"] = 7;
  report.deployments.push_back(row);
  reports.take("head", std::move(report), reports_start);
  const std::string text = request_metrics_text(reports, reports_start);
  for (const char* line : {
           "# TYPE berth_request_first_byte_seconds histogram\n",
           "berth_requests_total{gateway=\"head\",deployment=\"a\",outcome=\"2xx\"} 3\n",
           "berth_requests_total{gateway=\"head\",outcome=\"rejected\"} 7\n",
           "berth_requests_rejected_total{gateway=\"head\",reason=\"no_route\"} 7\n",
           "berth_requests_in_flight{gateway=\"head\",deployment=\"a\"} 2\n",
           "berth_request_first_byte_seconds_bucket{gateway=\"head\",deployment=\"a\",le=\"0.002\"} 0\n",
           "berth_request_first_byte_seconds_bucket{gateway=\"head\",deployment=\"a\",le=\"0.004\"} 3\n",
           "berth_request_first_byte_seconds_bucket{gateway=\"head\",deployment=\"a\",le=\"262.144\"} 3\n",
           "berth_request_first_byte_seconds_bucket{gateway=\"head\",deployment=\"a\",le=\"+Inf\"} 4\n",
           "berth_request_first_byte_seconds_count{gateway=\"head\",deployment=\"a\"} 4\n",
           "berth_request_seconds_sum{gateway=\"head\",deployment=\"a\"} 0.009\n",
           "berth_replica_ejected{gateway=\"head\",deployment=\"a\",replica=\"a/0\",incarnation=\"1\"} 0\n",
           "berth_caller_requests_total{gateway=\"head\",caller=\"a\\\"b\",outcome=\"failed\"} 1\n",
       })
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(request_metrics_text(reports, reports_start + 6s).find("{"), std::string::npos) << "the report is too old";
}

TEST(GatewayReports, RequestsWithoutAValidKeyDisplaceNoOthers) {
  GatewayReports reports;
  fleet::GatewayReport report;
  report.requests = {request_of("mine", 1)};
  reports.take("head", report, reports_start);
  fleet::RequestRecord stranger = request_of("mine", 2);
  stranger.outcome = fleet::RequestOutcome::rejected;
  stranger.status = 401;
  report.requests.assign(GatewayReports::records_max + 1, stranger);
  reports.take("head", report, reports_start);
  EXPECT_EQ(reports.records(), 1U);
  const auto found = reports.find("mine");
  ASSERT_EQ(found.size(), 2U) << "a few records of strangers are kept";
  EXPECT_EQ(found[0].at_ms, 1U) << "although the stranger's has the same id and is newer";
}

TEST(GatewayReports, WithTwoRowsOfOneNameAreRefused) {
  fleet::GatewayReport report = counted(1);
  const auto is_taken = [&] {
    return format::read_document(format::document({{"report", format::to_json(report)}}), "it",
                                 [](const boost::json::value& value, const std::string& where) {
                                   return format::gateway_report_of(value.at("report"), where);
                                 })
        .has_value();
  };
  EXPECT_TRUE(is_taken());
  report.replicas.push_back(report.replicas.front());
  EXPECT_FALSE(is_taken());
}

class RouteTest : public LeaderTest {
 protected:
  // Two replicas of "batch", below /batch.
  void serve_two(std::uint32_t max_concurrent, const ServingOptions& serving = {}) {
    DeploymentSpec spec;
    spec.serving = serving;
    spec.replicas = 2;
    spec.environment["PORT"] = "{port}";
    spec.serving.path = "/batch";
    spec.serving.max_concurrent = max_concurrent;
    spec.name = DeploymentId("batch");
    spec.model = "llama-3.1-8b";
    spec.command = {"serve"};
    spec.cpu = true;
    Project project;
    project.cluster.name = "lab";
    project.deployments.push_back(std::move(spec));
    EXPECT_TRUE(report("a-1", 1, 100));
    EXPECT_TRUE(leader_.apply(project, std::nullopt, "user:ann"));
    EXPECT_TRUE(leader_.step());
    std::vector<fleet::ReplicaReport> replicas;
    for (const auto& order : leader_.orders(node_).orders) {
      fleet::ReplicaReport ready;
      ready.key = order.assigned.key();
      ready.state = fleet::ReplicaState::ready;
      replicas.push_back(ready);
      names_.push_back(to_string(ready.key));
    }
    ASSERT_EQ(names_.size(), 2U);
    EXPECT_TRUE(report("a-1", 2, 100, 0, replicas));
  }
  fleet::RouteAnswer ask(const RouteQuestion& question) { return route_view(leader_, reports_, question); }
  void reported(std::uint64_t in_flight_first, bool is_ejected = false) {
    fleet::GatewayReport gateway_report;
    gateway_report.started_ms = 1;
    fleet::RequestCounts row;
    row.name = names_[0];
    row.in_flight = in_flight_first;
    row.is_ejected = is_ejected;
    gateway_report.replicas = {row};
    reports_.take("head", gateway_report, leader_.now());
  }
  GatewayReports reports_;
  std::vector<std::string> names_;
};

TEST_F(RouteTest, ARequestIsFoundByNamePathAndModelAndGoesWhereThereIsLessToDo) {
  serve_two(4);
  EXPECT_EQ(ask({DeploymentId("batch"), "", "", ""}).matched_by, "deployment");
  EXPECT_EQ(ask({{}, "", "/batch/x", ""}).matched_by, "address");
  EXPECT_EQ(ask({{}, "", "/v1/chat", "llama-3.1-8b"}).matched_by, "model");
  EXPECT_FALSE(ask({{}, "", "/v1/chat", "gpt"}).deployment);
  EXPECT_FALSE(ask({DeploymentId("none"), "", "", ""}).deployment);
  EXPECT_TRUE(ask({{}, "", "/batch", ""}).gateways.empty());
  reported(3);
  const fleet::RouteAnswer answer = ask({{}, "", "/batch", ""});
  EXPECT_EQ(answer.replica, names_[1]);
  EXPECT_EQ(answer.policy, "least_loaded");
  EXPECT_EQ(answer.text, "the request is for batch and would go to " + names_[1]);
  ASSERT_EQ(answer.candidates.size(), 2U);
  EXPECT_EQ(answer.candidates[1].replica, names_[0]);
  EXPECT_EQ(answer.candidates[1].verdict, fleet::CandidateVerdict::runner_up);
  EXPECT_EQ(answer.candidates[1].in_flight, 3U);
  EXPECT_EQ(answer.gateways, std::vector<std::string>{"head"});
}

TEST_F(RouteTest, WhatIsFullOrEjectedGetsNothing) {
  serve_two(1);
  reported(0, true);
  const fleet::RouteAnswer other = ask({{}, "", "/batch", ""});
  EXPECT_EQ(other.replica, names_[1]);
  ASSERT_EQ(other.candidates.size(), 2U);
  EXPECT_EQ(other.candidates[1].verdict, fleet::CandidateVerdict::ejected);
  reported(1);
  EXPECT_EQ(ask({{}, "", "/batch", ""}).candidates[1].verdict, fleet::CandidateVerdict::full);
}

TEST_F(RouteTest, ANodeWithoutAConnectionToTheGatewaysIsNamedWithWhatToDo) {
  serve_two(4);
  fleet::GatewayReport report;
  report.started_ms = 1;
  report.unconnected = {node_, NodeId("unknown")};
  reports_.take("head", report, leader_.now());
  const std::string advice =
      "; node gpu-1 has no connection to gateway head, so its replicas get no requests from this gateway; make sure "
      "that "
      "gpu-1 can connect to that gateway, and see the log of berth agent there";
  const fleet::RouteAnswer none = ask({{}, "", "/batch", ""});
  EXPECT_FALSE(none.replica);
  EXPECT_EQ(
      none.text,
      "the request is for batch, and no gateway is connected to a node with a replica; it would wait, and get a 503 "
      "if none connects in time" +
          advice);
  ASSERT_EQ(none.candidates.size(), 2U);
  for (const fleet::RequestCandidate& candidate : none.candidates)
    EXPECT_EQ(candidate.verdict, fleet::CandidateVerdict::not_connected);
  report.unconnected.clear();
  reports_.take("edge", report, leader_.now());
  const fleet::RouteAnswer by_other = ask({{}, "", "/batch", ""});
  ASSERT_TRUE(by_other.replica) << "another gateway reaches the replicas";
  EXPECT_EQ(by_other.text, "the request is for batch and would go to " + *by_other.replica + advice);
  report.unconnected = {node_};
  lose_node();
  reports_.take("head", report, leader_.now());
  EXPECT_TRUE(unconnected_nodes(leader_, reports_).empty()) << "the gateway is silent, which is reported elsewhere";
}

TEST(UnconnectedText, NamesAnAddressThatTheNodesCanReach) {
  EXPECT_EQ(text_of({"edge", "127.0.0.1:8081", {NodeId("a"), NodeId("b")}, true}, "it"),
            "nodes a and b have no connection to it, so their replicas get no requests from this gateway; the gateway "
            "listens on 127.0.0.1:8081, which other machines cannot reach: give it another address with berth serve "
            "--gateway ADDRESS:PORT or berth gateway --listen ADDRESS:PORT");
  const auto expect_part = [](const Unconnected& found, const std::string& part) {
    EXPECT_NE(text_of(found, "it").find(part), std::string::npos) << text_of(found, "it");
  };
  expect_part({"edge", "127.0.0.1:8081", {NodeId("a")}, false}, "make sure that a can connect to 127.0.0.1:8081,");
  expect_part({"edge", ":8081", {NodeId("a")}, true},
              "make sure that a can connect to port 8081 of the server's machine,");
  std::vector<NodeId> many;
  for (const char* const name : {"a", "b", "c", "d", "e"}) many.emplace_back(name);
  expect_part({"edge", "10.0.0.1:8081", many, true}, "nodes a, b, c and 2 more have no connection to it,");
}

TEST_F(RouteTest, WhereAKeyDecidesTheAnswerSaysHowToAskAboutIt) {
  ServingOptions serving;
  serving.key = "header:x-session";
  serve_two(4, serving);
  const fleet::RouteAnswer any = ask({{}, "", "/batch", ""});
  EXPECT_EQ(any.text, "the request is for batch and would go to " + any.replica.value_or("none") +
                          "; if it has a key (header:x-session), the key decides, and berth why key KEY "
                          "--deployment batch shows where a key belongs");
}

TEST_F(RouteTest, WithAStrictKeyNoReplicaIsNamed) {
  ServingOptions serving;
  serving.key = "header:x-session";
  serving.affinity = Affinity::strict;
  serve_two(4, serving);
  const fleet::RouteAnswer strict = ask({{}, "", "/batch", ""});
  EXPECT_FALSE(strict.replica);
  EXPECT_TRUE(strict.candidates.empty());
  EXPECT_NE(strict.text.find("without one it would get a 400"), std::string::npos) << strict.text;
}

}  // namespace
}  // namespace berth::server
