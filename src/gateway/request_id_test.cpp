#include "gateway/request_id.hpp"

#include <gtest/gtest.h>

namespace berth::gateway {
namespace {

TEST(RequestId, APlainOneIsKeptAndAnotherIsReplaced) {
  SeededRandom random(1);
  EXPECT_EQ(request_id("Order-7.a_b", random), "Order-7.a_b");
  EXPECT_EQ(request_id(std::string(64, 'x'), random), std::string(64, 'x'));
  for (const std::string& given : {std::string(), std::string(65, 'x'), std::string("a b"), std::string("a\"b"),
                                   std::string("\xc3\xa4"), std::string("a/b")}) {
    const std::string made = request_id(given, random);
    EXPECT_EQ(made.size(), 16U) << given;
    EXPECT_EQ(made.find_first_not_of("0123456789abcdef"), made.npos) << made;
  }
  EXPECT_NE(request_id(std::nullopt, random), request_id(std::nullopt, random));
}

TEST(TraceParent, AValidOneKeepsItsTraceAndGetsAnotherParent) {
  SeededRandom random(1);
  const std::string trace = "0af7651916cd43dd8448eb211c80319c", parent = "b7ad6b7169203331";
  for (const std::string& given : {"00-" + trace + "-" + parent + "-01", "cc-" + trace + "-" + parent + "-01-later"}) {
    const TraceParent next = trace_parent(given, random);
    EXPECT_FALSE(next.is_new);
    EXPECT_EQ(next.text.substr(0, 36), "00-" + trace + "-");
    EXPECT_NE(next.text.substr(36, 16), parent);
    EXPECT_EQ(next.text.substr(52), "-01");
  }
}

TEST(TraceParent, OneThatIsNotValidIsReplaced) {
  SeededRandom random(1);
  const std::string trace = "0af7651916cd43dd8448eb211c80319c", parent = "b7ad6b7169203331";
  for (const std::string& given :
       {std::string("x"), "00-" + trace + "-" + parent + "-0", "00-" + trace + "-" + parent + "-01-more",
        "ff-" + trace + "-" + parent + "-01", "00-" + std::string(32, '0') + "-" + parent + "-01",
        "00-" + trace + "-" + std::string(16, '0') + "-01", "00-" + std::string(32, 'A') + "-" + parent + "-01"}) {
    const TraceParent next = trace_parent(given, random);
    EXPECT_TRUE(next.is_new) << given;
    EXPECT_EQ(next.text.size(), 55U);
    EXPECT_NE(next.text.substr(3, 32), trace);
    EXPECT_FALSE(trace_parent(next.text, random).is_new) << "the generated id is valid: " << next.text;
  }
}

}  // namespace
}  // namespace berth::gateway
