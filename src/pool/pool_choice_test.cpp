// Which device of a pool a request gets.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "berth/fake_clock.hpp"
#include "berth/pool.hpp"
#include "pool/internals.hpp"
#include "pool/test_device.hpp"
#include "pool/test_pool.hpp"

namespace berth {
namespace {

using namespace std::chrono_literals;
using pool::board_of;
using test::backends_of;
using test::bytes;
using test::eventually;
using test::make_device;
using test::on;
using test::open_pool;
using test::open_three;
using test::quiet;
using test::TestBackend;

TEST(Pool, S0_3_ALeaseNamesTheDeviceHandlesItAndShowsWhatTheDecisionSaw) {
  Pool pool = open_three();
  pool.poll_now();
  const Result<Lease> lease = pool.acquire(on("a"));
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->id().text(), "a");
  EXPECT_EQ(&lease->device(), pool.device(DeviceId("a"))->get());
  EXPECT_EQ(*lease->memory_bytes_free(), 300U);
  EXPECT_EQ(lease->in_flight_before(), 0U) << "the value before the charge";
  const Result<Lease> second = pool.acquire(on("a"));
  EXPECT_EQ(second->in_flight_before(), 1U);
}

TEST(Pool, S0_5_PicksPollsAndAnswersMeetOnTheBoard) {
  auto device = make_device("x", 100);
  Pool pool = open_pool({device});
  EXPECT_FALSE(pool.acquire(bytes(50)));
  pool.poll_now();
  EXPECT_TRUE(pool.acquire(bytes(50)));
  device->answer_free(10);
  EXPECT_TRUE(pool.acquire(bytes(50))) << "the next poll has not happened";
  pool.poll_now();
  EXPECT_FALSE(pool.acquire(bytes(50)));
}

TEST(Pool, S0_6_IsBuiltFromAnOrderedListAndAPolicy) {
  EXPECT_EQ(open_three(quiet("round_robin")).acquire()->id().text(), "b");
  const auto unknown = Pool::open({make_device("x")}, quiet("rond_robin"));
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().to_text().find("round_robin"), std::string::npos) << unknown.error().to_text();
  PoolOptions backwards = quiet();
  backwards.poll_period = -1ms;
  EXPECT_EQ(Pool::open({make_device("x")}, backwards).error().code, ErrorCode::invalid_argument);
}

TEST(Pool, S0_20_ThePolicySeesTheDevicesInTheOrderOfRegistrationOnce) {
  std::vector<std::string> seen;
  PoolOptions options = quiet();
  options.custom_policy = Policy{};
  options.custom_policy->name = "mine";
  options.custom_policy->choose = [&](const Candidates& all) {
    for (std::size_t i = 0; i < all.size(); ++i) seen.push_back(all[i].info().id.text());
    return all.size() - 1;
  };
  Pool pool = open_three(std::move(options));
  // The reference shows unhealthy devices too; ours are filtered before (S0-F13).
  ASSERT_TRUE(pool.set_intent(DeviceId("a"), Intent::cordoned));
  EXPECT_EQ(pool.acquire()->id().text(), "c");
  EXPECT_EQ(seen, (std::vector<std::string>{"b", "c"}));
}

TEST(Pool, S0_22_APolicyThatAnswersOutsideOfItsListIsOverruledAndCounted) {
  // The reference aborts (S0-F10).
  PoolOptions options = quiet();
  options.custom_policy = Policy{};
  options.custom_policy->choose = [](const Candidates&) { return std::size_t{1000}; };
  Pool pool = open_three(std::move(options));
  EXPECT_EQ(pool.acquire()->id().text(), "a");
  EXPECT_EQ(pool.policy_errors(), 1U);
}

TEST(Pool, S0_T1_TwoDevicesTakeTurns) {
  Pool pool = open_pool({make_device("0"), make_device("1")}, quiet("round_robin"));
  std::string ids;
  for (int i = 0; i < 4; ++i) ids += pool.acquire({}, Deadline::after(pool.clock(), 2s))->id().text();
  EXPECT_EQ(ids, "0101");
}

