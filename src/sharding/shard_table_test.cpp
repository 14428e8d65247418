#include "berth/shard_table.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace berth {
namespace {

std::vector<ShardOwner> owners(std::initializer_list<const char*> ids) {
  std::vector<ShardOwner> out;
  for (const char* id : ids) out.push_back({DeviceId(id)});
  return out;
}

std::string user(int i) { return "user-" + std::to_string(i); }

TEST(Sharding, S2_2_AShardCountBelowOneIsRaisedToOne) {
  EXPECT_EQ(ShardSpace(0).count(), 1u);
  EXPECT_EQ(ShardSpace(0).shard_of("user-42"), 0u);
  EXPECT_EQ(ShardSpace(1).count(), 1u);
}

TEST(Sharding, S2_3_TheShardIsTheHashModuloTheCountAndItsNameSaysSo) {
  for (const std::uint32_t count : {1u, 2u, 3u, 16u, 1000u, 1024u})
    for (int i = 0; i < 100; ++i) {
      const std::string id = user(i);
      EXPECT_EQ(ShardSpace(count).shard_of(id), hash_key(KeyHash::xxh3_v1, id) % count);
      EXPECT_EQ(ShardSpace(count, KeyHash::siphash13_v0).shard_of(id), hash_key(KeyHash::siphash13_v0, id) % count);
      EXPECT_EQ(ShardSpace(count).shard_of(std::uint64_t(i)), hash_key(std::uint64_t(i)) % count);
    }
  EXPECT_EQ(shard_name(7), "shard-7");
}

TEST(Sharding, ShardNamesAreExactlyShard0ToShardNMinus1) {
  const ShardSpace space(5);
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(shard_name(space.shard_of(user(i))));
  EXPECT_EQ(names, (std::set<std::string>{"shard-0", "shard-1", "shard-2", "shard-3", "shard-4"}));
}

TEST(Sharding, S2_11_ManyIdsSpreadEvenlyOverOwnersWhateverTheShardCount) {
  constexpr int ids = 40000;
  for (const std::uint32_t count : {16u, 1000u, 1024u}) {
    const ShardTable table = *allocate(ShardSpace(count), owners({"a", "b", "c", "d"}));
    std::map<DeviceId, int> got;
    for (int i = 0; i < ids; ++i) ++got[*table.route(user(i))];
    // Each count is binomial with a standard deviation of 87; 5 % of 10,000 is nearly six of them.
    for (const auto& [owner, number] : got) EXPECT_NEAR(number, ids / 4, ids / 4 * 0.05) << owner << " of " << count;
    EXPECT_EQ(got.size(), 4u);
  }
}

TEST(Sharding, NumbersInEveryStrideSpreadAsWellAsText) {
  const ShardTable table = *allocate(ShardSpace(), owners({"a", "b", "c", "d"}));
  for (const std::uint64_t stride :
       {1ull, 2ull, 3ull, 10ull, 64ull, 1000ull, 4097ull, 1ull << 20, 1ull << 32, (1ull << 32) + 1, 1ull << 48}) {
    std::map<DeviceId, int> got;
    for (std::uint64_t i = 0; i < 40000; ++i) ++got[*table.route(i * stride)];
    for (const auto& [owner, number] : got) EXPECT_NEAR(number, 10000, 700) << owner << " in steps of " << stride;
    EXPECT_EQ(got.size(), 4u) << stride;
  }
}

TEST(Sharding, S2_F2_AllIdsOfAShardHaveOneOwner) {
  // Three owners do not divide 16 shards, so a hash of the id modulo the owners would split some.
  const ShardTable table = *allocate(ShardSpace(16), owners({"a", "b", "c"}));
  std::map<std::uint32_t, std::set<DeviceId>> seen;
  for (int i = 0; i < 2000; ++i) seen[table.space().shard_of(user(i))].insert(*table.route(user(i)));
  ASSERT_EQ(seen.size(), 16u);
  for (const auto& [shard, by] : seen) EXPECT_EQ(by, std::set<DeviceId>{*table.owner_of(shard)}) << shard_name(shard);
}

TEST(Sharding, ATableWithoutOwnersRoutesNowhere) {
  const ShardTable empty(ShardSpace(8));
  EXPECT_EQ(empty.route("user-42"), nullptr);
  EXPECT_EQ(empty.route(42), nullptr);
  EXPECT_EQ(empty.epoch(), 0u);
}

TEST(Sharding, ATableSurvivesItsText) {
  ShardTable table = *allocate(ShardSpace(100, KeyHash::siphash13_v0), owners({"GPU-a/sm64.0", "GPU-b", "with space"}));
  table = rebalance(table, owners({"GPU-b", "with space"}), 5)->table;
  ASSERT_EQ(table.owners().size(), 3u) << "the owner that left still holds shards";
  EXPECT_EQ(*ShardTable::parse(table.to_text()), table);
  EXPECT_EQ(*ShardTable::parse(ShardTable(ShardSpace(3)).to_text()), ShardTable(ShardSpace(3)));
}

TEST(Sharding, TheTextIsTheOneTheDocumentationShows) {  // docs/guide/sharding.md
  EXPECT_EQ(allocate(ShardSpace(4), owners({"gpu-0", "gpu-1"}))->to_text(),
            "berth-shards 1\nhash xxh3_v1\nshards 4\nepoch 1\nowner 1000 gpu-0\nowner 1000 gpu-1\n"
            "map 0*1 1*1 0*1 1*1\ncheck 2b73ab235acf2860\n");
}

TEST(Sharding, AnyDamageToTheTextIsSeen) {
  const std::string good = allocate(ShardSpace(16), owners({"a", "b"}))->to_text();
  ASSERT_TRUE(ShardTable::parse(good));
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(ShardTable::parse(bad)) << "byte " << i << " of\n" << bad;
    EXPECT_FALSE(ShardTable::parse(good.substr(0, i))) << "cut at " << i;
  }
  EXPECT_FALSE(ShardTable::parse(good + "x"));
}

