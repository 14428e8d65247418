#include "berth/router.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "berth/fake_clock.hpp"
#include "device/simulated/backend.hpp"

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string user(int i) { return "user-" + std::to_string(i); }
DeviceId gpu(int i) { return DeviceId("gpu-" + std::to_string(i)); }

// A pool of simulated devices, a scheduler and a router on virtual time.
struct Site {
  explicit Site(int devices, RouterOptions options = {}, std::uint32_t lanes = 1) {
    std::vector<std::shared_ptr<Device>> made;
    for (int i = 0; i < devices; ++i) made.push_back(device(i, lanes));
    PoolOptions pool_options;
    pool_options.poll = false;
    pool_options.clock = &clock;
    pool = *Pool::open(std::move(made), pool_options);
    scheduler = *Scheduler::start(*pool);
    router = *Router::start(*scheduler, std::move(options));
  }
  std::shared_ptr<Device> device(int i, std::uint32_t lanes = 1) {
    SimulatedSpec spec;
    spec.id = gpu(i).text();
    spec.concurrency = lanes;
    return make_simulated_device(spec, clock);
  }
  // Where a piece of work for this key really runs.
  Result<DeviceId> served(const std::string& key) {
    auto task = router->submit(key, [](Execution& execution) { return execution.device().id(); });
    Result<Dispatched<DeviceId>> got = task.get();
    if (!got) return got.error();
    return got->value;
  }
  // An answer may reach its caller a moment before the router has written the
  // work off; this waits for that moment.
  void settle() {
    const auto under_way = [&] {
      const RouterStatistics statistics = router->statistics();
      return std::any_of(statistics.shards.begin(), statistics.shards.end(),
                         [](const ShardStatistics& shard) { return shard.in_flight > 0; });
    };
    while (under_way()) std::this_thread::yield();
  }
  // A key that this device owns.
  std::string key_of(const DeviceId& device, int skip = 0) {
    for (int i = 0;; ++i)
      if (*router->route(user(i)) == device && skip-- == 0) return user(i);
  }

  FakeClock clock{FakeClock::Sleepers::block};
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Router> router;
};

// Work that says when it has begun and ends when it is told to.
struct Gate {
  std::promise<void> begun_promise, open_promise;
  std::shared_future<void> begun{begun_promise.get_future()}, open{open_promise.get_future()};
  auto work() {
    return [this](Execution& execution) {
      begun_promise.set_value();
      open.wait();
      return execution.device().id();
    };
  }
};

TEST(Router, S2_T1_AnAllocationToldToAnEntityIsAnsweredWithinTwoSeconds) {
  RouterOptions options;
  options.shards = 16;
  Site site(2, options);
  std::promise<Result<Buffer>> reply;
  std::future<Result<Buffer>> slot = reply.get_future();
  Entity entity = site.router->entity("user-42");
  entity.tell(Envelope{
      "user-42", [&](Execution& execution) { reply.set_value(execution.device().allocate(16 * sizeof(float))); }});
  ASSERT_EQ(slot.wait_for(seconds(2)), std::future_status::ready);
  // The reference's mock answers Unrecoverable; our simulated devices have
  // memory, so the answer is a buffer.
  const Result<Buffer> buffer = slot.get();
  ASSERT_TRUE(buffer) << buffer.error().to_text();
  EXPECT_EQ(buffer->bytes(), 64u);
  EXPECT_EQ(buffer->memory()->device->id(), *site.router->route("user-42"));
}

TEST(Router, S2_1_AnEnvelopeIsAnEntityIdAndAMessage) {
  Site site(2);
  const Envelope envelope{"user-42", [](Execution&) { return 7; }};
  EXPECT_EQ(envelope.entity, "user-42");
  EXPECT_EQ(site.router->tell(envelope).get()->value, 7);
}

