// What releases have sent between an agent and its relay, which outlives the agent's version.
#include "fleet_format/test_fleet_nouns.hpp"
#include "fleet_format/test_golden.hpp"
#include "relay/control_description.hpp"

namespace berth::relay {
namespace {

template <class Value>
format::golden::Noun noun(Result<Value> (*read)(std::string_view)) {
  return {[](Random& random) { return format::noun_to_json(format::some_value<Value>(random, {})); },
          [read](std::string_view text) -> Result<boost::json::object> {
            return format::noun_to_json(BERTH_TRY(read(text)));
          }};
}

TEST(RelayGolden, WhatEveryReleaseSentIsReadAndKept) {
  const auto found = format::golden::expect_all_kept(
      {{"relay_control", noun<Control>(read_control)}, {"relay_answer", noun<ControlAnswer>(read_control_answer)}});
  EXPECT_FALSE(found.contains("0.1.0")) << "0.1.0 had no relays";
  EXPECT_EQ(found.at("0.2.0").size(), 2u);
}

}  // namespace
}  // namespace berth::relay
