#include <gtest/gtest.h>

#include <errno.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>

#include "pool/test_device.hpp"
#include "router/test_site.hpp"
#include "world/files.hpp"

namespace berth::router {
namespace {

using ledger::TestFolder;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RouterTable, S2_4_StartingNeedsNeitherAShardCountNorAWorkingDevice) {
  RouterOptions options;
  options.shards = 0;
  EXPECT_EQ(Site(3, options).router->table()->space().count(), 3u) << "one shard for each device";

  Site site(1);
  ASSERT_TRUE(site.pool->set_intent(gpu(0), Intent::cordoned));
  const Result<Router> router = Router::start(*site.scheduler, options);
  ASSERT_TRUE(router) << router.error().to_text();
  EXPECT_EQ(router->table()->space().count(), 1u);
}

TEST(RouterTable, ShardCountZeroAndTwoDevicesGiveAtMostTwoShards) {
  RouterOptions options;
  options.shards = 0;
  Site site(2, options);
  std::set<std::string> names;
  for (int i = 0; i < 200; ++i) names.insert(shard_name(site.router->table()->space().shard_of(user(i))));
  EXPECT_EQ(names, (std::set<std::string>{"shard-0", "shard-1"}));
}

TEST(RouterTable, TooManyShardsAreRefused) {
  Site site(1);
  RouterOptions options;
  options.shards = ShardSpace::count_max + 1;
  EXPECT_EQ(Router::start(*site.scheduler, options).error().code, ErrorCode::invalid_argument);
}

TEST(RouterTable, S2_F9_ADeviceThatCannotServeReceivesNothingAndItsShardsMove) {
  Site site(3);
  const std::string key = site.key_of(gpu(0));
  const std::shared_ptr<const ShardTable> before = site.router->table();
  for (const auto& take_out :
       std::vector<std::function<void()>>{[&] { ASSERT_TRUE(site.pool->set_intent(gpu(0), Intent::cordoned)); },
                                          [&] { ASSERT_TRUE(site.pool->set_intent(gpu(0), Intent::draining)); },
                                          [&] { ASSERT_TRUE(site.pool->leave(gpu(0))); }}) {
    const std::uint64_t epoch = site.router->table()->epoch();
    take_out();
    const Result<DeviceId> by = site.served(key);
    ASSERT_TRUE(by) << by.error().to_text();
    EXPECT_NE(*by, gpu(0));
    EXPECT_EQ(site.router->table()->shards_of(gpu(0)), 0u);
    EXPECT_GE(site.router->table()->epoch(), epoch);
  }
  EXPECT_EQ(site.router->table()->epoch(), before->epoch() + 1) << "the device is removed once, whatever the reason";
  for (std::uint32_t shard = 0; shard < 1024; ++shard) {
    if (*before->owner_of(shard) == gpu(0)) continue;
    EXPECT_EQ(*site.router->table()->owner_of(shard), *before->owner_of(shard));
  }
}

TEST(RouterTable, ALostDeviceLosesItsShards) {
  Site site(2);
  const std::string key = site.key_of(gpu(0));
  auto task = site.router->submit(key, [](TaskContext& execution) -> Result<int> {
    return Error{ErrorCode::device_lost, "gone", "", execution.device().id().text()};
  });
  EXPECT_EQ(task.get().error().code, ErrorCode::device_lost);
  EXPECT_EQ(*site.served(key), gpu(1));
}

TEST(RouterTable, AJoiningDeviceTakesItsShareInRounds) {
  RouterOptions options;
  options.shards = 100;
  options.moves_per_round = 20;
  Site site(1, options);
  EXPECT_EQ(site.router->table()->shards_of(gpu(0)), 100u) << "the first table is not limited by rounds";
  ASSERT_TRUE(site.pool->join(site.device(1)));
  EXPECT_EQ(*site.router->refresh(), 20u);
  EXPECT_EQ(*site.router->refresh(), 0u) << "nothing moves before the next round";
  EXPECT_EQ(site.router->statistics().moves_left, 30u);
  site.clock.advance(seconds(1));
  EXPECT_EQ(*site.router->refresh(), 20u);
  ASSERT_TRUE(site.pool->set_intent(gpu(0), Intent::cordoned));
  EXPECT_EQ(*site.router->refresh(), 60u) << "shards of a device that cannot serve do not wait for a round";
  EXPECT_EQ(site.router->table()->shards_of(gpu(1)), 100u);
}

TEST(RouterTable, WithoutMovesByChoiceADeviceThatJoinsGetsOnlyWhatOthersLose) {
  RouterOptions options;
  options.shards = 100;
  options.moves_per_round = 0;
  Site site(2, options);
  ASSERT_TRUE(site.pool->join(site.device(2)));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(*site.router->refresh(), 0u);
    site.clock.advance(seconds(1));
  }
  ASSERT_TRUE(site.pool->set_intent(gpu(0), Intent::cordoned));
  EXPECT_EQ(*site.router->refresh(), 50u);
  EXPECT_EQ(site.router->table()->shards_of(gpu(1)), 50u);
  EXPECT_EQ(site.router->table()->shards_of(gpu(2)), 50u);
}

