#include "cli/text/shards_text.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "cli/text/test_text.hpp"

namespace berth::cli {
namespace {

std::string text_of(const std::string& affinity, const std::string& on_capacity_exhausted, const std::string& state) {
  return key_place_text({"chat", affinity, 7, on_capacity_exhausted, "small", {{"chat/0", state}, {"chat/1", "ready"}}},
                        Style());
}

TEST(KeyPlaceText, SaysWhatRequestsDoWhereTheReplicaHasNoRoom) {
  for (const auto& [affinity, exhausted, state, sentence] : std::vector<std::array<std::string, 4>>{
           {"strict", "queue", "ready", "Requests wait for it while it is full.\n"},
           {"strict", "queue", "gone", "Requests wait for it.\n"},
           {"strict", "reject", "ready", "Requests are rejected while it is full.\n"},
           {"strict", "reject", "gone", "Requests are rejected.\n"},
           {"strict", "fallback", "ready", "Requests go to small instead while it is full.\n"},
           {"bounded_load", "queue", "ready", "that is ready and has room, and wait while there is none:\n"},
           {"bounded_load", "reject", "ready", "that is ready and has room, and are rejected while there is none:\n"},
       }) {
    const std::string text = text_of(affinity, exhausted, state);
    EXPECT_NE(text.find(sentence), text.npos) << text;
  }
}

}  // namespace
}  // namespace berth::cli
