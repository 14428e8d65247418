#include "gateway/access_log.hpp"

#include <gtest/gtest.h>

namespace berth::gateway {
namespace {

using namespace std::chrono_literals;
using fleet::RequestOutcome;

struct Logged {
  std::vector<std::string> lines = {};
  format::Log log() {
    return [this](const format::LogRecord& record) {
      lines.push_back(format::log_line(format::LogForm::logfmt, 0, record));
    };
  }
};

fleet::RequestRecord logged_request(RequestOutcome outcome, std::uint32_t status, const std::string& reason = "") {
  fleet::RequestRecord record;
  record.id = "abc";
  record.caller = "t7";
  record.deployment = DeploymentId("chat");
  record.outcome = outcome;
  record.status = status;
  record.reason = reason;
  record.waited_us = 1'500;
  record.first_byte_us = 20'007;
  record.total_us = 1'234'567;
  record.tries = 2;
  record.attempts = {{"chat/1#2", NodeId("n1"), RequestOutcome::rejected, "full", 5},
                     {"chat/0#1", NodeId("n1"), outcome, reason, 5}};
  return record;
}

TEST(AccessLog, ALineSaysWhoCalledWhatAndHowItEnded) {
  Logged logged;
  AccessLog(AccessLines::all, logged.log()).ended(logged_request(RequestOutcome::answered, 200), {});
  EXPECT_EQ(logged.lines,
            std::vector<std::string>{
                "time=1970-01-01T00:00:00.000Z level=info msg=\"the request was answered\" request=abc caller=t7 "
                "deployment=chat replica=chat/0#1 status=200 wait_ms=1.500 first_byte_ms=20.007 total_ms=1234.567 "
                "retries=1\n"});
}

TEST(AccessLog, WithoutAWordOnlyFailuresAreLoggedAndNoneOfThemFillsADisk) {
  Logged logged;
  AccessLog log(AccessLines::failed, logged.log());
  TimePoint now = TimePoint() + 1h;
  log.ended(logged_request(RequestOutcome::answered, 404), now);
  log.ended(logged_request(RequestOutcome::rejected, 401, "wrong_key"), now);
  log.ended(logged_request(RequestOutcome::abandoned, 200), now);
  EXPECT_TRUE(logged.lines.empty());
  log.ended(logged_request(RequestOutcome::answered, 500), now);
  log.ended(logged_request(RequestOutcome::rejected, 429, "full"), now);
  EXPECT_EQ(logged.lines.size(), 2U);
  for (int i = 0; i < 1000; ++i)
    log.ended(logged_request(RequestOutcome::failed, 502, "it closed the connection"), now);
  EXPECT_EQ(logged.lines.size(), AccessLog::lines_per_s);
  now += 1s;
  log.ended(logged_request(RequestOutcome::failed, 502), now);
  ASSERT_EQ(logged.lines.size(), AccessLog::lines_per_s + 2);
  EXPECT_NE(logged.lines[AccessLog::lines_per_s].find("left_out=982"), std::string::npos);
}

TEST(AccessLog, NoneIsNone) {
  Logged logged;
  AccessLog(AccessLines::none, logged.log()).ended(logged_request(RequestOutcome::failed, 502), {});
  EXPECT_TRUE(logged.lines.empty());
  EXPECT_EQ(access_lines_named("all").value(), AccessLines::all);
  EXPECT_FALSE(access_lines_named("some"));
}

}  // namespace
}  // namespace berth::gateway
