#include "server/shard_tables.hpp"

#include <gtest/gtest.h>

#include "berth/random.hpp"
#include "berth/shard_table.hpp"
#include "deployment/key_source.hpp"
#include "fleet/bounds.hpp"

namespace berth::server {
namespace {

fleet::DesiredDeployment keyed(std::uint32_t replicas) {
  fleet::DesiredDeployment wanted;
  wanted.spec.name = DeploymentId("chat");
  wanted.spec.replicas = replicas;
  wanted.spec.serving.key = "header:x-session";
  return wanted;
}

TEST(ShardTables, AreKeptWhileADeploymentHasKeys) {
  fleet::DesiredDeployment wanted = with_shards(keyed(3));
  ASSERT_TRUE(wanted.shards);
  const ShardTable table = *ShardTable::parse(*wanted.shards);
  EXPECT_EQ(table.space().count(), deployment::key_shards);
  EXPECT_EQ(table.owners().size(), 3U);
  EXPECT_EQ(table.owners()[2].id, DeviceId("chat/2"));
  EXPECT_EQ(wanted.shards_moved, deployment::key_shards);
  wanted.spec.command = {"another"};
  EXPECT_EQ(with_shards(wanted), wanted) << "an update moves nothing";
  wanted.spec.serving.key.reset();
  wanted = with_shards(wanted);
  EXPECT_FALSE(wanted.shards);
  EXPECT_EQ(wanted.shards_moved, 0U);
}

TEST(ShardTables, OnlyAsManyShardsMoveAsMust) {
  SeededRandom random(5);
  fleet::DesiredDeployment wanted = with_shards(keyed(4));
  for (int round = 0; round < 40; ++round) {
    const ShardTable before = *ShardTable::parse(*wanted.shards);
    const std::uint32_t had = wanted.spec.replicas;
    wanted.spec.replicas = 1 + static_cast<std::uint32_t>(random.below(12));
    wanted = with_shards(wanted);
    const ShardTable after = *ShardTable::parse(*wanted.shards);
    std::uint32_t moved = 0;
    for (std::uint32_t shard = 0; shard < deployment::key_shards; ++shard)
      moved += *before.owner_of(shard) != *after.owner_of(shard);
    // The shards of the replicas that leave, or those that new replicas get.
    std::uint32_t fewest = 0;
    for (std::uint32_t i = wanted.spec.replicas; i < had; ++i)
      fewest += before.shards_of(DeviceId("chat/" + std::to_string(i)));
    for (std::uint32_t i = had; i < wanted.spec.replicas; ++i)
      fewest += after.shards_of(DeviceId("chat/" + std::to_string(i)));
    EXPECT_EQ(moved, fewest) << had << " to " << wanted.spec.replicas;
    if (moved > 0) {
      EXPECT_EQ(wanted.shards_moved, moved);
      EXPECT_EQ(after.epoch(), before.epoch() + 1);
    }
  }
}

TEST(ShardTables, OfNoReplicasAreKeptForThoseThatComeBack) {
  const fleet::DesiredDeployment before = with_shards(keyed(3));
  fleet::DesiredDeployment wanted = before;
  wanted.spec.replicas = 0;
  wanted = with_shards(wanted);
  wanted.spec.replicas = 3;
  wanted = with_shards(wanted);
  const ShardTable was = *ShardTable::parse(*before.shards), is = *ShardTable::parse(*wanted.shards);
  for (std::uint32_t shard = 0; shard < deployment::key_shards; ++shard)
    EXPECT_EQ(*was.owner_of(shard), *is.owner_of(shard));
}

TEST(ShardTables, ThatCannotBeReadAreMadeAnewAndTheLargestFitsIntoARecord) {
  fleet::DesiredDeployment wanted = keyed(deployment::keyed_replicas_max);
  wanted.spec.name = DeploymentId(std::string(63, 'n'));
  wanted.shards = "berth-shards 9\n";
  wanted = with_shards(wanted);
  ASSERT_TRUE(ShardTable::parse(*wanted.shards));
  EXPECT_LT(wanted.shards->size(), fleet::wanted_bytes_max / 4);
}

}  // namespace
}  // namespace berth::server
