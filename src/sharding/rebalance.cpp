#include <algorithm>
#include <queue>
#include <tuple>

#include "berth/shard_table.hpp"

namespace berth {
namespace sharding {
namespace {

Error wrong(std::string message, std::string advice) {
  return {.code = ErrorCode::invalid_argument,
          .message = std::move(message),
          .advice = std::move(advice),
          .where = {},
          .driver = {}};
}

Error too_many_shards(std::uint32_t count) {
  return wrong("A shard table cannot have " + std::to_string(count) + " shards.",
               "Use at most " + std::to_string(ShardSpace::count_max) + ".");
}

bool by_id(const ShardOwner& a, const ShardOwner& b) { return a.id < b.id; }

__extension__ using u128 = unsigned __int128;

}  // namespace

// Works on positions: owner `i` is owners_[i] of the new table, sorted by id.
class Rebalance {
 public:
  static Result<Rebalanced> run(const ShardTable& before, std::span<const ShardOwner> wanted, std::size_t budget);
  static Rebalanced run_by_load(const ShardTable& before, std::span<const std::uint64_t> load, std::size_t budget);

 private:
  explicit Rebalance(const ShardTable& before) : table_(before) {}

  void take_owners(std::vector<ShardOwner> owners);
  std::vector<std::uint32_t> targets() const;
  void move(std::uint32_t shard, std::size_t to);
  void move_towards(const std::vector<std::uint32_t>& target, std::size_t budget);
  Rebalanced finish(const ShardTable& before);

