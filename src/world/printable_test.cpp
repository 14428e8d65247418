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
  EXPECT_EQ(printable("ro\u200bot\u2060\u00ad"), "ro\\u{200b}ot\\u{2060}\\u{ad}") << "invisible characters";
}

TEST(Printable, InvalidUtf8IsShownAsBytes) {
  EXPECT_EQ(printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(printable("\x9b"), "\\x9b") << "a C1 control on an 8-bit terminal";
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82") << "truncated";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last character";
}

// Passes the output in pieces of various sizes, on which the result must not depend.
std::string shown(std::string_view output) {
  std::string whole;
  for (std::size_t size = output.size() + 1; size > 0; --size) {
    PrintableOutput clean;
    std::string text;
    for (std::size_t at = 0; at < output.size(); at += size) text += clean.put(output.substr(at, size));
    text += clean.end();
    if (whole.empty()) whole = text;
    EXPECT_EQ(text, whole) << "in pieces of " << size;
  }
  return whole;
}

TEST(PrintableOutput, TextColoursAndProgressBarsAreNotChanged) {
  for (const char* text : {"a\n\tb\n", "10 %\r20 %\r\n", "Jürgen 模型 🚀 👩\u200d💻\n", "\033[1;31mred\033[0m\n",
                           "\033[38;2;1;2;3mx\033[4:3my\033[m"})
    EXPECT_EQ(shown(text), text);
}

TEST(PrintableOutput, WhatDoesMoreThanColourIsShown) {
  EXPECT_EQ(shown("\033]52;c;cm0gLXJm\a"), "\\x1b]52;c;cm0gLXJm\\x07") << "the clipboard";
  EXPECT_EQ(shown("\033]0;title\033\\"), "\\x1b]0;title\\x1b\\") << "the title";
  EXPECT_EQ(shown("\033[2J\033[H\033[A\033c"), "\\x1b[2J\\x1b[H\\x1b[A\\x1bc") << "screen and cursor";
  EXPECT_EQ(shown("\033[?1049h\033[>4;2m\033[6n"), "\\x1b[?1049h\\x1b[>4;2m\\x1b[6n") << "modes and queries";
  EXPECT_EQ(shown("\xc2\x9b"
                  "2J\x9b"
                  "2J\b\x7f"),
            "\\u{9b}2J\\x9b2J\\x08\\x7f");
  EXPECT_EQ(shown("\033\033[31mx\033[m"), "\\x1b\033[31mx\033[m");
  EXPECT_EQ(shown("\033[" + std::string(100, '1') + "m"), "\\x1b[" + std::string(100, '1') + "m")
      << "longer than a sequence that is held";
}

TEST(PrintableOutput, WhatIsIncompleteIsShownAtTheEnd) {
  EXPECT_EQ(shown("a\xf0\x9f\x9a"), "a\\xf0\\x9f\\x9a");
  EXPECT_EQ(shown("a\033[3"), "a\\x1b[3");
  EXPECT_EQ(shown("a\xf0\x9f\n"), "a\\xf0\\x9f\n") << "not held forever";
}

TEST(PrintableOutput, AColourEndsWithTheOutput) {
  EXPECT_EQ(shown("\033[31mred"), "\033[31mred\033[0m");
  EXPECT_EQ(PrintableOutput().end(), "");
}

TEST(Shortened, TextIsCutBetweenCharacters) {
  EXPECT_EQ(shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(shortened("abcdefg", 6), "abc...");
  EXPECT_EQ(shortened("ab\u20ac\u20ac", 7), "ab...") << "a character of three bytes";
}

}  // namespace
}  // namespace berth::world