TEST(Router, S2_4_StartingNeedsNeitherAShardCountNorAWorkingDevice) {
  RouterOptions options;
  options.shards = 0;
  EXPECT_EQ(Site(3, options).router->table()->space().count(), 3u) << "as many as devices";

  Site site(1);
  ASSERT_TRUE(site.pool->set_intent(gpu(0), Intent::cordoned));
  const Result<std::unique_ptr<Router>> router = Router::start(*site.scheduler, options);
  ASSERT_TRUE(router) << router.error().to_text();
  EXPECT_EQ((*router)->table()->space().count(), 1u);
}

TEST(Router, ShardCountZeroAndTwoDevicesGiveAtMostTwoShards) {
  RouterOptions options;
  options.shards = 0;
  Site site(2, options);
  std::set<std::string> names;
  for (int i = 0; i < 200; ++i) names.insert(shard_name(site.router->table()->space().shard_of(user(i))));
  EXPECT_EQ(names, (std::set<std::string>{"shard-0", "shard-1"}));
}

TEST(Router, TooManyShardsAreRefused) {
  Site site(1);
  RouterOptions options;
  options.shards = ShardSpace::count_max + 1;
  EXPECT_EQ(Router::start(*site.scheduler, options).error().code, ErrorCode::invalid_argument);
}

TEST(Router, S2_5_AnEntityHandleDeliversAndTheTableCanBeInspected) {
  RouterOptions options;
  options.shards = 16;
  Site site(2, options);
  Entity entity = site.router->entity("user-42");
  EXPECT_EQ(entity.id(), "user-42");
  EXPECT_EQ(entity.submit([](Execution& e) { return e.device().id(); }).get()->value, *site.router->route("user-42"));
  EXPECT_EQ(site.router->table()->space().count(), 16u);
  EXPECT_EQ(site.router->table()->shards_of(gpu(0)), 8u);
  EXPECT_EQ(site.router->table()->shards_of(gpu(1)), 8u);
}

TEST(Router, S2_6_AMessageGoesToTheOwnerOfItsShardAndTheFirstMakesTheEntity) {
  Site site(3);
  EXPECT_EQ(site.router->statistics().entities, 0u);
  for (int i = 0; i < 50; ++i) {
    const std::shared_ptr<const ShardTable> table = site.router->table();
    EXPECT_EQ(*site.served(user(i)), *table->owner_of(table->space().shard_of(user(i))));
  }
  EXPECT_EQ(site.router->statistics().entities, 50u);
}

TEST(Router, S2_7_TheShardAndNotTheIdAloneDecidesTheDevice) {
  // The reference hashes the id again modulo the number of devices and ignores
  // the shard; ours serves all ids of a shard on one device (S2-F1, S2-F2).
  RouterOptions options;
  options.shards = 5;
  Site site(2, options);
  std::map<std::uint32_t, std::set<DeviceId>> served;
  for (int i = 0; i < 60; ++i) served[site.router->table()->space().shard_of(user(i))].insert(*site.served(user(i)));
  ASSERT_EQ(served.size(), 5u);
  for (const auto& [shard, devices] : served) EXPECT_EQ(devices.size(), 1u) << shard_name(shard);
}

TEST(Router, TheSameIdSentAHundredTimesReachesOneDevice) {
  Site site(4, {}, 2);
  std::vector<RoutedTask<DeviceId>> tasks;
  for (int i = 0; i < 100; ++i)
    tasks.push_back(site.router->submit("user-42", [](Execution& e) { return e.device().id(); }));
  for (RoutedTask<DeviceId>& task : tasks) EXPECT_EQ(task.get()->value, *site.router->route("user-42"));
}

TEST(Router, S2_8_WithoutADeviceTheCallerIsTold) {
  // The reference discards the message and drops its reply; ours answers (S2-F5).
  Site site(1);
  ASSERT_TRUE(site.pool->leave(gpu(0)));
  auto task = site.router->submit("user-42", [](Execution&) { return 1; });
  EXPECT_TRUE(task.ready());
  EXPECT_EQ(task.get().error().code, ErrorCode::no_eligible_device);
}