std::string sealed(std::string text) {
  char check[17];
  std::snprintf(check, sizeof check, "%016llx", static_cast<unsigned long long>(hash_key(KeyHash::xxh3_v1, text)));
  return text + "check " + check + "\n";
}

TEST(Sharding, TextThatIsWholeButWrongIsRefusedWithItsLine) {
  const std::string head = "berth-shards 1\nhash xxh3_v1\nshards 4\nepoch 7\n";
  const Result<ShardTable> good = ShardTable::parse(sealed(head + "owner 1000 a\nmap 0*3 -*1\n"));
  ASSERT_TRUE(good) << good.error().to_text();
  EXPECT_EQ(good->epoch(), 7u);
  EXPECT_EQ(*good->owner_of(2), DeviceId("a"));
  EXPECT_EQ(good->owner_of(3), nullptr);

  const auto message = [](const std::string& text) {
    const Result<ShardTable> got = ShardTable::parse(sealed(text));
    return got ? std::string("parsed") : got.error().message;
  };
  EXPECT_EQ(ShardTable::parse("berth-shards 2\n").error().message,
            "The shard table is damaged: line 1 names a version that this build does not support.");
  EXPECT_EQ(message(head + "owner 1000 a\nmap 0*3\n"),
            "The shard table is damaged: line 6 does not cover every shard.");
  EXPECT_EQ(message(head + "owner 1000 a\nmap 0*5\n"),
            "The shard table is damaged: line 6 contains an impossible run of shards.");
  EXPECT_EQ(message(head + "owner 1000 a\nmap 1*4\n"),
            "The shard table is damaged: line 6 contains an impossible run of shards.");
  EXPECT_EQ(message(head + "owner 1000 b\nowner 1000 a\nmap 0*4\n"),
            "The shard table is damaged: line 6 is not in the order of the owners' ids.");
  EXPECT_EQ(message(head + "owner x a\nmap 0*4\n"),
            "The shard table is damaged: line 5 does not give an owner's weight and id.");
  EXPECT_EQ(message("berth-shards 1\nhash xxh3_v1\nshards 0\nepoch 7\nmap\n"),
            "The shard table is damaged: line 3 does not give the number of shards.");
  EXPECT_EQ(message(head + "map -*4\nmore\n"), "The shard table is damaged: line 6 is not expected.");
}