  static constexpr std::uint16_t unowned = ShardTable::unowned;
  ShardTable table_;
  std::vector<std::uint32_t> held_;  // shards per owner
  std::vector<ShardMove> moves_;
  std::size_t moves_left_ = 0;
};

// Takes the new owners, and the old ones that still hold shards with weight 0.
void Rebalance::take_owners(std::vector<ShardOwner> owners) {
  std::sort(owners.begin(), owners.end(), by_id);
  std::vector<ShardOwner> merged = owners;
  for (const ShardOwner& old : table_.owners_)
    if (!std::binary_search(owners.begin(), owners.end(), old, by_id)) merged.push_back({old.id, 0});
  std::sort(merged.begin(), merged.end(), by_id);

  std::vector<std::uint16_t> position;
  for (const ShardOwner& old : table_.owners_)
    position.push_back(
        static_cast<std::uint16_t>(std::lower_bound(merged.begin(), merged.end(), old, by_id) - merged.begin()));
  held_.assign(merged.size(), 0);
  for (std::uint16_t& slot : table_.slots_)
    if (slot != unowned) ++held_[slot = position[slot]];
  table_.owners_ = std::move(merged);
}

// How many shards each owner should hold: the whole part of its proportion, plus one more for as
// many owners as needed to assign every shard.
std::vector<std::uint32_t> Rebalance::targets() const {
  std::uint64_t weights = 0;
  for (const ShardOwner& owner : table_.owners_) weights += owner.weight_milli;
  if (weights == 0) return held_;

  const std::uint64_t shards = table_.slots_.size();
  std::vector<std::uint32_t> target;
  std::vector<std::tuple<bool, std::uint64_t, std::size_t>> next;  // owners that get one more, in this order
  std::uint64_t left = shards;
  for (std::size_t i = 0; i < table_.owners_.size(); ++i) {
    const std::uint64_t exact = shards * table_.owners_[i].weight_milli;
    target.push_back(static_cast<std::uint32_t>(exact / weights));
    left -= target.back();
    // An owner that already holds one more keeps it, which saves a move.
    if (exact % weights != 0) next.emplace_back(held_[i] <= target.back(), weights - exact % weights, i);
  }
  std::sort(next.begin(), next.end());
  for (std::uint64_t i = 0; i < left; ++i) ++target[std::get<2>(next[i])];
  return target;
}

void Rebalance::move(std::uint32_t shard, std::size_t to) {
  std::uint16_t& slot = table_.slots_[shard];
  moves_.push_back({shard, slot == unowned ? DeviceId() : table_.owners_[slot].id, table_.owners_[to].id});
  if (slot != unowned) --held_[slot];
  ++held_[to];
  slot = static_cast<std::uint16_t>(to);
}

void Rebalance::move_towards(const std::vector<std::uint32_t>& target, std::size_t budget) {
  // The owner that lacks the most shards receives first; ties go to the lowest id.
  std::priority_queue<std::pair<std::uint32_t, std::size_t>> lacking;  // shards missing, owners counted from the end
  const std::size_t owners = target.size();
  for (std::size_t i = 0; i < owners; ++i)
    if (held_[i] < target[i]) {
      lacking.emplace(target[i] - held_[i], owners - i);
      moves_left_ += target[i] - held_[i];
    }
  const auto offer = [&](std::uint32_t shard) {
    const auto [missing, from_end] = lacking.top();
    lacking.pop();
    if (missing > 1) lacking.emplace(missing - 1, from_end);
    move(shard, owners - from_end);
    --moves_left_;
  };
  for (const bool orphans : {true, false})
    for (std::uint32_t shard = 0; shard < table_.slots_.size(); ++shard) {
      if (lacking.empty() || moves_.size() == budget) return;
      const std::uint16_t slot = table_.slots_[shard];
      const bool orphan = slot == unowned || table_.owners_[slot].weight_milli == 0;
      if (orphan == orphans && (slot == unowned || held_[slot] > target[slot])) offer(shard);
    }
}

// Owners of weight 0 without shards leave the list; a change raises the epoch.
Rebalanced Rebalance::finish(const ShardTable& before) {
  std::vector<ShardOwner> owners;
  std::vector<std::uint16_t> position;
  for (std::size_t i = 0; i < table_.owners_.size(); ++i) {
    position.push_back(static_cast<std::uint16_t>(owners.size()));
    if (table_.owners_[i].weight_milli != 0 || held_[i] != 0) owners.push_back(table_.owners_[i]);
  }
  for (std::uint16_t& slot : table_.slots_)
    if (slot != unowned) slot = position[slot];
  table_.owners_ = std::move(owners);
  if (!(table_ == before)) ++table_.epoch_;
  return {std::move(table_), std::move(moves_), moves_left_};
}

Result<Rebalanced> Rebalance::run(const ShardTable& before, std::span<const ShardOwner> wanted, std::size_t budget) {
  if (before.space_.count() > ShardSpace::count_max) return too_many_shards(before.space_.count());
  std::vector<ShardOwner> owners(wanted.begin(), wanted.end());
  std::sort(owners.begin(), owners.end(), by_id);
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const std::string& id = owners[i].id.text();
    if (id.empty() || std::any_of(id.begin(), id.end(), [](unsigned char c) { return c < ' '; }))
      return wrong("An owner's id is empty or holds control characters.", "Give every owner its stable id.");
    if (i > 0 && owners[i - 1].id == owners[i].id)
      return wrong("The owner " + id + " is given twice.", "Give every owner once, with its weight.");
  }
  // Owners that have left also count while they hold shards.
  if (owners.size() + before.owners_.size() > unowned)
    return wrong("A shard table cannot have " + std::to_string(owners.size()) + " owners.",
                 "Keep old and new owners together below " + std::to_string(unowned) + ".");