TEST(Router, S2_F5_NoOwnerIsARetryableErrorAndCounted) {
  Site site(2);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(site.pool->set_intent(gpu(i), Intent::cordoned));
  const Error error = site.served("user-42").error();
  const std::string shard = shard_name(site.router->table()->space().shard_of("user-42"));
  EXPECT_EQ(error.message, "no device can own " + shard + ", where user-42 lives");
  EXPECT_EQ(error.reaction(), Reaction::wait);
  EXPECT_EQ(site.router->route("user-42").error().code, ErrorCode::no_eligible_device);
  EXPECT_EQ(site.router->statistics().dead_letters, 1u) << "asking is not losing a letter";
  EXPECT_EQ(site.router->statistics().delivered, 0u);
  ASSERT_TRUE(site.pool->set_intent(gpu(1), Intent::in_service));
  EXPECT_EQ(*site.served("user-42"), gpu(1)) << "the same call works when a device is back";
}

TEST(Router, S2_10_DroppingTheTaskDropsNeitherTheWorkNorItsReply) {
  Site site(2);
  std::promise<DeviceId> reply;
  site.router->submit("user-42", [&](Execution& execution) { reply.set_value(execution.device().id()); });
  EXPECT_EQ(reply.get_future().get(), *site.router->route("user-42"));
}

TEST(Router, S2_F4_AHandleStampsItsOwnIdAndRefusesAnothers) {
  Site site(2);
  Entity entity = site.router->entity("user-42");
  std::atomic<int> ran{0};
  const auto count = [&](Execution&) { return ++ran; };
  EXPECT_TRUE(entity.tell(Envelope{"", count}).get());
  EXPECT_TRUE(entity.tell(Envelope{"user-42", count}).get());
  const Error error = entity.tell(Envelope{"user-43", count}).get().error();
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(error.message, "the envelope is for user-43 but was told to user-42");
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(site.router->statistics().entities, 1u);
}

TEST(Router, S2_F9_ADeviceThatCannotServeReceivesNothingAndItsShardsMove) {
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
  EXPECT_EQ(site.router->table()->epoch(), before->epoch() + 1) << "out once, whatever the reason";
  for (std::uint32_t shard = 0; shard < 1024; ++shard) {
    if (*before->owner_of(shard) == gpu(0)) continue;
    EXPECT_EQ(*site.router->table()->owner_of(shard), *before->owner_of(shard));
  }
}

TEST(Router, ALostDeviceLosesItsShards) {
  Site site(2);
  const std::string key = site.key_of(gpu(0));
  auto task = site.router->submit(key, [](Execution& execution) -> Result<int> {
    return Error{ErrorCode::device_lost, "gone", "", execution.device().id().text(), {}};
  });
  EXPECT_EQ(task.get().error().code, ErrorCode::device_lost);
  EXPECT_EQ(*site.served(key), gpu(1));
}

TEST(Router, WorkOfAKeyWaitsForItsPredecessorAcrossAMove) {  // S2-F9: buffered during the hand-off
  Site site(2);
  const std::string key = site.key_of(gpu(0));
  Gate gate;
  auto first = site.router->submit(key, gate.work());
  gate.begun.wait();
  ASSERT_TRUE(site.pool->set_intent(gpu(0), Intent::draining));
  auto second = site.router->submit(key, [](Execution& execution) { return execution.device().id(); });
  EXPECT_EQ(*site.router->route(key), gpu(1));
  EXPECT_EQ(site.router->statistics().waiting, 1u);
  EXPECT_FALSE(second.ready());
  gate.open_promise.set_value();
  EXPECT_EQ(first.get()->value, gpu(0));
  EXPECT_EQ(second.get()->value, gpu(1));
}