TEST(ShardTable, AnOwnerThatIsRenamedKeepsItsShards) {
  const std::vector<ShardOwner> owners = {{DeviceId("b"), 1000}, {DeviceId("d"), 2000}, {DeviceId("f"), 1000}};
  const ShardTable before = *allocate(ShardSpace(101), owners);
  for (const char* const name : {"a", "c", "e", "g"}) {
    for (const ShardOwner& owner : owners) {
      ShardTable after = before;
      ASSERT_TRUE(after.rename(owner.id, DeviceId(name)));
      EXPECT_EQ(after.epoch(), before.epoch());
      for (std::uint32_t shard = 0; shard < 101; ++shard) {
        const DeviceId was = *before.owner_of(shard);
        EXPECT_EQ(*after.owner_of(shard), was == owner.id ? DeviceId(name) : was) << owner.id << " to " << name;
      }
      // It is a table like any other: it can be written, read, and nothing moves with the same weights.
      EXPECT_EQ(*ShardTable::parse(after.to_text()), after);
      const std::vector<ShardOwner> same(after.owners().begin(), after.owners().end());
      EXPECT_TRUE(rebalance(after, same)->moves.empty());
    }
  }
  ShardTable table = before;
  EXPECT_FALSE(table.rename(DeviceId("x"), DeviceId("y")));
  EXPECT_FALSE(table.rename(DeviceId("b"), DeviceId("d")));
  EXPECT_EQ(table, before);
}

TEST(ShardTable, TheOrderOfAShardBeginsWithItsOwnerAndDependsOnNothingElse) {
  std::vector<ShardOwner> owners;
  for (int i = 0; i < 8; ++i) owners.push_back({DeviceId("a/" + std::to_string(i))});
  const ShardTable table = *allocate(ShardSpace(1024), owners);
  std::map<DeviceId, int> second;  // who takes the shards of a/0
  for (std::uint32_t shard = 0; shard < 1024; ++shard) {
    const std::vector<DeviceId> order = table.in_order(shard);
    EXPECT_EQ(order.size(), 8U);
    EXPECT_EQ(order[0], *table.owner_of(shard));
    EXPECT_EQ(std::set<DeviceId>(order.begin(), order.end()).size(), 8U);
    if (order[0] == DeviceId("a/0")) ++second[order[1]];
  }
  EXPECT_EQ(second.size(), 7U);
  for (const auto& [id, count] : second) EXPECT_LT(count, 40) << id << " takes most of 128 shards";

  // Without the last owner, the order of the others stays, except that a new owner comes first.
  std::vector<ShardOwner> fewer(owners.begin(), owners.end() - 1);
  const ShardTable after = rebalance(table, fewer)->table;
  for (std::uint32_t shard = 0; shard < 1024; ++shard) {
    std::vector<DeviceId> was = table.in_order(shard), is = after.in_order(shard);
    if (was[0] != is[0]) {
      EXPECT_EQ(was[0], DeviceId("a/7"));
      std::erase(was, is[0]);
      is.erase(is.begin());
    }
    std::erase(was, DeviceId("a/7"));
    EXPECT_EQ(was, is) << shard_name(shard);
  }
  EXPECT_TRUE(ShardTable(ShardSpace(4)).in_order(3).empty());
}

}  // namespace
}  // namespace berth
