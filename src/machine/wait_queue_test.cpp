#include "machine/wait_queue.hpp"

#include <gtest/gtest.h>

#include "berth/placement.hpp"

namespace berth::machine {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const TimePoint start(std::chrono::hours(1));

// A machine of identical devices "0", "1", ..., with 80 bytes each.
struct Machine {
  std::vector<DeviceInfo> infos;
  std::vector<DeviceView> views;
  explicit Machine(std::vector<std::uint64_t> free) : infos(free.size()) {
    for (std::size_t i = 0; i < free.size(); ++i) {
      infos[i].id = DeviceId(std::to_string(i));
      infos[i].memory_bytes_total = 80;
      DeviceView view;
      view.info = &infos[i];
      view.memory_bytes_free = free[i];
      view.sample = SampleState::fresh;
      views.push_back(view);
    }
  }
  std::string kept() const {
    std::string out;
    for (const DeviceView& view : views) {
      if (view.kept_for_waiting) out += view.info->id.text();
    }
    return out;
  }
};

LedgerEntry waiting(std::uint64_t id, std::uint32_t user, Duration age, std::uint64_t bytes, std::size_t count = 1,
                    std::size_t devices = 4, bool exclusive = false) {
  LedgerEntry entry;
  entry.reference = {user, id};
  entry.user = user;
  entry.kind = EntryKind::waiting;
  entry.since = start - age;
  entry.last_heartbeat = start;
  entry.count = count;
  for (std::size_t i = 0; i < devices; ++i)
    entry.claims.push_back({DeviceId(std::to_string(i)), std::to_string(i), bytes, 0, exclusive});
  return entry;
}

LedgerEntry holding(std::uint64_t id, std::uint32_t user, std::uint64_t bytes) {
  LedgerEntry entry = waiting(id, user, seconds(1), bytes, 1, 1);
  entry.kind = EntryKind::command;
  return entry;
}

std::vector<std::uint64_t> ids(const std::vector<WaitingRequest>& queue) {
  std::vector<std::uint64_t> out;
  for (const WaitingRequest& request : queue) out.push_back(request.reference.id);
  return out;
}
using Ids = std::vector<std::uint64_t>;

TEST(WaitQueue, PriorityOrdersOnlyRequestsOfTheSameUser) {
  LedgerSnapshot snapshot;
  snapshot.entries = {waiting(1, 1000, seconds(30), 10), waiting(2, 1000, seconds(20), 10),
                      waiting(3, 1001, seconds(25), 10)};
  snapshot.entries[1].priority = Priority::high;
  EXPECT_EQ(ids(wait_queue(snapshot, start)), (Ids{3, 2, 1})) << "2 before 1, and 3 is earlier than 2";
}

TEST(WaitQueue, TheUserWhoHoldsLessGoesFirstThenTheEarlier) {
  LedgerSnapshot snapshot;
  snapshot.entries = {holding(9, 1000, 40), waiting(1, 1000, seconds(30), 10), waiting(2, 1001, seconds(20), 10)};
  EXPECT_EQ(ids(wait_queue(snapshot, start)), (Ids{2, 1}));
  snapshot.entries[0].user = 1001;
  EXPECT_EQ(ids(wait_queue(snapshot, start)), (Ids{1, 2}));
}

TEST(WaitQueue, FiveHundredRequestsOfOneUserDoNotBlockTheRest) {
  LedgerSnapshot snapshot;
  for (std::uint64_t id = 1; id <= 500; ++id) snapshot.entries.push_back(waiting(id, 1000, seconds(60), 10));
  snapshot.entries.push_back(waiting(501, 1001, seconds(1), 10));
  const Ids order = ids(wait_queue(snapshot, start));
  EXPECT_EQ(order[0], 1U);
  EXPECT_EQ(order[1], 501U);
  // Even if the first ones have waited long.
  for (LedgerEntry& entry : snapshot.entries) {
    if (entry.user == 1000) entry.since = start - minutes(30);
  }
  EXPECT_EQ(ids(wait_queue(snapshot, start))[1], 501U);
}

TEST(WaitQueue, ShortJobsOneAfterTheOtherDoNotBlockTheRest) {
  LedgerSnapshot snapshot;
  for (std::uint64_t id = 1; id <= 20; ++id) snapshot.entries.push_back(waiting(id, 1000, minutes(30), 10));
  snapshot.entries.push_back(waiting(21, 1001, seconds(5), 10));
  EXPECT_EQ(ids(wait_queue(snapshot, start))[0], 1U);
  // One of them was just served and has ended, so its user holds nothing.
  snapshot.last_grants[1000] = start - seconds(1);
  EXPECT_EQ(ids(wait_queue(snapshot, start))[0], 21U);
}

TEST(WaitQueue, ALongWaitingRequestIsNotOvertakenForever) {
  LedgerSnapshot snapshot;
  snapshot.entries = {holding(9, 1000, 40), holding(8, 1002, 90), waiting(1, 1000, aged_after, 80, 4),
                      waiting(2, 1001, seconds(1), 10)};
  EXPECT_EQ(ids(wait_queue(snapshot, start)), (Ids{1, 2}));
}

TEST(WaitQueue, AUserOverAnEqualShareIsOvertakenForLongerButNotForever) {
  LedgerSnapshot snapshot;
  // An equal share is 20 bytes, a third of 60.
  snapshot.entries = {holding(9, 1000, 40), holding(8, 1002, 20),
                      waiting(1, 1000, aged_after_over_share - seconds(1), 80, 4), waiting(2, 1001, seconds(1), 10)};
  EXPECT_EQ(ids(wait_queue(snapshot, start)), (Ids{2, 1}));
  snapshot.entries[2].since = start - aged_after_over_share;
  EXPECT_EQ(ids(wait_queue(snapshot, start)), (Ids{1, 2}));
  snapshot.entries[2].since = start - aged_after;
  snapshot.entries[0].claims[0].memory_bytes = 20;
  EXPECT_EQ(ids(wait_queue(snapshot, start)), (Ids{2, 1})) << "an equal share is 13 bytes";
  snapshot.entries[1].claims[0].memory_bytes = 40;
  EXPECT_EQ(ids(wait_queue(snapshot, start)), (Ids{1, 2})) << "not more than an equal share";
}

TEST(WaitQueue, ARequestThatALimitStopsKeepsNothingFromOthers) {
  Machine machine({80, 40, 40, 40});
  const WaitingRequest limited = waiting_request_of(waiting(1, 1000, minutes(10), 70, 1, 0));
  const WaitingRequest large = waiting_request_of(waiting(2, 1001, minutes(9), 80, 2));
  charge_requests_ahead(std::vector{limited, large}, machine.views);
  EXPECT_EQ(machine.kept().size(), 2U) << "for the first request that only lacks room";
}

TEST(WaitQueue, ARequestThatALimitStopsWaitsOnlyBehindOthersOfItsUser) {
  const WaitingRequest limited = waiting_request_of(waiting(1, 1000, seconds(9), 10, 1, 0));
  const WaitingRequest of_another = waiting_request_of(waiting(3, 1001, seconds(9), 10, 1, 0));
  const WaitingRequest larger = waiting_request_of(waiting(4, 1000, seconds(9), 10, 2, 0));
  const WaitingRequest me = waiting_request_of(waiting(5, 1000, seconds(7), 10, 1, 0));
  EXPECT_TRUE(smaller_request_ahead(me, std::vector{limited}));
  EXPECT_FALSE(smaller_request_ahead(me, std::vector{of_another, larger}));
}

TEST(WaitQueue, RequestsWithoutAHeartbeatAreSkipped) {
  LedgerSnapshot snapshot;
  snapshot.entries = {waiting(1, 1000, seconds(60), 10), waiting(2, 1001, seconds(1), 10)};
  snapshot.entries[0].last_heartbeat = start - silent_after;
  EXPECT_EQ(ids(wait_queue(snapshot, start)), (Ids{2}));
}

TEST(WaitQueue, AFittingRequestIsChargedAndTheFirstOtherKeepsTheClosestDevices) {
  Machine machine({80, 40, 60, 20});
  const std::vector<WaitingRequest> ahead{waiting_request_of(waiting(1, 1000, seconds(9), 80)),
                                          waiting_request_of(waiting(2, 1000, seconds(8), 70, 2)),
                                          waiting_request_of(waiting(3, 1000, seconds(7), 50, 3))};
  charge_requests_ahead(ahead, machine.views);
  EXPECT_EQ(machine.views[0].memory_bytes_available(), OptionalU64(0)) << "request 1 gets it";
  EXPECT_EQ(machine.kept(), "12") << "the two with the most free memory; request 3 keeps none";
}

TEST(WaitQueue, ADeviceWithoutLeasesIsNotNearerIfOthersUseItsMemory) {
  Machine machine({41, 21});
  machine.views[0].holders = 1;
  const std::vector<WaitingRequest> ahead{waiting_request_of(waiting(1, 1000, minutes(10), 45))};
  charge_requests_ahead(ahead, machine.views);
  EXPECT_EQ(machine.kept(), "0");
}

TEST(WaitQueue, AWaitingRequestKeepsNoMoreDevicesThanItNeeds) {
  // 4 devices with 40 bytes free each, and one request for 70.
  Machine machine({40, 40, 40, 40});
  const std::vector<WaitingRequest> ahead{waiting_request_of(waiting(1, 1000, minutes(10), 70))};
  charge_requests_ahead(ahead, machine.views);
  EXPECT_EQ(machine.kept().size(), 1U);
}

TEST(WaitQueue, WholeDevicesAreKeptAsWhole) {
  Machine machine({80, 80, 80, 80});
  for (DeviceView& view : machine.views) view.holders = 1;
  machine.views[2].holders = 0;
  const std::vector<WaitingRequest> ahead{waiting_request_of(waiting(1, 1000, seconds(9), 80, 2, 4, true))};
  charge_requests_ahead(ahead, machine.views);
  EXPECT_EQ(machine.kept().size(), 2U);
  EXPECT_TRUE(machine.views[2].kept_for_waiting) << "already free";
}

TEST(WaitQueue, ARequestAheadFitsExactlyWhereTheFiltersAcceptIt) {
  constexpr std::uint64_t gib = std::uint64_t{1} << 30;
  Requirements shared, exclusive, whole;
  shared.memory_bytes_min = exclusive.memory_bytes_min = 30 * gib;
  exclusive.exclusive = whole.whole = true;
  std::vector<DeviceView> states;
  const auto add = [&](auto change) {
    states.emplace_back().memory_bytes_free = 80 * gib;
    states.back().sample = SampleState::fresh;
    change(states.back());
  };
  add([](DeviceView&) {});
  for (const Health health : {Health::suspect, Health::quarantined, Health::probation, Health::lost})
    add([&](DeviceView& v) { v.health = health; });
  add([](DeviceView& v) { v.health = Health::probation, v.in_flight = 1; });
  add([](DeviceView& v) { v.intent = Intent::draining; });
  add([](DeviceView& v) { v.sample = SampleState::stale; });
  add([](DeviceView& v) { v.sample = SampleState::unknown; });
  add([](DeviceView& v) { v.holders = 1; });
  add([](DeviceView& v) { v.held_exclusively = true; });
  add([](DeviceView& v) { v.used_by_others = true; });
  add([](DeviceView& v) { v.other_processes = 1; });
  add([](DeviceView& v) { v.memory_bytes_free = OptionalU64(); });
  for (const std::uint64_t free : {20, 40}) add([&](DeviceView& v) { v.memory_bytes_free = free * gib; });
  for (const Requirements& requirements : {shared, exclusive, whole}) {
    const std::uint64_t bytes = (requirements.whole ? 80 : 30) * gib;
    const WaitingRequest ahead =
        waiting_request_of(waiting(1, 1000, seconds(9), bytes, 1, 1, requirements.is_exclusive()));
    for (std::size_t i = 0; i < states.size(); ++i) {
      Machine machine({0});
      machine.infos[0].memory_bytes_total = 80 * gib;
      machine.views[0] = states[i];
      machine.views[0].info = &machine.infos[0];
      const bool rejected = reject(requirements, machine.views[0]).has_value();
      charge_requests_ahead(std::vector{ahead}, machine.views);
      EXPECT_EQ(machine.views[0].kept_for_waiting, rejected) << "state " << i << ", " << bytes / gib << " GiB";
    }
  }
}

TEST(WaitQueue, ARequestBehindASmallerOneIsDetected) {
  const WaitingRequest small = waiting_request_of(waiting(1, 1000, seconds(9), 10));
  const WaitingRequest same = waiting_request_of(waiting(2, 1000, seconds(8), 10));
  const WaitingRequest larger = waiting_request_of(waiting(3, 1000, seconds(8), 20, 2));
  const WaitingRequest smaller = waiting_request_of(waiting(4, 1000, seconds(8), 5));
  const WaitingRequest elsewhere = waiting_request_of(waiting(5, 1000, seconds(8), 10, 1, 5));
  EXPECT_TRUE(smaller_request_ahead(same, std::vector{small}));
  EXPECT_TRUE(smaller_request_ahead(larger, std::vector{small}));
  EXPECT_FALSE(smaller_request_ahead(smaller, std::vector{small}));
  EXPECT_FALSE(smaller_request_ahead(elsewhere, std::vector{small})) << "it can use one more device";
  EXPECT_FALSE(smaller_request_ahead(small, std::vector{larger}));
  EXPECT_FALSE(smaller_request_ahead(small, {}));
}

}  // namespace
}  // namespace berth::machine