TEST(RouterTable, SharesFollowTheWeightsOfTheDevices) {
  RouterOptions options;
  options.shards = 300;
  Site site(2, options);
  ASSERT_TRUE(site.pool->set_weight(gpu(1), 2.0));
  EXPECT_EQ(*site.router->refresh(), 50u);
  EXPECT_EQ(site.router->table()->shards_of(gpu(1)), 200u);
}

RouterOptions kept_in(const TestFolder& folder) {
  RouterOptions options;
  options.table_file = (folder.path / "sessions.table").string();
  return options;
}

std::map<std::string, DeviceId> owners_of_users(const Router& router) {
  std::map<std::string, DeviceId> out;
  for (int i = 0; i < 1000; ++i) out.emplace(user(i), *router.route(user(i)));
  return out;
}

TEST(RouterTable, S2_9_TheSameIdHasTheSameOwnerAfterARestartAlsoWhenADeviceHadJoined) {
  const TestFolder folder;
  std::map<std::string, DeviceId> before;
  {
    Site site(2, kept_in(folder));
    before = owners_of_users(*site.router);
    site.restart(kept_in(folder));
    EXPECT_EQ(owners_of_users(*site.router), before);
    ASSERT_TRUE(site.pool->join(site.device(2)));
    ASSERT_EQ(*site.router->refresh(), 341u);
    before = owners_of_users(*site.router);
  }
  // A new table for the same devices, without the history, is different.
  EXPECT_NE(owners_of_users(*Site(3).router), before);

  Site site(3, kept_in(folder));
  EXPECT_EQ(owners_of_users(*site.router), before);
  EXPECT_EQ(site.router->statistics().moves, 0u);
  EXPECT_FALSE(site.router->statistics().table_warning);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(*site.served(user(i)), before.at(user(i)));
}

TEST(RouterTable, TheTableIsKeptByDefaultInTheUsersStateFolder) {
  const TestFolder folder;
  const EnvironmentVariable state("BERTH_RUNTIME_DIR", folder.path);
  Site site(2);
  RouterOptions options;
  options.name = "sessions";
  const auto router = *Router::start(*site.scheduler, options);
  EXPECT_FALSE(router.statistics().table_warning);
  const auto path = folder.path / ("shards-" + std::to_string(::geteuid())) / "sessions.table";
  EXPECT_EQ(*ShardTable::parse(*world::read_text(path)), *router.table());
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));

  options.name = "../sessions";
  EXPECT_EQ(Router::start(*site.scheduler, options).error().code, ErrorCode::invalid_argument);
  options.name = "";
  const auto unnamed = *Router::start(*site.scheduler, options);
  EXPECT_TRUE(std::filesystem::exists(path.parent_path() / (std::string(program_invocation_short_name) + ".table")));
}

TEST(RouterTable, ADamagedTableIsIgnoredWithAWarningAndReplaced) {
  const TestFolder folder;
  const RouterOptions options = kept_in(folder);
  Site site(2, options);
  const std::string good = *world::read_text(*options.table_file);
  for (const std::string& damaged : {good.substr(0, good.size() / 2), std::string("berth-shards 1\n"), std::string()}) {
    site.router.reset();
    ASSERT_TRUE(world::write_text(*options.table_file, damaged));
    site.restart(options);
    ASSERT_TRUE(site.router->statistics().table_warning) << damaged;
    EXPECT_EQ(site.router->statistics().table_warning->code, ErrorCode::invalid_argument);
    EXPECT_TRUE(site.served("user-42"));
    EXPECT_EQ(*world::read_text(*options.table_file), good);
  }
}

