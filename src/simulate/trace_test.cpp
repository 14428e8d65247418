#include "simulate/trace.hpp"

#include <gtest/gtest.h>

#include <string>

namespace berth::simulate {
namespace {

TEST(Trace, ReadsRequestsWithAndWithoutKeyAndBlocks) {
  const auto trace = read_trace("0.5 374 44 -1 0\n4.25 879 55\r\n\t4.25  32000 0 7 2 0 13\n", "t.txt").value();
  ASSERT_EQ(trace.size(), 3U);
  EXPECT_EQ(trace[0].at_s, 0.5);
  EXPECT_EQ(trace[0].in, 374);
  EXPECT_EQ(trace[0].out, 44);
  EXPECT_EQ(trace[1].at_s, 4.25);
  EXPECT_EQ(trace[2].in, 32000);
  EXPECT_EQ(read_trace("0 1 2", "t.txt").value().size(), 1U) << "the last line needs no line break";
  EXPECT_EQ(read_trace("0 1 2\n\n", "t.txt").value().size(), 1U);
}

TEST(Trace, MalformedLinesAreRefusedWithTheirNumber) {
  struct Case {
    std::string_view line, words;
  };
  for (const auto& [line, words] : {
           Case{"soon 1 2", "arrival is \"soon\""},
           {"3", "the size in is missing"},
           {"3 1", "the size out is missing"},
           {"3 1 -2", "the size out is \"-2\""},
           {"3 1e999 2", "the size in is"},
           {"nan 1 2", "arrival is"},
           {"inf 1 2", "arrival is"},
           {"3 1x 2", "the size in is \"1x\""},
           {"\x1b[31m\xff 1 2", "arrival is \"?[31m?\""},
           {"3,1,2", "arrival is \"3,1,2\""},
           {"3 1 2 key", "the key is \"key\""},
           {"3 1 2 -1 -1", "the number of blocks is \"-1\""},
           {"3 1 2 -1 2 5", "2 blocks are announced, but there are 1"},
           {"3 1 2 -1 0 5", "0 blocks are announced, but there are 1"},
           {"3 1 2 -1 1 x", "the block \"x\""},
           {"", "arrival is missing"},
           {"1 1 2", "before the one on the line above"},
       }) {
    const auto trace = read_trace("2 5 6\n" + std::string(line) + "\n9 1 2\n", "t.txt");
    ASSERT_FALSE(trace) << line;
    EXPECT_EQ(trace.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(trace.error().message.find("t.txt, line 2: "), std::string::npos) << trace.error().message;
    EXPECT_NE(trace.error().message.find(words), std::string::npos) << trace.error().message;
  }
}

TEST(Trace, ATraceWithoutRequestsIsAnError) {
  for (const std::string_view text : {"", "\n", "  "}) EXPECT_FALSE(read_trace(text, "t.txt")) << text;
}

}  // namespace
}  // namespace berth::simulate
