// ShardTable: which owner has a key, by entity id -> shard -> owner. The first step is a fixed, versioned hash and
// never changes; the second is a table with an epoch, and only the table changes when owners join, leave or change
// their weight. Owners are identified by stable id, so the order in which they are reported has no effect. Pure: a
// table is a value, a rebalance returns a new one. Whether an owner can serve right now is not known here; see
// router.hpp.
#pragma once

#include "berth/version.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/ids.hpp"
#include "berth/result.hpp"

namespace berth {

namespace sharding {
class Rebalance;  // src/sharding/rebalance.cpp
}

// The hash of entity ids. A version's values never change; docs/guide/sharding.md
// publishes vectors.
enum class KeyHash : std::uint8_t {
  xxh3_v1,       // XXH3, 64 bits, seed 0, over the bytes of the id
  siphash13_v0,  // SipHash-1-3, zero key, over the id and one byte 0xFF: for ids placed by it earlier
};
std::string_view to_string(KeyHash hash) noexcept;
Result<KeyHash> key_hash_named(std::string_view name);
std::uint64_t hash_key(KeyHash hash, std::string_view key) noexcept;
// Numeric keys have a cheaper hash, the same under every KeyHash: one xorshift, multiply, xorshift,
// a bijection whose low bits depend on all bits of the key. The number 42 and the text "42" are
// different keys.
constexpr std::uint64_t hash_key(std::uint64_t key) noexcept {
  key = (key ^ (key >> 32)) * 0xd6e8feb86659fd93ULL;
  return key ^ (key >> 32);
}

// How keys fall into shards: hash modulo count, the same on every machine.
class ShardSpace {
 public:
  // With 20 shards per owner, enough for 50,000 owners; the table then takes 2 MiB.
  static constexpr std::uint32_t count_max = 1u << 20;

  // A count of 0 is raised to 1.
  explicit ShardSpace(std::uint32_t count = 1024, KeyHash hash = KeyHash::xxh3_v1) noexcept
      : count_(count == 0 ? 1 : count), mask_((count_ & (count_ - 1)) == 0 ? count_ - 1 : 0), hash_(hash) {}

  std::uint32_t count() const noexcept { return count_; }
  KeyHash hash() const noexcept { return hash_; }
  std::uint32_t shard_of(std::string_view key) const noexcept { return reduce(hash_key(hash_, key)); }
  std::uint32_t shard_of(std::uint64_t key) const noexcept { return reduce(hash_key(key)); }
  friend bool operator==(const ShardSpace&, const ShardSpace&) = default;

 private:
  // A division costs as much as the rest of a lookup; powers of two avoid it.
  std::uint32_t reduce(std::uint64_t hash) const noexcept {
    return static_cast<std::uint32_t>(mask_ != 0 ? hash & mask_ : hash % count_);
  }
  std::uint32_t count_;
  std::uint32_t mask_;
  KeyHash hash_;
};

// "shard-7".
std::string shard_name(std::uint32_t shard);

struct ShardOwner {
  DeviceId id;
  std::uint32_t weight_milli = 1000;  // share of the shards, relative to the others; 0: it gets none
  friend bool operator==(const ShardOwner&, const ShardOwner&) = default;
};

struct ShardMove {
  std::uint32_t shard = 0;
  DeviceId from;  // empty: the shard had no owner
  DeviceId to;
  friend bool operator==(const ShardMove&, const ShardMove&) = default;
};

class ShardTable {
 public:
  // No shard has an owner; epoch 0.
  explicit ShardTable(ShardSpace space = ShardSpace()) : space_(space), slots_(space.count(), unowned) {}

  const ShardSpace& space() const noexcept { return space_; }
  // Increases by one with every change of the table, and so orders the versions of one table.
  std::uint64_t epoch() const noexcept { return epoch_; }
  // Sorted by id. An owner of weight 0 has left, but still has shards that could not move yet.
  std::span<const ShardOwner> owners() const noexcept { return owners_; }

  // The owner of a key; null if its shard has none. Valid as long as the table exists.
  const DeviceId* route(std::string_view key) const noexcept { return at(space_.shard_of(key)); }
  const DeviceId* route(std::uint64_t key) const noexcept { return at(space_.shard_of(key)); }
  // Precondition: shard < space().count().
  const DeviceId* owner_of(std::uint32_t shard) const noexcept {
    BERTH_ASSERT(shard < slots_.size());
    return at(shard);
  }
  std::uint32_t shards_of(const DeviceId& owner) const noexcept;
  // The owner of the shard, then all others in an order that depends only on the shard and their ids: keys of the
  // shard fall back to them in this order while earlier owners cannot take them. Each shard has its own order, so
  // that the keys of one owner are spread over all others.
  std::vector<DeviceId> in_order(std::uint32_t shard) const;

  // Gives an owner another id. It keeps its shards, so the epoch does not change. Returns false if no owner has
  // the id `from`, or one already has the id `to`.
  bool rename(const DeviceId& from, const DeviceId& to);

  // Text for a file or a store, with a checksum at the end. Damaged text, or text of a later
  // version, is invalid_argument and names the line.
  std::string to_text() const;
  static Result<ShardTable> parse(std::string_view text);

  friend bool operator==(const ShardTable&, const ShardTable&) = default;

 private:
  friend class sharding::Rebalance;
  static constexpr std::uint16_t unowned = 0xFFFF;
  const DeviceId* at(std::uint32_t shard) const noexcept {
    const std::uint16_t slot = slots_[shard];
    return slot == unowned ? nullptr : &owners_[slot].id;
  }

  ShardSpace space_;
  std::uint64_t epoch_ = 0;
  std::vector<ShardOwner> owners_;
  std::vector<std::uint16_t> slots_;  // by shard: position in owners_
};

struct Rebalanced {
  ShardTable table;
  std::vector<ShardMove> moves;  // the differences from the previous table
  std::size_t moves_left = 0;    // what the budget deferred to later rounds
};

constexpr std::size_t unlimited_moves = std::numeric_limits<std::size_t>::max();

// Brings every owner's number of shards to within one of its exact proportion, with the fewest possible moves. If
// the proportions leave a choice, a shard stays where it is; then the largest remainder decides, then the lowest
// id. Shards without an owner, or whose owner left, move first. With unchanged owners nothing moves, and the epoch
// does not change. Rounds with a budget make the same number of moves in total as one round without. Without an
// owner of positive weight nothing moves, so that returning owners find their shards. Ids that are empty, repeated
// or hold control characters, more than 65,535 owners (old and new) or too many shards are invalid_argument.
Result<Rebalanced> rebalance(const ShardTable& table, std::span<const ShardOwner> owners,
                             std::size_t budget = unlimited_moves);
// The same from an empty table.
Result<ShardTable> allocate(ShardSpace space, std::span<const ShardOwner> owners);

// Swaps shards between the owner with the most load per weight and the one with the least while the
// first carries more than 1.25 times the average, so that the number of shards per owner does not
// change and no rebalance undoes it. Load is per shard, in any unit. A single overloaded shard
// cannot be split. Precondition: one load per shard.
Rebalanced rebalance_by_load(const ShardTable& table, std::span<const std::uint64_t> load_by_shard, std::size_t budget);

}  // namespace berth
