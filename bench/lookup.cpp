// The owner of a key in an existing table. Numbers are compared with a plain Maglev table (Eisenbud et al., NSDI 2016,
// section 3.4) whose size is a prime known to the compiler and which does not hash the key; texts are compared with a
// model of the reference's path.
// route: the complete path of Router::route, including its lock and its check of the pool, compared with the same
// model.
#include <unordered_map>

#include "berth/random.hpp"
#include "berth/router.hpp"
#include "berth/shard_table.hpp"
#include "device/simulated/backend.hpp"
#include "report.hpp"

namespace berth {
namespace {

constexpr double reference_ns = 110;        // the quoted time of the reference's path
constexpr std::size_t keys_in_turn = 4096;  // a power of two; 32 KiB of numbers stay in the L1 cache

std::vector<ShardOwner> fleet(std::size_t n) {
  std::vector<ShardOwner> owners;
  for (std::size_t i = 0; i < n; ++i) owners.push_back({DeviceId("GPU-" + std::to_string(i))});
  return owners;
}

ShardTable table_for(std::size_t owners) {
  std::uint32_t shards = 1024;
  while (shards < 20 * owners) shards *= 2;
  return *allocate(ShardSpace(shards), fleet(owners));
}

// Prime sizes as in the paper: 65537, or 655373 for many owners.
template <std::size_t Size>
class Maglev {
 public:
  explicit Maglev(std::size_t n) : owners_(fleet(n)), entries_(Size, none) {
    std::vector<std::size_t> offset, skip, next(n, 0);
    for (const ShardOwner& owner : owners_) {
      offset.push_back(hash_key(KeyHash::xxh3_v1, owner.id.text()) % Size);
      skip.push_back(hash_key(KeyHash::siphash13_v0, owner.id.text()) % (Size - 1) + 1);
    }
    for (std::size_t filled = 0; filled < Size;)
      for (std::size_t i = 0; i < n && filled < Size; ++i, ++filled) {
        std::size_t entry;
        do entry = (offset[i] + next[i]++ * skip[i]) % Size;
        while (entries_[entry] != none);
        entries_[entry] = static_cast<std::uint16_t>(i);
      }
  }
  const DeviceId* route(std::uint64_t key) const { return &owners_[entries_[key % Size]].id; }

 private:
  static constexpr std::uint16_t none = 0xFFFF;
  std::vector<ShardOwner> owners_;
  std::vector<std::uint16_t> entries_;
};

// The reference's work per message: it makes separate strings of the shard id and the entity id, looks up the shard's
// handler in a map by the first string (its maps also hash with SipHash-1-3), then hashes the entity id again, modulo
// the number of devices.
class Reference {
 public:
  explicit Reference(std::size_t n) : devices_(fleet(n)) {
    for (std::uint32_t shard = 0; shard < shards; ++shard) handlers_[shard_name(shard)] = n;
  }
  const DeviceId* route(std::string_view id) const {
    const std::string entity(id);
    const std::string shard = shard_name(static_cast<std::uint32_t>(sip(id) % shards));
    const auto handler = handlers_.find(shard);
    if (handler == handlers_.end()) return nullptr;
    return &devices_[sip(entity) % handler->second].id;
  }

 private:
  static constexpr std::uint32_t shards = 1024;  // independent of the number of devices
  static std::uint64_t sip(std::string_view text) { return hash_key(KeyHash::siphash13_v0, text); }
  struct Sip {
    std::size_t operator()(const std::string& text) const { return sip(text); }
  };
  std::vector<ShardOwner> devices_;
  std::unordered_map<std::string, std::size_t, Sip> handlers_;  // the value is the number of devices
};

template <class Table, class Keys>
auto lookups(const Table& table, const Keys& keys) {
  return [&](std::size_t iterations) {
    std::uintptr_t seen = 0;
    for (std::size_t i = 0; i < iterations; ++i)
      seen ^= reinterpret_cast<std::uintptr_t>(table.route(keys[i % keys_in_turn]));
    bench::keep(seen);
  };
}

template <std::size_t Size>
void key64(bench::Report& report, std::size_t n) {
  const std::string name = "key64/" + std::to_string(n);
  if (!report.wants(name)) return;
  SeededRandom random(7);
  std::vector<std::uint64_t> keys(keys_in_turn);
  for (std::uint64_t& key : keys) key = random.next();
  const ShardTable table = table_for(n);
  const Maglev<Size> maglev(n);
  const auto [ours, peer] = bench::interleaved(15, 1'000'000, lookups(table, keys), lookups(maglev, keys));
  // The quoted time is for a table that fits into the cache.
  const double fair = n <= 64 ? bench::fair_peer(report, name, peer, 1.7) : peer;
  report.add({.name = name, .ours = ours, .peer = fair, .better = bench::Better::lower, .goal = 1.2, .fields = {}});
}

std::vector<std::string> session_keys() {
  std::vector<std::string> keys(keys_in_turn);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = "session-" + std::to_string(10'000'000 + i);
    BERTH_ASSERT(keys[i].size() == 16);
  }
  return keys;
}

void string16(bench::Report& report, std::size_t n) {
  const std::string name = "string/" + std::to_string(n);
  if (!report.wants(name)) return;
  const std::vector<std::string> keys = session_keys();
  const ShardTable table = table_for(n);
  const Reference reference(n);
  const auto [ours, peer] = bench::interleaved(15, 300'000, lookups(table, keys), lookups(reference, keys));
  const double fair = bench::fair_peer(report, name, peer, reference_ns);
  report.add({.name = name, .ours = ours, .peer = fair, .better = bench::Better::higher, .goal = 4.0, .fields = {}});
}

void route(bench::Report& report, std::size_t n) {
  const std::string name = "route/" + std::to_string(n);
  if (!report.wants(name)) return;
  const std::vector<std::string> keys = session_keys();
  PoolOptions pool_options;
  pool_options.capacity = n;
  std::vector<std::shared_ptr<Device>> devices;
  for (const ShardOwner& owner : fleet(n)) {
    simulated::SimulatedSpec spec;
    spec.id = owner.id.text();
    devices.push_back(simulated::make_simulated_device(spec, real_clock()));
  }
  const Pool pool = Pool::open(std::move(devices), pool_options).value();
  SchedulerOptions one_lane;
  one_lane.lanes_per_device = 1;
  const Scheduler scheduler = Scheduler::start(pool, one_lane).value();
  RouterOptions options;
  options.shards = n <= 64 ? 1024 : 32768;  // at least 20 shards per device
  options.table_file = "";
  const Router router = Router::start(scheduler, options).value();
  const Reference reference(n);
  const auto ours = [&](std::size_t iterations) {
    for (std::size_t i = 0; i < iterations; ++i) bench::keep(router.route(keys[i % keys_in_turn]).has_value());
  };
  const auto [mine, peer] = bench::interleaved(15, 100'000, ours, lookups(reference, keys));
  const double fair = bench::fair_peer(report, name, peer, reference_ns);
  report.add({.name = name, .ours = mine, .peer = fair, .better = bench::Better::higher, .goal = 1.0, .fields = {}});
}

}  // namespace
}  // namespace berth

int main(int argc, char** argv) {
  berth::bench::Report report("lookup", argc, argv);
  berth::key64<65537>(report, 8);
  berth::key64<65537>(report, 64);
  berth::key64<655373>(report, 1024);
  for (const std::size_t n : {8, 64, 1024}) berth::string16(report, n);
  for (const std::size_t n : {8, 64, 1024}) berth::route(report, n);
}
