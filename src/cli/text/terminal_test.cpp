#include "cli/text/terminal.hpp"

#include "cli/text/test_text.hpp"

namespace berth::cli {
namespace {

TEST(Terminal, CuttingCountsCharactersNotBytesOrColours) {
  const Style plain, rich{100, true, true};
  EXPECT_EQ(cut(plain, "abcdef", 6), "abcdef");
  EXPECT_EQ(cut(plain, "abcdef", 4), "abc~");
  EXPECT_EQ(cut(rich, "äöüäöü", 3), "äö…\033[0m");
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
  EXPECT_EQ(lines_of(people().to_text(Style{22, false, false}))[1], " 1  alexandra   40") << "the remark went";
  EXPECT_EQ(lines_of(people().to_text(Style{10, false, false}))[1], " 1  alexa~") << "the age as well";
}

TEST(Table, NoLineIsLongerThanTheTerminal) {
  for (unsigned columns = 1; columns < 40; ++columns) {
    for (const std::string& line : lines_of(people().to_text(Style{columns, false, true})))
      EXPECT_LE(shown_width(line), columns) << line;
  }
}

}  // namespace
}  // namespace berth::cli
