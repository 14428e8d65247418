#include "berth/bytes.hpp"
#include "world/test_units.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace berth {
namespace {

using world::gib;

TEST(Bytes, AmountsOfMemoryHaveBinaryAndDecimalUnits) {
  const std::pair<const char*, std::uint64_t> good[] = {
      {"0", 0},
      {"4096", 4096},
      {"20GiB", 20 * gib},
      {"20G", 20 * gib},
      {"20g", 20 * gib},
      {"20GB", 20'000'000'000},
      {"1.5GiB", 3 * gib / 2},
      {"512 MiB", gib / 2},
      {"1T", 1024 * gib},
      {"7B", 7},
      {"0.1KB", 100},
      {"8388607TiB", 8388607ull << 40},
  };
  for (const auto& [text, bytes] : good) {
    const auto parsed = parse_bytes(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
  for (const char* text : {"", "G", "-1", "20X", "20GiBs", "1.", "1.G", " 1", "1e9", "99999999999999999999",
                           "8388608TiB", "1.0000000001G", "20 G B"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}

TEST(Bytes, UserInputNeedsAUnit) {
  const std::pair<const char*, std::uint64_t> good[] = {
      {"20G", 20 * gib}, {"20 GiB", 20 * gib}, {"20GB", 20'000'000'000}, {"20B", 20}, {"0G", 0}, {"0", 0}};
  for (const auto& [text, bytes] : good) {
    const auto parsed = parse_amount(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
  const std::pair<const char*, const char*> without[] = {{"20", "did you mean 20G?"},
                                                         {"1.5", "did you mean 1.5G?"},
                                                         {"20 ", "did you mean 20G?"},
                                                         {"16384", "did you mean 16384M?"},
                                                         {"21474836480", "did you mean 21474836480B?"}};
  for (const auto& [text, advice] : without) {
    const auto parsed = parse_amount(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(parsed.error().message.find("without a unit"), std::string::npos) << text;
    EXPECT_EQ(parsed.error().advice, advice);
  }
  for (const char* text : {"", "G", "-1", "20X", "1e9"}) EXPECT_FALSE(parse_amount(text)) << text;
}

TEST(Bytes, RoundsToOneDecimalOfTheLargestUnit) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(22 * gib), "22.0 GiB");
  EXPECT_EQ(bytes_text(3 * gib + gib / 10), "3.1 GiB");
  EXPECT_EQ(bytes_text(1024 * 1024 - 1), "1.0 MiB") << "not 1024.0 KiB";
  EXPECT_EQ(bytes_text(~std::uint64_t{0}), "16.0 EiB");
}

}  // namespace
}  // namespace berth