  Rebalance work(before);
  work.take_owners(std::move(owners));
  work.move_towards(work.targets(), budget);
  return work.finish(before);
}

Rebalanced Rebalance::run_by_load(const ShardTable& before, std::span<const std::uint64_t> load, std::size_t budget) {
  BERTH_ASSERT(load.size() == before.slots_.size());
  Rebalance work(before);
  work.take_owners({before.owners_.begin(), before.owners_.end()});
  const std::vector<ShardOwner>& owners = work.table_.owners_;

  std::vector<std::uint64_t> carried(owners.size(), 0);
  for (std::size_t shard = 0; shard < load.size(); ++shard)
    if (const std::uint16_t slot = work.table_.slots_[shard]; slot != unowned) carried[slot] += load[shard];
  u128 total = 0, weights = 0;
  std::vector<std::size_t> able;  // owners with a weight
  for (std::size_t i = 0; i < owners.size(); ++i)
    if (owners[i].weight_milli != 0) {
      able.push_back(i);
      total += carried[i];
      weights += owners[i].weight_milli;
    }
  // Whether i has less load per weight than j, compared without division; ties by id.
  const auto lighter = [&](std::size_t i, std::size_t j) {
    const u128 a = u128{carried[i]} * owners[j].weight_milli, b = u128{carried[j]} * owners[i].weight_milli;
    return a != b ? a < b : i < j;
  };

  while (able.size() > 1 && budget - work.moves_.size() >= 2) {
    const auto [light, heavy] = std::minmax_element(able.begin(), able.end(), lighter);
    const std::size_t cold = *light, hot = *heavy;
    const u128 cold_weight = owners[cold].weight_milli, hot_weight = owners[hot].weight_milli;
    if (u128{carried[hot]} * weights * 4 <= total * hot_weight * 5) break;

    // How much load `hot` should hand over so that both carry the same per weight.
    const auto excess = static_cast<std::uint64_t>((carried[hot] * cold_weight - carried[cold] * hot_weight) /
                                                   (hot_weight + cold_weight));
    std::vector<std::pair<std::uint64_t, std::uint32_t>> give, take;  // load, shard
    for (std::uint32_t shard = 0; shard < load.size(); ++shard) {
      if (work.table_.slots_[shard] == hot) give.emplace_back(load[shard], shard);
      if (work.table_.slots_[shard] == cold) take.emplace_back(load[shard], shard);
    }
    std::sort(take.begin(), take.end());
    std::tuple<std::uint64_t, std::uint32_t, std::uint32_t> best{excess, 0, 0};  // distance from `excess`, give, take
    for (const auto& [given, a] : give) {
      const std::uint64_t ideal = given > excess ? given - excess : 0;
      auto near = std::lower_bound(take.begin(), take.end(), std::pair(ideal, std::uint32_t{0}));
      for (int side = 0; side < 2; ++side) {
        const std::uint64_t handed = near != take.end() && given > near->first ? given - near->first : 0;
        // Handing over too much must not make `cold` as hot as `hot` was.
        if (handed > 0 && (handed <= excess || (handed - excess) * hot_weight < excess * cold_weight)) {
          best = std::min(best, std::tuple(handed > excess ? handed - excess : excess - handed, a, near->second));
        }
        if (near == take.begin()) break;
        --near;
      }
    }
    // Stop if no swap would improve the balance.
    const auto [distance, a, b] = best;
    if (distance >= excess) break;
    const std::uint64_t handed = load[a] - load[b];
    work.move(a, cold);
    work.move(b, hot);
    carried[hot] -= handed;
    carried[cold] += handed;
  }
  return work.finish(before);
}

}  // namespace sharding

Result<Rebalanced> rebalance(const ShardTable& table, std::span<const ShardOwner> owners, std::size_t budget) {
  return sharding::Rebalance::run(table, owners, budget);
}

Result<ShardTable> allocate(ShardSpace space, std::span<const ShardOwner> owners) {
  if (space.count() > ShardSpace::count_max) return sharding::too_many_shards(space.count());
  return rebalance(ShardTable(space), owners).transform([](Rebalanced r) { return std::move(r.table); });
}

Rebalanced rebalance_by_load(const ShardTable& table, std::span<const std::uint64_t> load_by_shard,
                             std::size_t budget) {
  return sharding::Rebalance::run_by_load(table, load_by_shard, budget);
}

}  // namespace berth
