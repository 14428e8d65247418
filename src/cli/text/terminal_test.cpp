#include "cli/text/terminal.hpp"

#include "cli/text/test_text.hpp"

namespace berth::cli {

using namespace world;
namespace {

TEST(Terminal, CuttingCountsCharactersNotBytesOrColours) {
  const Style plain, rich{100, true, true};
  EXPECT_EQ(cut(plain, "abcdef", 6), "abcdef");
  EXPECT_EQ(cut(plain, "abcdef", 4), "abc~");
  EXPECT_EQ(cut(rich, "äöüäöü", 3), "äö…");
  EXPECT_EQ(cut(plain, "abc", 0), "");
  const std::string painted = paint(rich, Colour::red, "abc") + "def";
  EXPECT_EQ(shown_width(painted), 6u);
  EXPECT_EQ(cut(rich, painted, 5), "\033[31mabc\033[0md…\033[0m");
  EXPECT_EQ(paint(plain, Colour::red, "abc"), "abc");
}

TEST(Terminal, MessagesCarryNoControlCharacters) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(print_error({ErrorCode::not_found, "there is no device '\033[31mx'", "line\none"}), wrong_input);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "berth: there is no device '\\x1b[31mx'; line\\x0aone\n");
}

TEST(Terminal, AgesAreRoundedDown) {
  const auto seconds = [](int n) { return age_text(std::chrono::seconds(n)); };
  EXPECT_EQ(seconds(-1), "0 s");
  EXPECT_EQ(seconds(59), "59 s");
  EXPECT_EQ(seconds(119), "1 min");
  EXPECT_EQ(seconds(7200), "2 h");
  EXPECT_EQ(seconds(7505), "2 h 5 min");
  EXPECT_EQ(seconds(4 * 86400 + 7200), "4 d 2 h");
}

TEST(Terminal, WrappedLinesAreNoLongerThanAsked) {
  EXPECT_EQ(wrapped("one two three four", 9), (std::vector<std::string>{"one two", "three", "four"}));
  EXPECT_EQ(wrapped("averylongword x", 5), (std::vector<std::string>{"averylongword", "x"}));
}

Table people() {
  Table table({">ID", "NAME", "REMARK", ">AGE"});
  table.add({"1", "alexandra", "a remark", "40"});
  table.add({"20", "bo", "", "7"});
  return table.may_shrink(1, 4).may_go(2).may_go(3);
}

TEST(Table, WithoutALimitNothingIsCut) {
  EXPECT_EQ(people().to_text(),
            "ID  NAME       REMARK    AGE\n 1  alexandra  a remark   40\n20  bo                     7\n");
  EXPECT_EQ(people().to_text(Style{28, false, false}), people().to_text());
}

TEST(Table, ColumnsAreNarrowedThenDroppedInOrder) {
  EXPECT_EQ(lines_of(people().to_text(Style{25, false, false}))[1], " 1  alexa~  a remark   40");
  EXPECT_EQ(lines_of(people().to_text(Style{22, false, false}))[1], " 1  alexandra   40") << "the remark is left out";
  EXPECT_EQ(lines_of(people().to_text(Style{10, false, false}))[1], " 1  alexa~") << "the age is left out as well";
}

TEST(Table, NoLineIsLongerThanTheTerminal) {
  for (unsigned columns = 1; columns < 40; ++columns) {
    for (const std::string& line : lines_of(people().to_text(Style{columns, false, true})))
      EXPECT_LE(shown_width(line), columns) << line;
  }
}

// Has 60 characters, as ids of some drivers do.
const std::string long_id = "PCI-of-a-device-whose-driver-gives-very-long-names-000:8a:00";

TEST(Table, TheColumnThatIdentifiesARowAndThoseThatMayNotGoStayVisible) {
  ASSERT_EQ(long_id.size(), 60u);
  Table table({"DEVICE", "ID", "NAME", "STATE", ">FREE MEMORY", ">LOAD"});
  table.add({"opencl:0", long_id, "some processor", "healthy", "12.0/16.0 GiB", "3%"});
  table.add({"opencl:1", long_id.substr(0, 59) + "1", "some processor", "healthy", "12.0/16.0 GiB", "3%"});
  table.may_shrink_ids(1).may_shrink(2, 8).may_go(5);
  const auto lines = lines_of(table.to_text(Style{80, false, false}));
  for (const char* const shown : {"DEVICE", "ID", "NAME", "STATE", "FREE MEMORY", "LOAD"})
    EXPECT_NE(lines[0].find(shown), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("opencl:0  PCI-of-a-"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("~00:8a:00"), std::string::npos) << "the end of an id distinguishes it: " << lines[1];
  EXPECT_NE(lines[2].find("~00:8a:01"), std::string::npos) << lines[2];
  EXPECT_NE(lines[1].find("12.0/16.0 GiB"), std::string::npos) << lines[1];

  // Columns that are not marked as shrinking also shrink before they would be cut off.
  Table fixed({"ID", "STATE", "REASON"});
  fixed.add({long_id, "healthy", std::string(60, 'r')});
  const auto narrow = lines_of(fixed.to_text(Style{40, false, false}));
  EXPECT_NE(narrow[0].find("REASON"), std::string::npos) << narrow[0];
  EXPECT_NE(narrow[1].find("healthy"), std::string::npos) << narrow[1];
  EXPECT_NE(narrow[1].find("rrrr"), std::string::npos) << narrow[1];
  EXPECT_EQ(shown_width(narrow[1]), 40u);
}

TEST(Terminal, AnIdIsCutInTheMiddleAndToAnyWidth) {
  const Style style{80, false, false};
  EXPECT_EQ(cut_middle(style, "GPU-454afa53", 12), "GPU-454afa53");
  for (std::size_t width = 1; width < 60; ++width) EXPECT_EQ(cut_middle(style, long_id, width).size(), width);
}

}  // namespace
}  // namespace berth::cli