TEST(Router, WorkOfOneKeyRunsInOrderAndOneAtATimeOnManyLanes) {
  Site site(1, {}, 4);
  std::vector<int> order;
  std::atomic<int> running{0}, overlaps{0};
  std::vector<RoutedTask<Done>> tasks;
  for (int i = 0; i < 200; ++i)
    tasks.push_back(site.router->submit("user-42", [&, i](Execution&) {
      if (++running > 1) ++overlaps;
      order.push_back(i);
      --running;
    }));
  for (RoutedTask<Done>& task : tasks) EXPECT_TRUE(task.get());
  EXPECT_EQ(overlaps, 0);
  ASSERT_EQ(order.size(), 200u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(Router, WorkOfDifferentKeysRunsSideBySide) {
  Site site(1, {}, 2);
  Gate one, two;
  auto first = site.router->submit("one", one.work());
  auto second = site.router->submit("two", two.work());
  one.begun.wait();
  two.begun.wait();  // would never come if the second waited for the first
  one.open_promise.set_value();
  two.open_promise.set_value();
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
}

TEST(Router, AFailedWorkLetsTheNextOfItsKeyRun) {
  Site site(1);
  auto throws = site.router->submit("k", [](Execution&) -> int { throw std::runtime_error("no"); });
  auto next = site.router->submit("k", [](Execution&) { return 2; });
  EXPECT_EQ(throws.get().error().code, ErrorCode::work_failed);
  EXPECT_EQ(next.get()->value, 2);
}

TEST(Router, WaitingBehindAKeyIsBounded) {
  RouterOptions options;
  options.waiting_max = 1;
  Site site(1, options);
  Gate gate;
  auto running = site.router->submit("k", gate.work());
  gate.begun.wait();
  auto waits = site.router->submit("k", [](Execution&) { return 1; });
  EXPECT_EQ(site.router->submit("k", [](Execution&) { return 2; }).get().error().code, ErrorCode::queue_full);
  auto other = site.router->submit("another key", [](Execution&) { return 3; });
  gate.open_promise.set_value();
  EXPECT_EQ(waits.get()->value, 1);
  EXPECT_EQ(other.get()->value, 3) << "only work behind its own key is bounded here";
}

TEST(Router, WorkThatWaitsForItsTurnCanBeCancelledAndExpires) {
  Site site(1);
  Gate gate;
  auto running = site.router->submit("k", gate.work());
  gate.begun.wait();
  auto cancelled = site.router->submit("k", [](Execution&) { return 1; });
  Work hurried;
  hurried.deadline = Deadline::after(site.clock, seconds(1));
  auto late = site.router->submit("k", [](Execution&) { return 2; }, hurried);
  auto last = site.router->submit("k", [](Execution&) { return 3; });
  cancelled.cancel();
  EXPECT_EQ(cancelled.get().error().code, ErrorCode::cancelled);
  EXPECT_EQ(late.get({site.clock.now()}).error().code, ErrorCode::timeout) << "get's own deadline: may be asked again";
  site.clock.advance(seconds(2));
  const Error error = late.get().error();
  EXPECT_EQ(error.code, ErrorCode::timeout);
  EXPECT_EQ(error.message, "the deadline passed before the work began");
  gate.open_promise.set_value();
  EXPECT_EQ(last.get()->value, 3);
  EXPECT_EQ(site.router->statistics().delivered, 2u) << "neither of the two reached a device";
}

TEST(Router, CancellingWorkInTheDevicesQueueLetsTheNextOfItsKeyRun) {
  Site site(1);
  Gate gate;
  auto running = site.router->submit("other", gate.work());
  gate.begun.wait();
  auto queued = site.router->submit("k", [](Execution&) { return 1; });
  auto behind = site.router->submit("k", [](Execution&) { return 2; });
  queued.cancel();
  EXPECT_EQ(queued.get().error().code, ErrorCode::cancelled);
  gate.open_promise.set_value();
  EXPECT_EQ(behind.get()->value, 2);
}

TEST(Router, AShutDownRouterRefusesWhatWaitsAndFinishesWhatRuns) {
  Site site(1);
  Gate gate;
  auto running = site.router->submit("k", gate.work());
  gate.begun.wait();
  auto waits = site.router->submit("k", [](Execution&) { return 1; });
  site.router.reset();
  EXPECT_EQ(waits.get().error().code, ErrorCode::cancelled);
  gate.open_promise.set_value();
  EXPECT_TRUE(running.get());
}

TEST(Router, HintsThatExcludeTheOwnerAreAWrongCall) {
  Site site(2);
  Work work;
  work.hints.only = {gpu(1)};
  auto task = site.router->submit(site.key_of(gpu(0)), [](Execution&) { return 1; }, work);
  EXPECT_EQ(task.get().error().code, ErrorCode::invalid_argument);
  EXPECT_TRUE(site.router->submit(site.key_of(gpu(1)), [](Execution&) { return 1; }, work).get());
}

TEST(Router, S2_F10_IdleEntitiesAreForgotten) {
  RouterOptions options;
  options.idle_max = seconds(10);
  Site site(1, options);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(site.served(user(i)));
  site.settle();
  site.clock.advance(seconds(6));
  ASSERT_TRUE(site.served(user(0)));
  site.settle();
  site.clock.advance(seconds(6));
  ASSERT_TRUE(site.router->refresh());
  EXPECT_EQ(site.router->statistics().entities, 1u) << "only the one used since";
  EXPECT_EQ(site.router->statistics().passivated, 19u);
  EXPECT_TRUE(site.served(user(7))) << "a forgotten entity comes back with its next work";
}

TEST(Router, TheNumberOfRememberedEntitiesIsBounded) {
  RouterOptions options;
  options.entities_max = 10;
  Site site(1, options);
  Gate gate;
  auto running = site.router->submit("busy", gate.work());
  gate.begun.wait();
  for (int i = 0; i < 50; ++i) {
    auto waits = site.router->submit("busy", [](Execution&) {});
    waits.cancel();
    site.router->submit(user(i), [](Execution&) {}).cancel();
    EXPECT_LE(site.router->statistics().entities, 11u);
  }
  gate.open_promise.set_value();
  EXPECT_TRUE(running.get());
}

TEST(Router, S2_F11_AResolvedReplyMeansServedByTheRightDeviceAndNotDropped) {
  // The reference's test also passes when the message is dropped, and checks no device.
  Site site(2);
  const DeviceId owner = *site.router->route("user-42");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(*site.served("user-42"), owner);
  const Statistics statistics = site.scheduler->statistics();
  for (const DeviceStatistics& device : statistics.devices)
    EXPECT_EQ(device.completed, device.device == owner ? 10u : 0u) << device.device;
}

TEST(Router, AJoiningDeviceTakesItsShareInRounds) {
  RouterOptions options;
  options.shards = 100;
  options.moves_per_round = 20;
  Site site(1, options);
  EXPECT_EQ(site.router->table()->shards_of(gpu(0)), 100u) << "the first table is no move by choice";
  ASSERT_TRUE(site.pool->join(site.device(1)));
  EXPECT_EQ(*site.router->refresh(), 20u);
  EXPECT_EQ(*site.router->refresh(), 0u) << "not before the next round";
  EXPECT_EQ(site.router->statistics().moves_left, 30u);
  site.clock.advance(seconds(1));
  EXPECT_EQ(*site.router->refresh(), 20u);
  ASSERT_TRUE(site.pool->set_intent(gpu(0), Intent::cordoned));
  EXPECT_EQ(*site.router->refresh(), 60u) << "shards of a device that cannot serve do not wait for a round";
  EXPECT_EQ(site.router->table()->shards_of(gpu(1)), 100u);
}

TEST(Router, SharesFollowTheWeightsOfTheDevices) {
  RouterOptions options;
  options.shards = 300;
  Site site(2, options);
  ASSERT_TRUE(site.pool->set_weight(gpu(1), 2.0));
  EXPECT_EQ(*site.router->refresh(), 50u);
  EXPECT_EQ(site.router->table()->shards_of(gpu(1)), 200u);
}

TEST(Router, AKeptTableIsTakenUpAgain) {
  RouterOptions options;
  options.shards = 64;
  Site first(3, options);
  ASSERT_TRUE(first.pool->set_intent(gpu(1), Intent::cordoned));
  ASSERT_TRUE(first.router->refresh());
  RouterOptions resumed;
  resumed.table = *ShardTable::parse(first.router->table()->to_text());
  ASSERT_TRUE(first.pool->set_intent(gpu(1), Intent::in_service));
  Site second(3, resumed);
  EXPECT_EQ(second.router->table()->epoch(), 3u) << "goes on counting";
  EXPECT_EQ(second.router->statistics().moves, 21u) << "only the device that is back gets shards";
}

TEST(Router, S2_F7_LoadIsReportedPerShardAndHotShardsAreSwapped) {
  RouterOptions options;
  options.shards = 8;
  Site site(2, options);
  std::map<std::uint32_t, std::string> hot;  // two shards of the first device
  for (int i = 0; hot.size() < 2; ++i)
    if (const std::string key = user(i); *site.router->route(key) == gpu(0))
      hot.emplace(site.router->table()->space().shard_of(key), key);
  for (const auto& [shard, key] : hot)
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(site.router->submit(key, [&](Execution&) { site.clock.advance(milliseconds(10)); }).get());
      site.settle();
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
  EXPECT_EQ(site.router->relieve(), 2u) << "one hot shard for one cold";
  std::set<DeviceId> owners;
  for (const auto& [shard, key] : hot) owners.insert(*site.served(key));
  EXPECT_EQ(owners.size(), 2u);
  EXPECT_EQ(*site.router->refresh(), 0u) << "and it stays so";
  EXPECT_EQ(site.router->relieve(), 0u) << "no load since";
}

TEST(Router, TheExampleOfThePageWorks) {  // docs/routing.md
  BackendOptions backends;
  backends.host_devices = 2;
  auto pool = *Pool::open_all(backends);
  auto scheduler = *Scheduler::start(*pool);
  auto router = *Router::start(*scheduler);

  Entity session = router->entity("user-42");
  auto first = session.submit([](Execution& on) { return on.device().allocate(64); });
  auto second = session.submit([](Execution& on) { return on.device().id(); });
  Result<Dispatched<DeviceId>> answer = second.get();

  ASSERT_TRUE(answer) << answer.error().to_text();
  Result<Dispatched<Buffer>> buffer = first.get();
  ASSERT_TRUE(buffer) << buffer.error().to_text();
  EXPECT_EQ(buffer->value.bytes(), 64u);
  EXPECT_EQ(buffer->value.memory()->device->id(), answer->value);
  EXPECT_EQ(answer->device, answer->value);
}

TEST(Router, OrderAndCountsHoldWhileDevicesComeAndGo) {
  Site site(3, {}, 2);
  constexpr int threads = 4, rounds = 150, keys = 5;
  std::map<std::string, std::map<int, int>> last;  // by key: thread, number; a key's work never overlaps
  for (int k = 0; k < keys; ++k) last[user(k)];
  std::atomic<int> out_of_order{0}, served{0}, refused{0};
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
      std::vector<RoutedTask<Done>> tasks;
      for (int i = 1; i <= rounds; ++i) {
        const std::string key = user(i % keys);
        tasks.push_back(site.router->submit(key, [&, key, t, i](Execution&) {
          int& before = last.find(key)->second[t];
          if (before >= i) ++out_of_order;
          before = i;
        }));
      }
      for (RoutedTask<Done>& task : tasks) task.get() ? ++served : ++refused;
    });
  for (std::thread& client : clients) client.join();
  stop = true;
  operations.join();
  EXPECT_EQ(out_of_order, 0);
  EXPECT_EQ(served + refused, threads * rounds);
  // Refused: the device went between the look and the charge.
  EXPECT_EQ(site.scheduler->statistics().total().completed, static_cast<std::uint64_t>(served));
  EXPECT_EQ(site.router->statistics().waiting, 0u);
}

}  // namespace
}  // namespace berth