TEST(Pool, S0_F1_LoadComesFromTheDeviceAndFromOurOwnCount) {
  auto device = make_device("x");
  LoadSample sample;
  sample.memory_bytes_free = 77;
  sample.queue_depth = 3;
  device->answer(sample);
  Pool pool = open_pool({device});
  pool.poll_now();
  const Result<Lease> lease = pool.acquire();
  const DeviceView view = pool.status().at(0).view;
  EXPECT_EQ(*view.memory_bytes_free, 77U);
  EXPECT_EQ(*view.queue_depth, 3U);
  EXPECT_FALSE(view.active_streams) << "a value that the device does not report is absent";
  EXPECT_EQ(view.in_flight, 1U);
  EXPECT_EQ(view.info->capability, (Capability{8, 0}));
}

TEST(Pool, S0_F12_NobodyEligibleNamesTheReasonOfEveryDevice) {
  Pool pool = open_three();
  pool.poll_now();
  ASSERT_TRUE(pool.set_intent(DeviceId("a"), Intent::cordoned));
  const Result<Lease> none = pool.acquire(bytes(250));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::no_eligible_device);
  EXPECT_EQ(none.error().reaction(), Reaction::wait);
  for (const char* part : {"a: not_in_service", "b: memory", "c: memory"})
    EXPECT_NE(none.error().message.find(part), std::string::npos) << none.error().message;
}

// Four GPUs in two islands that interleave by id; the last link leads to a device
// that is not in the pool.
std::vector<std::shared_ptr<Backend>> two_islands() {
  auto backend = std::make_unique<TestBackend>(
      std::vector{make_device("a"), make_device("b", 1000, 1), make_device("c", 1000, 2), make_device("d", 1000, 3)});
  backend->join({{DeviceId("a"), DeviceId("c"), LinkKind::nvlink, 4, true},
                 {DeviceId("d"), DeviceId("b"), LinkKind::nvlink, 4, true},
                 {DeviceId("a"), DeviceId("b"), LinkKind::system, 0, {}},
                 {DeviceId("a"), DeviceId("z"), LinkKind::nvlink, 4, true}});
  return backends_of(std::move(backend));
}

std::string ids_of(const Result<std::vector<Lease>>& group) {
  std::set<std::string> ids;
  for (const Lease& lease : group.value()) ids.insert(lease.id().text());
  std::string text;
  for (const std::string& id : ids) text += id;
  return text;
}

TEST(Pool, S0_F17_AGroupIsOfDevicesThatAreJoinedBest) {
  const auto pool = Pool::open_backends(two_islands(), quiet());
  ASSERT_TRUE(pool);
  pool->poll_now();
  {
    const auto pair = pool->acquire_group({}, 2), other = pool->acquire_group(bytes(1), 2);
    EXPECT_EQ(ids_of(pair), "ac") << "by rank it would be a and b";
    EXPECT_EQ(ids_of(other), "bd") << "as good as a and c, and less loaded";
  }
  ASSERT_TRUE(pool->set_intent(DeviceId("c"), Intent::cordoned));
  EXPECT_EQ(ids_of(pool->acquire_group({}, 2)), "bd") << "the complete island";

  // With a topology from the caller, and with an empty one.
  PoolOptions options = quiet();
  options.topology =
      make_topology({DeviceId("a"), DeviceId("d")}, {{DeviceId("a"), DeviceId("d"), LinkKind::nvlink, 1, {}}}).value();
  EXPECT_EQ(ids_of(Pool::open_backends(two_islands(), options)->acquire_group({}, 2)), "ad");
  options.topology = Topology();
  EXPECT_EQ(ids_of(Pool::open_backends(two_islands(), options)->acquire_group({}, 2)), "ab");
}

TEST(Pool, NearADeviceIsWhoIsJoinedToItBest) {
  const auto pool = Pool::open_backends(two_islands(), quiet());
  ASSERT_TRUE(pool);
  Requirements requirements;
  requirements.near = DeviceId("d");
  requirements.avoid = {DeviceId("d")};
  EXPECT_EQ(pool->acquire(requirements)->id().text(), "b");
  EXPECT_EQ(pool->explain(requirements).winner->text(), "b");
  EXPECT_EQ(board_of(*pool).select(pool->policy(), requirements)->text(), "b");
}