TEST(RouterTable, AFileThatIsNoTableOrOfANewerVersionIsNeverOverwritten) {
  const TestFolder folder;
  const RouterOptions options = kept_in(folder);
  for (const auto& [text, code] : {std::pair("Dear diary,\n", ErrorCode::invalid_argument),
                                   std::pair("berth-shards 2\nhash new\n", ErrorCode::not_supported)}) {
    ASSERT_TRUE(world::write_text(*options.table_file, text));
    Site site(2, options);
    ASSERT_TRUE(site.router->statistics().table_warning) << text;
    EXPECT_EQ(site.router->statistics().table_warning->code, code);
    ASSERT_TRUE(site.pool->set_intent(gpu(0), Intent::cordoned));
    EXPECT_EQ(*site.served("user-42"), gpu(1));
    EXPECT_EQ(*world::read_text(*options.table_file), text);
  }
  RouterOptions folder_as_file;
  folder_as_file.table_file = folder.path;
  Site site(1, folder_as_file);
  EXPECT_EQ(site.router->statistics().table_warning->code, ErrorCode::invalid_argument);
  EXPECT_TRUE(std::filesystem::is_directory(folder.path));
}

TEST(RouterTable, AFolderThatIsNotThereIsAWarning) {
  const TestFolder folder;
  RouterOptions options;
  options.table_file = (folder.path / "missing" / "sessions.table").string();
  Site site(2, options);
  EXPECT_EQ(site.router->statistics().table_warning->code, ErrorCode::io);
  EXPECT_TRUE(site.served("user-42"));
}

TEST(RouterTable, OfTwoRoutersAtATimeTheFirstWritesTheFile) {
  const TestFolder folder;
  const RouterOptions options = kept_in(folder);
  Site first(3, options), second(3, options);
  EXPECT_FALSE(first.router->statistics().table_warning);
  ASSERT_TRUE(second.router->statistics().table_warning);
  EXPECT_EQ(second.router->statistics().table_warning->code, ErrorCode::unavailable);
  EXPECT_EQ(*second.router->table(), *first.router->table()) << "the second router has read the file";

  ASSERT_TRUE(second.pool->set_intent(gpu(0), Intent::cordoned));
  ASSERT_TRUE(second.router->refresh());
  EXPECT_EQ(*ShardTable::parse(*world::read_text(*options.table_file)), *first.router->table());

  first.router.reset();
  ASSERT_TRUE(second.pool->set_intent(gpu(0), Intent::in_service));
  ASSERT_TRUE(second.router->refresh());
  EXPECT_FALSE(second.router->statistics().table_warning);
  EXPECT_EQ(*ShardTable::parse(*world::read_text(*options.table_file)), *second.router->table());
}

TEST(RouterTable, WorkThatOutlivesItsRouterDoesNotKeepTheFile) {
  const TestFolder folder;
  const RouterOptions options = kept_in(folder);
  Site site(2, options);
  Gate gate;
  auto running = site.router->submit("k", gate.work());
  gate.begun.wait();
  site.restart(options);
  EXPECT_FALSE(site.router->statistics().table_warning);
  gate.open_promise.set_value();
  EXPECT_TRUE(running.get());
}

TEST(RouterTable, AnotherNumberOfShardsIsAWarningAndZeroTakesThatOfTheFile) {
  const TestFolder folder;
  RouterOptions options = kept_in(folder);
  options.shards = 64;
  Site site(2, options);
  options.shards = 0;
  site.restart(options);
  EXPECT_EQ(site.router->table()->space().count(), 64u);
  EXPECT_FALSE(site.router->statistics().table_warning);
  options.shards = 128;
  site.restart(options);
  EXPECT_EQ(site.router->table()->space().count(), 128u);
  EXPECT_EQ(site.router->statistics().table_warning->code, ErrorCode::invalid_argument);
  site.restart(options);
  EXPECT_FALSE(site.router->statistics().table_warning) << "the new table is kept";
}

TEST(RouterTable, AGivenTableIsContinued) {
  RouterOptions options;
  options.shards = 64;
  Site first(3, options);
  ASSERT_TRUE(first.pool->set_intent(gpu(1), Intent::cordoned));
  ASSERT_TRUE(first.router->refresh());
  const TestFolder folder;
  RouterOptions resumed = kept_in(folder);
  resumed.table = *ShardTable::parse(first.router->table()->to_text());
  ASSERT_TRUE(first.pool->set_intent(gpu(1), Intent::in_service));
  Site second(3, resumed);
  EXPECT_EQ(second.router->table()->epoch(), 3u) << "the epoch continues";
  EXPECT_EQ(second.router->statistics().moves, 21u) << "only the device that is back gets shards";
  EXPECT_FALSE(std::filesystem::exists(*resumed.table_file)) << "the caller keeps the table";
}

