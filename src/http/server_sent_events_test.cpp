#include "http/server_sent_events.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace berth::http {
namespace {

std::vector<Event> parsed(std::string_view text, std::size_t piece_bytes) {
  std::vector<Event> events;
  EventParser parser;
  while (!text.empty()) {
    const std::size_t bytes = std::min(piece_bytes, text.size());
    EXPECT_TRUE(parser.put(text.substr(0, bytes), [&](const Event& event) { return events.push_back(event), true; }));
    text.remove_prefix(bytes);
  }
  return events;
}

TEST(ServerSentEvents, WhatIsWrittenIsRead) {
  const std::vector<Event> events{
      {"change", "1", "{\"a\": 1}"}, {"message", "2", "two\n\nlines"}, {"x", "3", ""}, {"y", "4", " s"}};
  std::string text;
  for (const Event& event : events) text += to_text(event);
  for (const std::size_t piece : {1, 2, 3, 1000}) EXPECT_EQ(parsed(text, static_cast<std::size_t>(piece)), events);
}

TEST(ServerSentEvents, NoFieldCanBeginAnother) {
  const std::string text = to_text({.name = "a\ndata: x", .id = "1\r\n\r\nevent: z", .data = "b\revent: c\r\n\nd"});
  const auto events = parsed(text, 1000);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0], (Event{"adata: x", "1event: z", "b\nevent: c\n\nd"}));
}

TEST(ServerSentEvents, ReadsAsTheStandardSays) {
  const std::string_view text =
      "\xef\xbb\xbf: comment\nretry: 5\nnonsense\ndata:first\rdata: second\r\n\r\n"
      "event: only a name\n\nid: 7\ndata\n\ndata: same id\n\ndata: not complete";
  const std::vector<Event> expected{
      {"message", "", "first\nsecond"}, {"message", "7", ""}, {"message", "7", "same id"}};
  for (const std::size_t piece : {1, 2, 5, 1000}) EXPECT_EQ(parsed(text, static_cast<std::size_t>(piece)), expected);
}

TEST(ServerSentEvents, AnEventWithoutEndIsRefused) {
  const auto none = [](const Event&) { return ADD_FAILURE(), true; };
  EventParser line;
  EXPECT_FALSE(line.put("data: " + std::string(2'000'000, 'x'), none));
  EXPECT_TRUE(line.failed());
  EventParser data;
  int puts = 0;
  while (data.put("data: " + std::string(1000, 'x') + "\n", none)) ASSERT_LT(++puts, 5000);
  EXPECT_TRUE(data.failed());
}

TEST(ServerSentEvents, TheReaderMayStop) {
  EventParser parser;
  int events = 0;
  EXPECT_FALSE(parser.put("data: 1\n\ndata: 2\n\n", [&](const Event&) { return ++events, false; }));
  EXPECT_EQ(events, 1);
  EXPECT_FALSE(parser.failed());
}

}  // namespace
}  // namespace berth::http