TEST(Pool, S0_F18_FiltersPollingAndLeastLoadedWorkTogether) {
  Pool pool = open_three();
  pool.poll_now();
  std::vector<Lease> leases;
  std::map<std::string, int> got;
  for (int i = 0; i < 6; ++i) {
    Result<Lease> lease = pool.acquire(bytes(100));
    ASSERT_TRUE(lease);
    ++got[lease->id().text()];
    leases.push_back(std::move(*lease));
  }
  EXPECT_EQ(got, (std::map<std::string, int>{{"a", 3}, {"b", 1}, {"c", 2}})) << "each exactly as much as fits";
  EXPECT_FALSE(pool.acquire(bytes(100)));
  EXPECT_TRUE(pool.acquire());
}

TEST(Pool, ExplainingTellsTheSameDecisionAndChargesNothing) {
  Pool pool = open_three();
  pool.poll_now();
  const Explanation explanation = pool.explain(bytes(150));
  ASSERT_TRUE(explanation.winner);
  EXPECT_EQ(explanation.winner->text(), "a");
  EXPECT_EQ(board_of(pool).statistics().total().dispatched, 0U);
  EXPECT_EQ(pool.acquire(bytes(150))->id(), *explanation.winner);
}

TEST(Pool, X_F2_WhatOneCallerHoldsEveryQuestionSees) {
  Pool pool = open_three();
  pool.poll_now();
  const Result<std::vector<Lease>> group = pool.acquire_group(bytes(100), 3);
  ASSERT_TRUE(group);
  for (const DeviceStatus& status : pool.status()) EXPECT_EQ(status.view.memory_bytes_promised, 100U);
  EXPECT_EQ(board_of(pool).statistics().total().in_flight, 3U);
  EXPECT_EQ((*pool.best_available_device())->id().text(), "a");
  EXPECT_EQ(pool.explain(bytes(150)).winner->text(), "a");
  EXPECT_FALSE(pool.acquire(bytes(250)));
  EXPECT_EQ(board_of(pool).select(pool.policy(), bytes(200))->text(), "a");
}

TEST(Pool, X_F3_OneNameOfADeviceWorksEverywhere) {
  Pool pool = open_three();
  const DeviceId id("c");
  EXPECT_EQ((*pool.device(id))->id(), id);
  EXPECT_EQ(pool.acquire(on("c"))->id(), id);
  EXPECT_TRUE(pool.set_weight(id, 2));
  EXPECT_TRUE(pool.set_intent(id, Intent::cordoned));
  EXPECT_EQ(pool.status().at(2).info.id, id);
  EXPECT_EQ(board_of(pool).statistics().devices.at(2).device, id);
  EXPECT_TRUE(pool.leave(id));
  EXPECT_EQ(pool.leave(id).error().where, "c");
}

TEST(Pool, ManyMoreDevicesThanTheCapacityGiven) {
  PoolOptions options = quiet();
  options.capacity = 1;
  Pool pool = open_pool({make_device("x"), make_device("y")}, options);
  EXPECT_EQ(pool.device_count(), 2U);
  EXPECT_EQ(pool.join(make_device("z")).error().code, ErrorCode::unavailable);
  options.capacity = 5000;
  EXPECT_EQ(Pool::open({make_device("x")}, options).error().code, ErrorCode::invalid_argument);
}

