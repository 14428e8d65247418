// What releases have written of the nouns of a fleet (test_golden.hpp). job.jsonl and job_state.jsonl are written by
// hand (machine/job_store_test.cpp).
#include "fleet_format/fleet_json.hpp"
#include "fleet_format/test_fleet_nouns.hpp"
#include "fleet_format/test_golden.hpp"

namespace berth::format {
namespace {

template <class Make, class Take>
golden::Noun noun(Make make, Take take) {
  return {[=](Random& random) { return to_json(make(random)); },
          [=](std::string_view text) -> Result<boost::json::object> {
            return to_json(BERTH_TRY(read_document(text, "it", take)));
          }};
}

TEST(Golden, WhatEveryReleaseWroteIsReadAndKept) {
  const golden::Nouns nouns{{"wanted", noun(some_wanted, wanted_of)},
                            {"assigned", noun(some_assigned, assigned_of)},
                            {"event", noun(some_event, event_of)},
                            {"credential", noun(some_credential, credential_of)},
                            {"node", noun(some_record, node_record_of)},
                            {"orders", noun(some_orders, node_orders_of)},
                            {"report", noun(some_node_report, node_report_of)},
                            {"gateway_view", noun(some_gateway_view, gateway_view_of)},
                            {"gateway_report", noun(some_gateway_report, gateway_report_of)}};
  const auto found = golden::expect_all_kept(nouns);
  EXPECT_EQ(found.at("0.1.0").size(), nouns.size() - 2) << "0.1.0 had no gateways";
  EXPECT_EQ(found.at("0.2.0").size(), nouns.size());
  // Other tests read these.
  const std::set<std::string> others{"job", "job_state", "relay_control", "relay_answer"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(golden::folder())) {
    const std::string name = entry.path().stem();
    EXPECT_TRUE(entry.is_directory() || nouns.contains(name) || others.contains(name)) << name << " is read by no test";
  }
}

}  // namespace
}  // namespace berth::format
