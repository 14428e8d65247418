#include "world/printable.hpp"

#include <gtest/gtest.h>

namespace berth::world {
namespace {

TEST(Printable, OrdinaryNamesAreNotChanged) {
  for (const char* name : {"", "python3.11", "train (v2)", "C:\\x", "Jürgen", "模型", "🚀"})
    EXPECT_EQ(printable(name), name);
}

TEST(Printable, EscapeSequencesDoNotReachTheTerminal) {
  EXPECT_EQ(printable("\033[2J\033[31mroot"), "\\x1b[2J\\x1b[31mroot");
  EXPECT_EQ(printable("a\nberth: all is well\r\t\b\x7f"), "a\\x0aberth: all is well\\x0d\\x09\\x08\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u{9b}31m")
      << "the one-byte form of an escape sequence";
}

TEST(Printable, TextDoesNotChangeItsDirection) {
  EXPECT_EQ(printable("\u202egpj.exe"), "\\u{202e}gpj.exe");
  EXPECT_EQ(printable("\u2066a\u2069\u200f\u2028"), "\\u{2066}a\\u{2069}\\u{200f}\\u{2028}");
  EXPECT_EQ(printable("ro\u200bot\u2060\u00ad"), "ro\\u{200b}ot\\u{2060}\\u{ad}") << "characters that are not seen";
}

TEST(Printable, InvalidUtf8IsShownAsBytes) {
  EXPECT_EQ(printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(printable("\x9b"), "\\x9b") << "a C1 control on an 8-bit terminal";
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82") << "truncated";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last character";
}

TEST(Shortened, TextIsCutBetweenCharacters) {
  EXPECT_EQ(shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(shortened("abcdefg", 6), "abc...");
  EXPECT_EQ(shortened("ab\u20ac\u20ac", 7), "ab...") << "a character of three bytes";
}

}  // namespace
}  // namespace berth::world
