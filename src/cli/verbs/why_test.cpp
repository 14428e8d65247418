#include "cli/verbs/why.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "placement/test_fleet.hpp"

namespace berth::cli {

using namespace format;
using namespace machine;
namespace {

using placement::gib;
using placement::TestFleet;

struct Decided {
  DecisionRecord record;
  Explanation explanation;
};
Decided decide(const TestFleet& fleet, const Requirements& requirements, std::size_t count = 1) {
  Decided out;
  choose_group(*find_policy("least_loaded"), requirements, count, fleet, {}, 0, &out.explanation);
  out.record = make_record("pick", "", out.explanation, fleet, {});
  out.record.id = "d1";
  out.record.wall_time_us = 0;
  return out;
}
Requirements needing(std::uint64_t bytes) {
  Requirements requirements;
  requirements.memory_bytes_min = bytes;
  return requirements;
}

TEST(Why, ReasonThenDevicesThenNextStep) {
  TestFleet fleet(3);
  fleet[0].intent = Intent::cordoned;
  fleet[1].memory_bytes_free = 3 * gib;
  fleet[2].memory_bytes_promised = 14 * gib;
  fleet[2].holders = 2;
  const Decided decided = decide(fleet, needing(8 * gib));
  EXPECT_EQ(why_text(decided.record, decided.explanation),
            "no suitable device has 8.0 GiB free, because the memory is promised or used by processes (largest:\n"
            "3.0 GiB on dev-01)\n"
            "3 devices -> 2 in service -> 0 fit 8.0 GiB -> none\n"
            "\n"
            "device  verdict         cost  in flight  available  detail\n"
            "dev-00  not_in_service     -          0   16.0 GiB  cordoned\n"
            "dev-01  memory             -          0    3.0 GiB  needs 8.0 GiB, 3.0 GiB available\n"
            "dev-02  memory             -          0    2.0 GiB  needs 8.0 GiB, 2.0 GiB available\n"
            "\n"
            "each of these changes alone would have been enough; a smaller one would not:\n"
            "CHANGE                              HOW\n"
            "ask for 3.0 GiB instead of 8.0 GiB  --mem 3G\n"
            "free 5.0 GiB on dev-01              berth devices\n"
            "put dev-00 back in service          berth uncordon dev-00\n"
            "\n"
            "next: berth pick again with --mem 3G\n"
            "\n"
            "decision d1: berth pick, 1970-01-01 00:00:00 UTC, policy least_loaded\n");
}

TEST(Why, ADecisionThatFitsNeedsNoChange) {
  const Decided decided = decide(TestFleet(2), {});
  const std::string text = why_text(decided.record, decided.explanation);
  EXPECT_TRUE(
      text.starts_with("least_loaded chose dev-00 among 2 eligible devices; next is dev-01\n"
                       "2 devices -> dev-00\n"))
      << text;
  EXPECT_EQ(text.find("would have let it fit"), std::string::npos);
  EXPECT_TRUE(why_to_json(decided.record, decided.explanation).at("changes").as_array().empty());
}

TEST(Why, ARequestThatNoSingleChangeHelpsIsReported) {
  TestFleet fleet(1);
  fleet[0].intent = Intent::cordoned;
  fleet[0].health = Health::lost;
  const Decided decided = decide(fleet, {});
  EXPECT_NE(why_text(decided.record, decided.explanation).find("no single change would have let it fit\n"),
            std::string::npos);
}

TEST(Why, ARecordThatThisVersionDecidesDifferentlyShowsBoth) {
  Decided decided = decide(TestFleet(2), {});
  decided.record.winners = {DeviceId("dev-01")};
  const std::string text = why_text(decided.record, decided.explanation);
  EXPECT_NE(text.find("this version of berth decides differently: least_loaded chose dev-00"), std::string::npos);
}

TEST(Why, AWaitThatTimedOutIsNotAdvisedToWait) {
  TestFleet fleet(1);
  fleet[0].kept_for_waiting = true;
  Decided decided = decide(fleet, needing(gib));
  decided.record.verb = "run";
  EXPECT_NE(why_text(decided.record, decided.explanation).find("next: berth run again with --wait 10m\n"),
            std::string::npos);
  decided.record.waited = true;
  EXPECT_NE(why_text(decided.record, decided.explanation).find("next: berth run again; give a longer --wait\n"),
            std::string::npos);
  const auto read = read_record(boost::json::serialize(record_to_json(decided.record)), "r.json");
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->waited);
}

TEST(Why, TheJsonIsARecordThatCanBeReadAgain) {
  TestFleet fleet(2);
  fleet[0].health = Health::lost;
  const Decided decided = decide(fleet, needing(100 * gib));
  const boost::json::object object = why_to_json(decided.record, decided.explanation);
  EXPECT_EQ(object.at("explanation").at("cause").as_string(), "memory_too_small");
  EXPECT_EQ(object.at("changes").at(0).at("knob").as_string(), "fewer_bytes");
  EXPECT_EQ(object.at("changes").at(0).at("amount").to_number<std::uint64_t>(), 16 * gib);
  EXPECT_EQ(object.at("explanation").at("candidates").at(0).at("causes").as_array().size(), 2U);
  EXPECT_TRUE(read_record(boost::json::serialize(object), "r.json"));
}

}  // namespace
}  // namespace berth::cli
