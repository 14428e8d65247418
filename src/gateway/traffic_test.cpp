#include "gateway/traffic.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace berth::gateway {
namespace {

using namespace std::chrono_literals;
using fleet::RequestOutcome;

fleet::RequestRecord ended(const std::string& id, RequestOutcome outcome, std::uint64_t at_ms = 0) {
  fleet::RequestRecord record;
  record.id = id;
  record.at_ms = at_ms;
  record.outcome = outcome;
  record.deployment = DeploymentId("a");
  record.caller = "t1";
  return record;
}

TEST(TimeHistogram, PercentilesAreInTheBucketOfTheirTime) {
  fleet::TimeHistogram times;
  EXPECT_FALSE(times.quantile_s(0.5)) << "nothing is known, which is not 0";
  for (int i = 0; i < 98; ++i) times.add(3ms);
  times.add(0ms);
  times.add(1h);
  EXPECT_EQ(times.count(), 100U);
  EXPECT_GT(*times.quantile_s(0.5), 0.002);
  EXPECT_LE(*times.quantile_s(0.5), 0.004);
  EXPECT_EQ(*times.quantile_s(1), 262.144) << "the end of the last bucket";
  fleet::TimeHistogram edge;
  edge.add(250us);
  edge.add(251us);
  EXPECT_EQ(edge.counts, (std::vector<std::uint64_t>{1, 1})) << "a bucket includes its end, as `le` says";
}

TEST(Traffic, CountsByOutcomeOfDeploymentAndCaller) {
  Traffic traffic(1);
  fleet::RequestRecord answered = ended("1", RequestOutcome::answered);
  answered.status = 404;
  answered.first_byte_us = 2'000;
  answered.total_us = 5'000;
  answered.tries = 3;
  traffic.count(answered);
  fleet::RequestRecord rejected = ended("2", RequestOutcome::rejected);
  rejected.reason = "full";
  traffic.count(rejected);
  traffic.count(ended("3", RequestOutcome::failed));
  traffic.count(ended("4", RequestOutcome::abandoned));
  for (const fleet::RequestCounts& row : {traffic.deployments().at("a"), traffic.callers().at("t1")}) {
    EXPECT_EQ(row.answered, (std::map<std::string, std::uint64_t>{{"4xx", 1}}));
    EXPECT_EQ(row.rejected, (std::map<std::string, std::uint64_t>{{"full", 1}}));
    EXPECT_EQ(row.failed, 1U);
    EXPECT_EQ(row.abandoned, 1U);
    EXPECT_EQ(row.retried, 2U);
    EXPECT_EQ(row.first_byte.count(), 1U);
    EXPECT_EQ(row.total.sum_us, 5'000U);
  }
  traffic.count({"a/0#1", RequestOutcome::rejected, 0, 0ms, 1ms});
  traffic.count({"a/0#1", RequestOutcome::answered, 200, 1ms, 2ms});
  EXPECT_EQ(traffic.replicas().at("a/0#1").rejected.at("refused"), 1U);
  EXPECT_EQ(traffic.replicas().at("a/0#1").total.count(), 1U) << "a refusal says nothing about the replica's speed";
  traffic.keep_only({}, {}, {});
  EXPECT_TRUE(traffic.deployments().empty() && traffic.replicas().empty() && traffic.callers().empty());
}

TEST(Traffic, CallersBeyondTheBoundShareARow) {
  Traffic traffic(1);
  std::set<std::string> callers;
  for (std::size_t i = 0; i < 10'000; ++i) {
    fleet::RequestRecord record = ended("1", RequestOutcome::answered);
    record.caller = "t" + std::to_string(i);
    callers.insert(record.caller);
    traffic.count(record);
    traffic.count(record);
  }
  EXPECT_EQ(traffic.callers().size(), fleet::report_callers_max);
  EXPECT_EQ(traffic.callers().at("t0").answered.at("0xx"), 2U) << "a caller with a row keeps it";
  const std::uint64_t others = traffic.callers().at(std::string(fleet::other_callers)).answered.at("0xx");
  EXPECT_EQ(others, 2 * (10'000 - (fleet::report_callers_max - 1)));
  traffic.keep_only({}, {}, callers);
  EXPECT_EQ(traffic.callers().size(), fleet::report_callers_max);
}

TEST(Traffic, FailedRequestsAreReportedBeforeOthersAndOnce) {
  Traffic traffic(1);
  for (std::uint64_t i = 0; i < 300; ++i) {
    traffic.count(ended("good-" + std::to_string(i), RequestOutcome::answered, i));
    if (i >= 250) traffic.count(ended("bad-" + std::to_string(i), RequestOutcome::failed, i));
  }
  const auto records = traffic.take_records();
  ASSERT_EQ(records.size(), fleet::report_records_max);
  EXPECT_EQ(std::count_if(records.begin(), records.end(),
                          [](const auto& record) { return record.outcome == RequestOutcome::failed; }),
            50);
  EXPECT_EQ(records.back().id, "good-149") << "other records as far as there is room";
  EXPECT_TRUE(traffic.take_records().empty());
  std::vector<fleet::RequestRecord> more{ended("old", RequestOutcome::answered, 1),
                                         ended("new", RequestOutcome::answered, 2),
                                         ended("bad", RequestOutcome::failed, 0)};
  limit_records(more, 2);
  EXPECT_EQ(more[0].id + " " + more[1].id, "bad new");
}

TEST(Traffic, RequestsWithoutAValidKeyDisplaceNoOthers) {
  Traffic traffic(1);
  fleet::RequestRecord stranger = ended("stranger", RequestOutcome::rejected, 9);
  stranger.status = 401;
  for (int i = 0; i < 1'000; ++i) traffic.count(stranger);
  for (std::size_t i = 1; i < fleet::report_records_max; ++i) traffic.count(ended("good", RequestOutcome::answered, 1));
  std::vector<fleet::RequestRecord> records = traffic.take_records();
  ASSERT_EQ(records.size(), fleet::report_records_max);
  EXPECT_EQ(records[fleet::report_records_max - 2].id, "good");
  EXPECT_EQ(records.back().id, "stranger");
  limit_records(records, fleet::report_records_max - 1);
  EXPECT_EQ(records.back().id, "good") << "although it is older";
  for (int i = 0; i < 1'000; ++i) traffic.count(stranger);
  EXPECT_EQ(traffic.take_records().size(), fleet::report_strangers_max);
}

}  // namespace
}  // namespace berth::gateway
