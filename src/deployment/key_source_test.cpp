#include "deployment/key_source.hpp"

#include <gtest/gtest.h>

namespace berth::deployment {
namespace {

using Kind = KeySource::Kind;

TEST(KeySource, NamesAHeaderACookieOrAMember) {
  EXPECT_EQ(*parse_key_source("header:X-Session"), (KeySource{Kind::header, "x-session"}));
  EXPECT_EQ(*parse_key_source("cookie:SID"), (KeySource{Kind::cookie, "SID"}));
  EXPECT_EQ(*parse_key_source("json:user id"), (KeySource{Kind::json, "user id"}));
  EXPECT_EQ(*parse_key_source("json:a:b"), (KeySource{Kind::json, "a:b"}));
  EXPECT_EQ(to_text(*parse_key_source("header:X-Session")), "the header x-session");
  EXPECT_EQ(to_text(*parse_key_source("json:user")), "the member \"user\" of its body");
}

TEST(KeySource, AnythingElseIsRefusedWithAWayOut) {
  for (const char* text : {"", "x-session", "header", "header:", "header:a b", "header:a\nb", "cookie:a;b", "json:",
                           "json:a\nb", "body:a", "header:authorization", "header:Cookie", "header:x-berth-key"}) {
    const auto parsed = parse_key_source(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(parsed.error().advice.find("header:NAME"), std::string::npos);
  }
  EXPECT_FALSE(parse_key_source("json:" + std::string(101, 'a')));
}

}  // namespace
}  // namespace berth::deployment
