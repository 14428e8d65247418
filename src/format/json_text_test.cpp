#include "format/json_text.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace berth::format {
namespace {

namespace json = boost::json;

TEST(JsonText, NumbersArePlain) {
  EXPECT_EQ(json_text(json::value(11.6)), "11.6");
  EXPECT_EQ(json_text(json::value(2.0)), "2.0");
  EXPECT_EQ(json_text(json::value(0.0)), "0.0");
  EXPECT_EQ(json_text(json::value(-0.00025)), "-0.00025");
  EXPECT_EQ(json_text(json::value(1e6)), "1000000.0");
  EXPECT_EQ(json_text(json::value(std::uint64_t{17} << 32)), "73014444032");
  EXPECT_EQ(json_text(json::object{{"a\"b", json::array{1, 0.5, true, nullptr, "x\n"}}, {"c", json::object()}}),
            R"({"a\"b":[1,0.5,true,null,"x\n"],"c":{}})");
}

TEST(JsonText, IsReadBackAsTheSameValue) {
  json::array values{0.1, 1.0 / 3, 123456789.123, -1e-8, 3.0, 1e17, 1e300, 5e-324, 7, "text", json::array()};
  EXPECT_EQ(json::parse(json_text(values)), json::value(values));
  values.emplace_back(std::numeric_limits<double>::max());
  EXPECT_EQ(json::parse(json_text(values)), json::value(values));
}

}  // namespace
}  // namespace berth::format