TEST(Pool, S0_F6_AReportIsSeenAtOnceAndAnOlderAnswerDoesNotUndoIt) {
  FakeClock clock;
  PoolOptions options = quiet();
  options.clock = &clock;
  const auto device = make_device("a", 100);
  const auto pool = open_pool({device}, options);
  pool.poll_now();
  EXPECT_FALSE(pool.acquire(bytes(200)));
  LoadSample more;
  more.memory_bytes_free = 500;
  const TimePoint before = clock.now();
  clock.advance(10ms);
  ASSERT_TRUE(pool.report(DeviceId("a"), more));
  EXPECT_TRUE(pool.acquire(bytes(200))) << "without a poll";
  clock.advance(10ms);
  pool.poll_now();
  EXPECT_FALSE(pool.acquire(bytes(200))) << "the next poll counts again";
  ASSERT_TRUE(pool.report(DeviceId("a"), more));
  LoadSample old;
  old.memory_bytes_free = 100;
  EXPECT_FALSE(board_of(pool).apply_sample(0, 1000, old, before, board_of(pool).entries()[0].incarnation));
  EXPECT_TRUE(pool.acquire(bytes(200))) << "the sample is older than the report";
  LoadSample gone = more;
  gone.events.push_back({DeviceEvent::Kind::xid, 79, clock.now()});
  ASSERT_TRUE(pool.report(DeviceId("a"), gone));
  EXPECT_FALSE(pool.acquire()) << "events count too";
  EXPECT_EQ(pool.report(DeviceId("b"), more).error().code, ErrorCode::not_found);
}

TEST(Pool, AWholeDeviceHasNoProcessOfAnotherProgram) {
  const auto pool = open_pool({make_device("a")});
  Requirements whole;
  whole.whole = true;
  LoadSample sample;
  sample.memory_bytes_free = 1000;
  sample.processes = {{.pid = 1, .kind = ProcessKind::foreign, .name = "other", .memory_bytes = 0}};
  ASSERT_TRUE(pool.report(DeviceId("a"), sample));
  EXPECT_FALSE(pool.acquire(whole));
  EXPECT_EQ(pool.explain(whole).cause, Cause::occupied);
  EXPECT_TRUE(pool.acquire()) << "the process only blocks requests for the whole device";
  sample.processes->clear();
  ASSERT_TRUE(pool.report(DeviceId("a"), sample));
  EXPECT_TRUE(pool.acquire(whole));
}

TEST(Pool, ADeviceHeldAloneIsNobodyElsesUntilItIsGivenBack) {
  const auto pool = open_three();
  pool.poll_now();
  Requirements alone;
  alone.exclusive = true;
  const Result<Lease> shared = pool.acquire(on("a"));
  Result<Lease> held = pool.acquire(alone);
  ASSERT_TRUE(held);
  EXPECT_NE(held->id(), DeviceId("a")) << "a has work";
  for (int i = 0; i < 20; ++i) EXPECT_NE(pool.acquire()->id(), held->id());
  EXPECT_EQ(pool.explain(on(held->id().text())).cause, Cause::held_exclusively);
  EXPECT_FALSE(pool.acquire_group(alone, 2)) << "one of three devices has work, one is held";
  EXPECT_TRUE(pool.acquire(alone)) << "a refused group holds nothing";
  const DeviceId id = held->id();
  held->settle({});
  EXPECT_TRUE(pool.acquire(on(id.text())));
}

TEST(Pool, WaitersAreServedWhenADeviceHeldAloneIsGivenBack) {
  const auto pool = open_pool({make_device("a")});
  pool.poll_now();
  Requirements alone;
  alone.exclusive = true;
  std::optional<Lease> held = pool.acquire(alone).value();
  std::jthread other([&] {
    EXPECT_TRUE(eventually([&] { return board_of(pool).waiting() == 1; }));
    held.reset();
  });
  EXPECT_TRUE(pool.acquire({}, Deadline::after(real_clock(), 60s)));
}

TEST(Pool, ManyWhoWantADeviceAloneNeverShareIt) {
  const auto pool = open_pool({make_device("a"), make_device("b")});
  pool.poll_now();
  std::map<std::string, std::atomic<int>> inside;
  inside["a"], inside["b"];
  std::atomic<int> most_alone{0}, granted{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Requirements requirements;
      requirements.exclusive = t != 0;
      for (int i = 0; i < 2000; ++i) {
        const Result<Lease> lease = pool.acquire(requirements);
        if (!lease) continue;
        std::atomic<int>& here = inside.at(lease->id().text());
        const int before = here.fetch_add(1);
        if (requirements.exclusive && before != 0) most_alone = before;
        if (requirements.exclusive) ++granted;
        here.fetch_sub(1);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(most_alone.load(), 0);
  EXPECT_GT(granted.load(), 0);
}

}  // namespace
}  // namespace berth
