#include "format/answer_error.hpp"

#include <gtest/gtest.h>

namespace berth::format {
namespace {

TEST(AnswerErrorTest, HasCodeMessageAndAdvice) {
  const auto read =
      answer_error(R"({"schema":1,"error":{"code":"conflict","message":"it moved","advice":"try again"}})");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->code, "conflict");
  EXPECT_EQ(read->message, "it moved");
  EXPECT_EQ(read->advice, "try again");
  EXPECT_EQ(answer_error(R"({"error":{"message":"no"}})")->advice, "");
}

TEST(AnswerErrorTest, WhatIsNotTheApisIsAbsent) {
  for (const char* body : {"", "<html>", "[]", "{}", R"({"error":"no"})", R"({"error":{"message":7}})",
                           R"({"error":{"code":"x"}})", R"({"schema":1,"nodes":[]})"})
    EXPECT_FALSE(answer_error(body)) << body;
}

}  // namespace
}  // namespace berth::format
