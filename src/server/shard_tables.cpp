#include "server/shard_tables.hpp"

#include "berth/assert.hpp"
#include "berth/shard_table.hpp"
#include "deployment/key_source.hpp"

namespace berth::server {

fleet::DesiredDeployment with_shards(fleet::DesiredDeployment wanted) {
  if (!wanted.spec.serving.key) {
    wanted.shards.reset();
    wanted.shards_moved = 0;
    return wanted;
  }
  ShardTable table{ShardSpace(deployment::key_shards)};
  if (wanted.shards) {
    // An unreadable table is created again.
    if (auto kept = ShardTable::parse(*wanted.shards)) table = *std::move(kept);
  }
  std::vector<ShardOwner> owners;
  for (std::uint32_t i = 0; i < wanted.spec.replicas; ++i)
    owners.push_back({DeviceId(wanted.spec.name.text() + "/" + std::to_string(i))});
  const auto next = rebalance(table, owners);
  BERTH_ASSERT(next);  // their names are valid, and validate() limits their number
  if (next->table.epoch() == table.epoch()) return wanted;
  wanted.shards = next->table.to_text();
  wanted.shards_moved = static_cast<std::uint32_t>(next->moves.size());
  return wanted;
}

}  // namespace berth::server
