#include <gtest/gtest.h>

#include <map>
#include <set>

#include "router/test_site.hpp"

namespace berth::router {
namespace {

using ledger::TestFolder;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Router, S2_T1_AnAllocationToldToAnEntityIsAnswered) {
  RouterOptions options;
  options.shards = 16;
  Site site(2, options);
  std::promise<Result<Buffer>> reply;
  std::future<Result<Buffer>> slot = reply.get_future();
  Entity entity = site.router->entity("user-42");
  entity.tell(Envelope{
      "user-42", [&](TaskContext& execution) { reply.set_value(execution.device().allocate(16 * sizeof(float))); }});
  ASSERT_EQ(slot.wait_for(seconds(60)), std::future_status::ready);
  // Simulated devices have memory, so the answer is a buffer.
  const Result<Buffer> buffer = slot.get();
  ASSERT_TRUE(buffer) << buffer.error().to_text();
  EXPECT_EQ(buffer->bytes(), 64u);
  EXPECT_EQ(buffer->memory()->device->id(), *site.router->route("user-42"));
}

TEST(Router, S2_1_AnEnvelopeIsAnEntityIdAndAMessage) {
  Site site(2);
  const Envelope envelope{"user-42", [](TaskContext&) { return 7; }};
  EXPECT_EQ(envelope.entity, "user-42");
  EXPECT_EQ(site.router->tell(envelope).get()->value, 7);
}

TEST(Router, S2_5_AnEntityHandleDeliversAndTheTableCanBeInspected) {
  RouterOptions options;
  options.shards = 16;
  Site site(2, options);
  Entity entity = site.router->entity("user-42");
  EXPECT_EQ(entity.id(), "user-42");
  EXPECT_EQ(entity.submit([](TaskContext& e) { return e.device().id(); }).get()->value, *site.router->route("user-42"));
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
  std::vector<Task<DeviceId>> tasks;
  for (int i = 0; i < 100; ++i)
    tasks.push_back(site.router->submit("user-42", [](TaskContext& e) { return e.device().id(); }));
  for (Task<DeviceId>& task : tasks) EXPECT_EQ(task.get()->value, *site.router->route("user-42"));
}

TEST(Router, S2_8_WithoutADeviceTheCallerIsTold) {
  Site site(1);
  ASSERT_TRUE(site.pool->leave(gpu(0)));
  auto task = site.router->submit("user-42", [](TaskContext&) { return 1; });
  EXPECT_TRUE(task.ready());
  EXPECT_EQ(task.get().error().code, ErrorCode::no_eligible_device);
}

TEST(Router, S2_F5_NoOwnerIsARetryableErrorAndCounted) {
  Site site(2);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(site.pool->set_intent(gpu(i), Intent::cordoned));
  const Error error = site.served("user-42").error();
  const std::string shard = shard_name(site.router->table()->space().shard_of("user-42"));
  EXPECT_EQ(error.message, "no device can own " + shard + ", the shard of user-42");
  EXPECT_EQ(error.reaction(), Reaction::wait);
  EXPECT_EQ(site.router->route("user-42").error().code, ErrorCode::no_eligible_device);
  EXPECT_EQ(site.router->statistics().undeliverable, 1u) << "route() delivers nothing";
  EXPECT_EQ(site.router->statistics().delivered, 0u);
  ASSERT_TRUE(site.pool->set_intent(gpu(1), Intent::in_service));
  EXPECT_EQ(*site.served("user-42"), gpu(1)) << "the same call works when a device is back";
}

TEST(Router, S2_10_DroppingTheTaskDropsNeitherTheWorkNorItsReply) {
  Site site(2);
  std::promise<DeviceId> reply;
  site.router->tell(Envelope{"user-42", [&](TaskContext& execution) { reply.set_value(execution.device().id()); }});
  EXPECT_EQ(reply.get_future().get(), *site.router->route("user-42"));
}

TEST(Router, S2_F4_AHandleStampsItsOwnIdAndRefusesAnothers) {
  Site site(2);
  Entity entity = site.router->entity("user-42");
  std::atomic<int> ran{0};
  const auto count = [&](TaskContext&) { return ++ran; };
  EXPECT_TRUE(entity.tell(Envelope{"", count}).get());
  EXPECT_TRUE(entity.tell(Envelope{"user-42", count}).get());
  const Error error = entity.tell(Envelope{"user-43", count}).get().error();
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(error.message, "the envelope is for user-43 but was sent to user-42");
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(site.router->statistics().entities, 1u);
}

TEST(Router, WorkOfAKeyWaitsForItsPredecessorAcrossAMove) {  // S2-F9: buffered during the hand-off
  Site site(2);
  const std::string key = site.key_of(gpu(0));
  Gate gate;
  auto first = site.router->submit(key, gate.work());
  gate.begun.wait();
  ASSERT_TRUE(site.pool->set_intent(gpu(0), Intent::draining));
  auto second = site.router->submit(key, [](TaskContext& execution) { return execution.device().id(); });
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
  std::vector<Task<NoValue>> tasks;
  for (int i = 0; i < 200; ++i)
    tasks.push_back(site.router->submit("user-42", [&, i](TaskContext&) {
      if (++running > 1) ++overlaps;
      order.push_back(i);
      --running;
    }));
  for (Task<NoValue>& task : tasks) EXPECT_TRUE(task.get());
  EXPECT_EQ(overlaps, 0);
  ASSERT_EQ(order.size(), 200u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(Router, WorkOfDifferentKeysRunsSideBySide) {
  Site site(1, {}, 2);
  Gate first_gate, second_gate;
  auto first = site.router->submit("one", first_gate.work());
  auto second = site.router->submit("two", second_gate.work());
  first_gate.begun.wait();
  second_gate.begun.wait();  // would never come if the second waited for the first
  first_gate.open_promise.set_value();
  second_gate.open_promise.set_value();
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
}

TEST(Router, AFailedWorkLetsTheNextOfItsKeyRun) {
  Site site(1);
  auto throws = site.router->submit("k", [](TaskContext&) -> int { throw std::runtime_error("no"); });
  auto next = site.router->submit("k", [](TaskContext&) { return 2; });
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
  auto waits = site.router->submit("k", [](TaskContext&) { return 1; });
  EXPECT_EQ(site.router->submit("k", [](TaskContext&) { return 2; }).get().error().code, ErrorCode::queue_full);
  auto other = site.router->submit("another key", [](TaskContext&) { return 3; });
  gate.open_promise.set_value();
  EXPECT_EQ(waits.get()->value, 1);
  EXPECT_EQ(other.get()->value, 3) << "only work behind its own key is bounded here";
}

TEST(Router, WorkThatWaitsForItsTurnCanBeCancelledAndExpires) {
  Site site(1);
  Gate gate;
  auto running = site.router->submit("k", gate.work());
  gate.begun.wait();
  auto cancelled = site.router->submit("k", [](TaskContext&) { return 1; });
  TaskOptions hurried;
  hurried.deadline = Deadline::after(site.clock, seconds(1));
  auto late = site.router->submit("k", [](TaskContext&) { return 2; }, hurried);
  auto last = site.router->submit("k", [](TaskContext&) { return 3; });
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
  auto queued = site.router->submit("k", [](TaskContext&) { return 1; });
  auto behind = site.router->submit("k", [](TaskContext&) { return 2; });
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
  auto waits = site.router->submit("k", [](TaskContext&) { return 1; });
  site.router.reset();
  EXPECT_EQ(waits.get().error().code, ErrorCode::cancelled);
  gate.open_promise.set_value();
  EXPECT_TRUE(running.get());
}

TEST(Router, HintsThatExcludeTheOwnerAreInvalid) {
  Site site(2);
  TaskOptions work;
  work.requirements.only = {gpu(1)};
  auto task = site.router->submit(site.key_of(gpu(0)), [](TaskContext&) { return 1; }, work);
  EXPECT_EQ(task.get().error().code, ErrorCode::invalid_argument);
  EXPECT_TRUE(site.router->submit(site.key_of(gpu(1)), [](TaskContext&) { return 1; }, work).get());
}

TEST(Router, S2_F10_IdleEntitiesAreForgotten) {
  RouterOptions options;
  options.idle_max = seconds(10);
  Site site(1, options);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(site.served(user(i)));
  site.wait_until_counted();
  site.clock.advance(seconds(6));
  ASSERT_TRUE(site.served(user(0)));
  site.wait_until_counted();
  site.clock.advance(seconds(6));
  ASSERT_TRUE(site.router->refresh());
  EXPECT_EQ(site.router->statistics().entities, 1u) << "only the entity that was used since";
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
    auto waits = site.router->submit("busy", [](TaskContext&) {});
    waits.cancel();
    site.router->submit(user(i), [](TaskContext&) {}).cancel();
    EXPECT_LE(site.router->statistics().entities, 11u);
  }
  gate.open_promise.set_value();
  EXPECT_TRUE(running.get());
}

TEST(Router, S2_F11_AResolvedReplyMeansServedByTheRightDeviceAndNotDropped) {
  // A dropped message would also resolve the reply, so the device's own count is checked.
  Site site(2);
  const DeviceId owner = *site.router->route("user-42");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(*site.served("user-42"), owner);
  const Statistics statistics = site.scheduler->statistics();
  for (const DeviceStatistics& device : statistics.devices)
    EXPECT_EQ(device.completed, device.device == owner ? 10u : 0u) << device.device;
}

TEST(Router, S2_F10_ANewKeyIsNotForgottenWhileAllOthersAreBusy) {
  for (const std::size_t entities_max : {0, 1, 2}) {
    RouterOptions options;
    options.entities_max = entities_max;
    Site site(2, options);
    std::promise<void> open;
    const std::shared_future<void> opened = open.get_future().share();
    std::vector<Task<NoValue>> tasks;
    std::array<std::atomic<bool>, 8> is_first_done{}, is_in_order{};
    for (std::size_t key = 0; key < 8; ++key)
      tasks.push_back(site.router->submit("key-" + std::to_string(key), [&, opened, key](TaskContext&) {
        opened.wait();
        is_first_done[key] = true;
      }));
    EXPECT_EQ(site.router->statistics().entities, 8u) << "every entity has work";
    // Later work of a remembered key waits for its earlier work.
    for (std::size_t key = 0; key < 8; ++key)
      tasks.push_back(site.router->submit("key-" + std::to_string(key),
                                          [&, key](TaskContext&) { is_in_order[key] = is_first_done[key].load(); }));
    open.set_value();
    for (auto& task : tasks) EXPECT_TRUE(task.get());
    for (const auto& flag : is_in_order) EXPECT_TRUE(flag);
    EXPECT_TRUE(site.served("one more"));
    site.wait_until_counted();
    EXPECT_LE(site.router->statistics().entities, entities_max + 1) << "entities without work are forgotten";
  }
}

TEST(Router, TheExampleOfThePageWorks) {  // docs/guide/sharding.md
  const TestFolder folder;
  const EnvironmentVariable state("BERTH_RUNTIME_DIR", folder.path);
  BackendOptions backends;
  backends.host_devices = 2;
  auto pool = *Pool::open_all(backends);
  auto scheduler = *Scheduler::start(pool);
  auto router = *Router::start(scheduler);

  Entity session = router.entity("user-42");
  auto first = session.submit([](TaskContext& on) { return on.device().allocate(64); });
  auto second = session.submit([](TaskContext& on) { return on.device().id(); });
  Result<TaskResult<DeviceId>> answer = second.get();

  ASSERT_TRUE(answer) << answer.error().to_text();
  Result<TaskResult<Buffer>> buffer = first.get();
  ASSERT_TRUE(buffer) << buffer.error().to_text();
  EXPECT_EQ(buffer->value.bytes(), 64u);
  EXPECT_EQ(buffer->value.memory()->device->id(), answer->value);
  EXPECT_EQ(answer->device, answer->value);
}

}  // namespace
}  // namespace berth::router