TEST(RouterTable, S2_F7_LoadIsReportedPerShardAndHotShardsAreSwapped) {
  RouterOptions options;
  options.shards = 8;
  Site site(2, options);
  std::map<std::uint32_t, std::string> hot;  // two shards of the first device
  for (int i = 0; hot.size() < 2; ++i)
    if (const std::string key = user(i); *site.router->route(key) == gpu(0))
      hot.emplace(site.router->table()->space().shard_of(key), key);
  for (const auto& [shard, key] : hot)
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(site.router->submit(key, [&](TaskContext&) { site.clock.advance(milliseconds(10)); }).get());
      site.wait_until_counted();
    }

  const RouterStatistics statistics = site.router->statistics();
  ASSERT_EQ(statistics.shards.size(), 2u);
  for (const ShardStatistics& shard : statistics.shards) {
    EXPECT_TRUE(hot.count(shard.shard));
    EXPECT_EQ(shard.owner, gpu(0));
    EXPECT_EQ(shard.delivered, 5u);
    EXPECT_EQ(shard.in_flight, 0u);
    EXPECT_EQ(shard.busy, milliseconds(50));
  }
  EXPECT_EQ(site.router->rebalance_by_load(), 2u) << "one hot shard for one cold";
  std::set<DeviceId> owners;
  for (const auto& [shard, key] : hot) owners.insert(*site.served(key));
  EXPECT_EQ(owners.size(), 2u);
  EXPECT_EQ(*site.router->refresh(), 0u) << "the table does not change again";
  EXPECT_EQ(site.router->rebalance_by_load(), 0u) << "no load since";
}

// Ten times 10 ms of work on one key.
void make_hot(Site& site, const std::string& key) {
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(site.router->submit(key, [&](TaskContext&) { site.clock.advance(milliseconds(10)); }).get());
    site.wait_until_counted();
  }
}

TEST(RouterTable, HotShardsAreSwappedByThemselvesOnceInAnIntervalAndOnlyIfAskedFor) {
  RouterOptions options;
  options.shards = 64;
  options.load_interval = seconds(30);
  options.load_moves_max = 4;
  Site site(2, options);
  std::set<std::uint32_t> hot;  // six shards of the first device
  std::vector<std::string> keys;
  for (int i = 0; keys.size() < 6; ++i)
    if (*site.router->route(user(i)) == gpu(0) && hot.insert(site.router->table()->space().shard_of(user(i))).second)
      keys.push_back(user(i));
  for (const std::string& key : keys) make_hot(site, key);
  EXPECT_EQ(site.router->statistics().moves, 64u) << "the first table; 0.6 s are less than the interval";

  site.clock.advance(seconds(30));
  ASSERT_TRUE(site.served("another key"));
  EXPECT_EQ(site.router->statistics().moves, 68u) << "with the next delivery, no more than the limit";
  EXPECT_EQ(site.router->table()->shards_of(gpu(0)), 32u);

  for (const std::string& key : keys) make_hot(site, key);
  EXPECT_EQ(*site.router->refresh(), 0u) << "not before the next interval";
  site.clock.advance(seconds(30));
  EXPECT_EQ(*site.router->refresh(), 2u) << "four against two becomes three against three";

  options.load_interval = {};
  Site by_default(2, options);
  std::vector<Task<NoValue>> tasks;  // all submitted first, so that the load comes between two updates
  for (const std::string& key : keys)
    tasks.push_back(by_default.router->submit(key, [&](TaskContext&) { by_default.clock.advance(milliseconds(10)); }));
  for (Task<NoValue>& task : tasks) ASSERT_TRUE(task.get());
  by_default.wait_until_counted();
  by_default.clock.advance(seconds(3600));
  ASSERT_TRUE(by_default.router->refresh());
  EXPECT_EQ(by_default.router->statistics().moves, 64u);
}

