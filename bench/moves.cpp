// The number of shards that change owner under `minimal_move`, compared with the fewest moves after which every owner's
// share is within one shard of its exact proportion. For a hundred rounds, owners with weight 1 or 2 join, leave and
// change their weight, so the tables have a history. The lightest owner has at least 20 shards.
#include <map>

#include "berth/random.hpp"
#include "berth/shard_table.hpp"
#include "report.hpp"

namespace berth {
namespace {

// Computed from the shares alone, without the code under test.
std::size_t fewest_moves(const ShardTable& before, const std::vector<ShardOwner>& owners) {
  std::uint64_t weights = 0;
  for (const ShardOwner& owner : owners) weights += owner.weight_milli;
  const std::uint64_t shards = before.space().count();
  std::map<DeviceId, std::uint64_t> held;
  for (std::uint32_t shard = 0; shard < shards; ++shard) ++held[*before.owner_of(shard)];
  std::uint64_t over = shards, lacking = 0, keep_one_more = 0;
  for (const ShardOwner& owner : owners) {
    const std::uint64_t whole = shards * owner.weight_milli / weights, has = held[owner.id];
    over -= whole;
    if (has < whole) lacking += whole - has;
    if (has > whole && shards * owner.weight_milli % weights != 0) ++keep_one_more;
  }
  return lacking + (over > keep_one_more ? over - keep_one_more : 0);
}

// The most shards of any owner, relative to its exact proportion.
double max_over_mean(const ShardTable& table, const std::vector<ShardOwner>& owners) {
  double weights = 0, most = 0;
  for (const ShardOwner& owner : owners) weights += owner.weight_milli;
  for (const ShardOwner& owner : owners)
    most = std::max(most, table.shards_of(owner.id) / (table.space().count() * owner.weight_milli / weights));
  return most;
}

// The share of ids that move to another device when n becomes n + 1, if ids are hashed modulo n.
double modulo_moved(std::size_t n) {
  constexpr int ids = 100'000;
  int moved = 0;
  for (int i = 0; i < ids; ++i) {
    const std::uint64_t hash = hash_key(KeyHash::siphash13_v0, "user-" + std::to_string(i));
    moved += hash % n != hash % (n + 1);
  }
  return static_cast<double>(moved) / ids;
}

struct Count {
  std::size_t moved = 0, ideal = 0, shards = 0;
};

void churn(bench::Report& report, std::size_t n) {
  const std::string tail = "/" + std::to_string(n);
  if (!report.wants("join" + tail) && !report.wants("leave" + tail) && !report.wants("reweigh" + tail) &&
      !report.wants("balance" + tail))
    return;
  SeededRandom random(n);
  std::size_t made = 0;
  const auto fresh = [&] {
    return ShardOwner{DeviceId("GPU-" + std::to_string(splitmix64(made++))),
                      static_cast<std::uint32_t>(1000 * (1 + random.below(2)))};
  };
  std::vector<ShardOwner> owners;
  while (owners.size() < n) owners.push_back(fresh());
  // Owners join one at a time. The lightest has 20 shards if all others have weight 2.
  ShardTable table = *allocate(ShardSpace(static_cast<std::uint32_t>(40 * (n + 1))), owners);
  double worst = max_over_mean(table, owners);
  const auto change = [&](Count& count) {
    count.ideal += fewest_moves(table, owners);
    Rebalanced after = *rebalance(table, owners);
    count.moved += after.moves.size();
    count.shards += table.space().count();
    table = std::move(after.table);
    worst = std::max(worst, max_over_mean(table, owners));
  };
  Count join, leave, reweigh;
  for (int round = 0; round < (n > 100 ? 10 : 100); ++round) {
    owners.push_back(fresh());
    change(join);
    owners.erase(owners.begin() + static_cast<std::ptrdiff_t>(random.below(owners.size())));
    change(leave);
    ShardOwner& owner = owners[random.below(owners.size())];
    owner.weight_milli = 3000 - owner.weight_milli;
    change(reweigh);
  }
  const auto add = [&](const std::string& name, const Count& count, std::optional<double> modulo) {
    if (!report.wants(name + tail)) return;
    const auto moved = static_cast<double>(count.moved), shards = static_cast<double>(count.shards);
    bench::Case c{.name = name + tail,
                  .ours = moved,
                  .peer = static_cast<double>(count.ideal),
                  .unit = "shards",
                  .better = bench::Better::lower,
                  .goal = 1.0,
                  .fields = {{"moved_share", moved / shards}}};
    if (modulo) c.fields.emplace_back("reference_moved_share", *modulo);
    report.add(std::move(c));
  };
  add("join", join, modulo_moved(n));
  add("leave", leave, modulo_moved(n - 1));
  add("reweigh", reweigh, std::nullopt);  // the reference has no weights
  if (report.wants("balance" + tail))
    report.add({.name = "balance" + tail,
                .ours = worst,
                .peer = 1.0,
                .unit = "max/mean",
                .better = bench::Better::lower,
                .goal = 1.05,
                .fields = {}});
}

}  // namespace
}  // namespace berth

int main(int argc, char** argv) {
  berth::bench::Report report("moves", argc, argv);
  for (const std::size_t n : {8, 64, 1024}) berth::churn(report, n);
}
