#include "format/log_line.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace berth::format {
namespace {

constexpr std::uint64_t at_us = 1'763'208'062'045'678;  // 2025-11-15 12:01:02.045

TEST(LogLine, IsLogfmt) {
  EXPECT_EQ(log_line(LogForm::logfmt, at_us, {LogLevel::info, "joined", {{"actor", "user:ann"}, {"node", "a"}}}),
            "time=2025-11-15T12:01:02.045Z level=info msg=joined actor=user:ann node=a\n");
  EXPECT_EQ(log_line(LogForm::logfmt, at_us, {LogLevel::warning, "is lost", {{"empty", ""}, {"sum", "a=b"}}}),
            "time=2025-11-15T12:01:02.045Z level=warning msg=\"is lost\" empty=\"\" sum=\"a=b\"\n");
}

TEST(LogLine, OnATerminalTheSentenceComesFirst) {
  setenv("TZ", "XXX-2", 1);  // two hours east of Greenwich
  tzset();
  const LogRecord joined{LogLevel::info, "jürgen joined", {{"actor", "user:ann"}, {"text", "a b"}}};
  EXPECT_EQ(log_line(LogForm::terminal, at_us, joined),
            "14:01:02 jürgen joined" + std::string(35, ' ') + " actor=user:ann text=\"a b\"\n");
  EXPECT_EQ(log_line(LogForm::coloured_terminal, at_us, joined),
            "14:01:02 jürgen joined" + std::string(35, ' ') + "\033[2m actor=user:ann text=\"a b\"\033[0m\n");
  EXPECT_EQ(log_line(LogForm::terminal, at_us, {LogLevel::error, "no\033[2J"}), "14:01:02 error: no\\x1b[2J\n");
  EXPECT_EQ(log_line(LogForm::coloured_terminal, at_us, {LogLevel::warning, "is lost"}),
            "14:01:02 \033[33mwarning: \033[0mis lost\n");
  EXPECT_EQ(log_line(LogForm::terminal, at_us, {LogLevel::info, std::string(60, 'x'), {{"a", "b"}}}),
            "14:01:02 " + std::string(60, 'x') + " a=b\n");
  unsetenv("TZ");
  tzset();
}

TEST(LogLine, WhatComesFromElsewhereForgesNoLineAndNoField) {
  const LogRecord record{LogLevel::error, "a\" b=\"c\nlevel=info", {{"path", "\\x"}}};
  EXPECT_EQ(log_line(LogForm::logfmt, at_us, record),
            "time=2025-11-15T12:01:02.045Z level=error msg=\"a\\\" b=\\\"c\\\\x0alevel=info\" path=\"\\\\x\"\n");
  EXPECT_EQ(log_line(LogForm::json, at_us, record),
            R"({"time":"2025-11-15T12:01:02.045Z","level":"error","msg":"a\" b=\"c\\x0alevel=info","path":"\\x"})"
            "\n");
}

}  // namespace
}  // namespace berth::format
