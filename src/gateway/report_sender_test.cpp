#include "gateway/report_sender.hpp"

#include <gtest/gtest.h>

#include "gateway/test_fleet.hpp"

namespace berth::gateway {
namespace {

TEST(ReportSender, WhatTheServerDidNotTakeIsSentAgainAndNothingTwice) {
  std::mutex mutex;
  std::vector<std::string> bodies, lines;
  OnThread server({}, http::Server::Handler([&](const http::Request& request, const http::Responder& to) {
                    const std::lock_guard lock(mutex);
                    bodies.push_back(request.method + request.path + request.body);
                    to.send({bodies.size() == 1 ? 503 : 200, {}, "{}"});
                  }));
  int asked = 0;
  const auto ask = [&](const ReportSender::Promised& promised) {
    fleet::GatewayReport report;
    fleet::RequestRecord record;
    record.id = "first";
    if (++asked == 1) report.requests = {record};
    report.started_ms = asked <= 2 ? 1 : 2;  // something else is new
    promised->set_value(std::move(report));
  };
  const ReportSender sender([&]() -> Result<http::ClientOptions> { return http::ClientOptions{.url = server.url}; },
                            ask,
                            [&](const format::LogRecord& record) {
                              const std::lock_guard lock(mutex);
                              lines.push_back(record.message);
                            });
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return bodies.size() == 3;
  }));
  const std::lock_guard lock(mutex);
  EXPECT_TRUE(bodies[0].starts_with("PUT/api/v1/gateway/report"));
  EXPECT_NE(bodies[0].find("first"), std::string::npos);
  EXPECT_NE(bodies[1].find("first"), std::string::npos) << "the server had no room for it";
  EXPECT_EQ(bodies[2].find("first"), std::string::npos);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0], "the server refused the gateway's report, so its requests are not shown");
}

TEST(ReportSender, TheLastReportHasWhatWasNotSentAndNothingIsSentAfterIt) {
  std::mutex mutex;
  std::vector<std::string> bodies;
  OnThread server({}, http::Server::Handler([&](const http::Request& request, const http::Responder& to) {
                    const std::lock_guard lock(mutex);
                    bodies.push_back(request.body);
                    to.send({bodies.size() == 1 ? 503 : 200, {}, "{}"});
                  }));
  const auto with = [](const std::string& id) {
    fleet::GatewayReport report;
    report.requests.emplace_back().id = id;
    return report;
  };
  ReportSender sender([&]() -> Result<http::ClientOptions> { return http::ClientOptions{.url = server.url}; },
                      [&](const ReportSender::Promised& promised) { promised->set_value(with("early")); },
                      [](const format::LogRecord&) {});
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return bodies.size() == 1;
  }));
  sender.finish(with("late"));
  const std::lock_guard lock(mutex);
  ASSERT_GE(bodies.size(), 2U);
  EXPECT_NE(bodies.back().find("late"), std::string::npos);
  EXPECT_NE((bodies.back() + bodies[1]).find("early"), std::string::npos);
}

TEST(ReportSender, ARecordThatTheServerCannotReadDoesNotKeepLaterOnesAway) {
  std::mutex mutex;
  std::vector<std::string> bodies;
  OnThread server({}, http::Server::Handler([&](const http::Request& request, const http::Responder& to) {
                    const std::lock_guard lock(mutex);
                    bodies.push_back(request.body);
                    to.send({request.body.find("bad") == std::string::npos ? 200 : 400, {}, "{}"});
                  }));
  int asked = 0;
  const auto ask = [&](const ReportSender::Promised& promised) {
    fleet::GatewayReport report;
    fleet::RequestRecord record;
    record.id = ++asked == 1 ? "bad" : "good";
    report.requests = {record};
    promised->set_value(std::move(report));
  };
  const ReportSender sender([&]() -> Result<http::ClientOptions> { return http::ClientOptions{.url = server.url}; },
                            ask, [](const format::LogRecord&) {});
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return bodies.size() >= 2;
  }));
  const std::lock_guard lock(mutex);
  EXPECT_NE(bodies[0].find("bad"), std::string::npos);
  EXPECT_EQ(bodies[1].find("bad"), std::string::npos);
  EXPECT_NE(bodies[1].find("good"), std::string::npos);
}

}  // namespace
}  // namespace berth::gateway
