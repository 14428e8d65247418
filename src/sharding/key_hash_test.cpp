#include <gtest/gtest.h>

#include "berth/shard_table.hpp"

namespace berth {
namespace {

TEST(Sharding, S2_12_SipHash13IsThereWhenAskedFor) {
  const auto hash = [](std::string_view key) { return hash_key(KeyHash::siphash13_v0, key); };
  EXPECT_EQ(hash(""), 0x30406ea523c53defu);
  EXPECT_EQ(hash("a"), 0x719b50b9a4f0e9f3u);
  EXPECT_EQ(hash("user-42"), 0x78cd4ed2c0860098u);
  EXPECT_EQ(hash("user-43"), 0x2598dac9f8a80bb9u);
  EXPECT_EQ(hash("model/llama-70b"), 0xbaac499b0111c995u);
  const ShardSpace space(16, KeyHash::siphash13_v0);
  EXPECT_EQ(space.shard_of("user-42"), 8u);
  EXPECT_EQ(space.shard_of("user-43"), 9u);
  EXPECT_EQ(space.shard_of("model/llama-70b"), 5u);
  EXPECT_EQ(ShardSpace().hash(), KeyHash::xxh3_v1) << "SipHash must be requested";
}

TEST(Sharding, S2_F3_TheHashIsNamedVersionedAndHasPublishedVectors) {
  const auto hash = [](std::string_view key) { return hash_key(KeyHash::xxh3_v1, key); };
  EXPECT_EQ(hash(""), 0x2d06800538d394c2u);  // also the value XXH3's authors publish for empty input and seed 0
  EXPECT_EQ(hash("a"), 0xe6c632b61e964e1fu);
  EXPECT_EQ(hash("user-42"), 0x50fe4b21cf7b09cdu);
  EXPECT_EQ(hash("user-43"), 0xd6b45322b863a898u);
  EXPECT_EQ(hash("model/llama-70b"), 0x2c135cf28e13ca78u);
  EXPECT_EQ(hash(std::string(300, 'x')), 0xa5d1b4607dc83554u) << "long ids take another path through the hash";
  EXPECT_EQ(hash_key(std::uint64_t{0}), 0x0000000000000000u);
  EXPECT_EQ(hash_key(std::uint64_t{1}), 0xd6e8feb8b0b1032bu);
  EXPECT_EQ(hash_key(std::uint64_t{42}), 0x4239ca4088fa505eu);
  EXPECT_EQ(hash_key(std::uint64_t{0xfedcba9876543210}), 0x276ed422dbf21a3au);
  EXPECT_EQ(*key_hash_named("xxh3_v1"), KeyHash::xxh3_v1);
  EXPECT_EQ(*key_hash_named("siphash13_v0"), KeyHash::siphash13_v0);
  EXPECT_EQ(key_hash_named("md5").error().code, ErrorCode::invalid_argument);
}

TEST(Sharding, AnIdMayHoldAnyBytes) {
  const std::string_view with_zero("a\0b", 3);
  EXPECT_NE(hash_key(KeyHash::xxh3_v1, with_zero), hash_key(KeyHash::xxh3_v1, "a"));
  EXPECT_NE(hash_key(KeyHash::siphash13_v0, with_zero), hash_key(KeyHash::siphash13_v0, "a"));
}

}  // namespace
}  // namespace berth
