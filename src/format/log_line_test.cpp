#include "format/log_line.hpp"

#include <gtest/gtest.h>

namespace berth::format {
namespace {

constexpr std::uint64_t at_us = 1'763'208'062'045'678;  // 2025-11-15 12:01:02.045

TEST(LogLine, IsLogfmt) {
  EXPECT_EQ(log_line(LogForm::logfmt, at_us, {LogLevel::info, "joined", {{"actor", "user:ann"}, {"node", "a"}}}),
            "time=2025-11-15T12:01:02.045Z level=info msg=joined actor=user:ann node=a\n");
  EXPECT_EQ(log_line(LogForm::logfmt, at_us, {LogLevel::warning, "is lost", {{"empty", ""}, {"sum", "a=b"}}}),
            "time=2025-11-15T12:01:02.045Z level=warning msg=\"is lost\" empty=\"\" sum=\"a=b\"\n");
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