TEST(RouterTable, OrderAndCountsHoldWhileDevicesComeAndGo) {
  Site site(3, {}, 2);
  constexpr int threads = 4, rounds = 150, keys = 5;
  std::map<std::string, std::map<int, int>> last;  // by key: thread, number; a key's work never overlaps
  for (int k = 0; k < keys; ++k) last[user(k)];
  std::atomic<int> out_of_order{0}, served{0}, refused{0}, refused_for_another_reason{0};
  std::atomic<bool> stop{false};
  std::thread operations([&] {
    for (int i = 0; !stop; ++i) {
      const DeviceId id = gpu(i % 3);
      EXPECT_TRUE(site.pool->set_intent(id, Intent::cordoned));
      EXPECT_TRUE(site.router->refresh());
      EXPECT_TRUE(site.pool->set_intent(id, Intent::in_service));
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> clients;
  for (int t = 0; t < threads; ++t)
    clients.emplace_back([&, t] {
      std::vector<Task<NoValue>> tasks;
      for (int i = 1; i <= rounds; ++i) {
        const std::string key = user(i % keys);
        tasks.push_back(site.router->submit(key, [&, key, t, i](TaskContext&) {
          int& before = last.find(key)->second[t];
          if (before >= i) ++out_of_order;
          before = i;
        }));
      }
      for (Task<NoValue>& task : tasks) {
        const Result<TaskResult<NoValue>> got = task.get();
        got ? ++served : ++refused;
        if (!got && got.error().code != ErrorCode::no_eligible_device) ++refused_for_another_reason;
      }
    });
  for (std::thread& client : clients) client.join();
  stop = true;
  operations.join();
  EXPECT_EQ(out_of_order, 0);
  EXPECT_EQ(served + refused, threads * rounds);
  // Work is refused only if the device was cordoned after the router chose it and
  // before the scheduler did, which is rare.
  EXPECT_EQ(refused_for_another_reason, 0);
  EXPECT_GT(served, threads * rounds / 2);
  EXPECT_GT(site.router->statistics().moves, 0u);
  EXPECT_EQ(site.scheduler->statistics().total().completed, static_cast<std::uint64_t>(served));
  EXPECT_EQ(site.router->statistics().waiting, 0u);
}

// As earlier versions wrote it: the ids of OpenCL devices had the name of the processor in them.
constexpr const char* table_with_former_ids =
    "berth-shards 1\n"
    "hash xxh3_v1\n"
    "shards 16\n"
    "epoch 7\n"
    "owner 1000 gpu-2\n"
    "owner 1000 opencl/pocl/basic-skylake-avx512-intel-r-xeon-r-processor.0\n"
    "owner 2000 opencl/pocl/pthread-skylake-avx512-intel-r-xeon-r-processor.0\n"
    "map 2*3 0*2 1*4 2*1 0*2 2*4\n"
    "check fd6dbcdb836b7452\n";

TEST(RouterTable, NoShardMovesBecauseADeviceHasAnotherIdNow) {
  const TestFolder folder;
  RouterOptions options = kept_in(folder);
  options.shards = 16;
  ASSERT_TRUE(world::write_text(*options.table_file, table_with_former_ids));
  const ShardTable before = *ShardTable::parse(table_with_former_ids);
  const std::map<DeviceId, DeviceId> now = {
      {DeviceId("gpu-2"), DeviceId("gpu-2")},
      {DeviceId("opencl/pocl/basic-skylake-avx512-intel-r-xeon-r-processor.0"), DeviceId("cpu-opencl-0")},
      {DeviceId("opencl/pocl/pthread-skylake-avx512-intel-r-xeon-r-processor.0"), DeviceId("cpu-opencl-1")}};
  std::vector<std::shared_ptr<Device>> devices;
  for (const auto& [former, id] : now) {
    auto device = std::make_shared<test::TestDevice>(id.text());
    if (former != id) device->describe().former_id = former;
    devices.push_back(std::move(device));
  }
  FakeClock clock{FakeClock::Sleepers::block};
  PoolOptions pool_options;
  pool_options.poll = false;
  pool_options.clock = &clock;
  const Pool pool = *Pool::open(devices, pool_options);
  ASSERT_TRUE(pool.set_weight(DeviceId("cpu-opencl-1"), 2));
  pool.poll_now();
  const Scheduler scheduler = *Scheduler::start(pool);
  for (int start = 0; start < 2; ++start) {
    const Router router = *Router::start(scheduler, options);
    EXPECT_FALSE(router.statistics().table_warning);
    EXPECT_EQ(router.statistics().moves, 0u);
    EXPECT_EQ(*router.refresh(), 0u);
    const std::shared_ptr<const ShardTable> table = router.table();
    EXPECT_EQ(table->epoch(), 7u);
    for (std::uint32_t shard = 0; shard < 16; ++shard)
      EXPECT_EQ(*table->owner_of(shard), now.at(*before.owner_of(shard))) << shard_name(shard);
    EXPECT_EQ(*ShardTable::parse(*world::read_text(*options.table_file)), *table) << "the file has the new ids";
  }
}

}  // namespace
}  // namespace berth::router
