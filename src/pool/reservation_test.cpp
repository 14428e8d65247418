#include "pool/reservation.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "pool/test_folder.hpp"

namespace berth {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Holder somebody{4711, 12, 3};

SeenDevice gpu(const std::string& id, std::uint64_t total, std::uint64_t free) {
  SeenDevice device;
  device.info.id = DeviceId(id);
  device.info.backend = "cuda";
  device.info.memory_bytes_total = total;
  device.telemetry = Telemetry{};
  device.telemetry->load.memory_bytes_free = free;
  return device;
}

void add_process(SeenDevice& device, const Holder& holder, std::uint64_t bytes,
                 std::optional<std::uint64_t> lease = {}) {
  if (!device.telemetry->processes) device.telemetry->processes.emplace();
  device.telemetry->processes->push_back({holder.pid, ProcessKind::foreign, {}, bytes});
  device.lineages.push_back({{Holder{holder.pid + 1, 0, 3}, holder}, lease});
}

LedgerEntry taken(std::uint64_t id, const std::string& device, std::uint64_t bytes) {
  LedgerEntry entry;
  entry.id = id;
  entry.state = EntryState::taken;
  entry.holder = somebody;
  entry.claims = {{DeviceId(device), device, bytes}};
  return entry;
}

TEST(Reservation, OfAPromiseOnlyWhatIsNotAllocatedYetIsSubtracted) {
  Sight sight;
  sight.devices = {gpu("a", 80, 50)};
  Book book;
  book.entries = {taken(1, "a", 30)};
  EXPECT_EQ(views_of(sight, book)[0].memory_bytes_promised, 30U) << "nobody says who uses what: all of it";
  add_process(sight.devices[0], somebody, 20);
  EXPECT_EQ(views_of(sight, book)[0].memory_bytes_promised, 10U) << "of a child of the holder";
  add_process(sight.devices[0], Holder{99, 1, 3}, 20, 1);
  EXPECT_EQ(views_of(sight, book)[0].memory_bytes_promised, 0U) << "or of whoever carries the lease; never below zero";
  EXPECT_EQ(bytes_in_use(book.entries[0], sight.devices[0]), 40U);
  book.entries[0].state = EntryState::pool;
  EXPECT_EQ(views_of(sight, book)[0].memory_bytes_promised, 30U);
}

TEST(Reservation, ViewsCarryWhatTheLedgerAndTheOperatorSay) {
  Sight sight;
  sight.devices = {gpu("b", 80, 50), gpu("a", 80, 50), gpu("b/part", 80, 50)};
  sight.devices[0].health = Health::quarantined;
  sight.devices[1].telemetry.reset();
  sight.devices[2].info.parent = DeviceId("b");
  Book book;
  book.entries = {taken(1, "a", 1)};
  book.entries[0].exclusive = true;
  book.intents[DeviceId("b")] = Intent::cordoned;
  const std::vector<DeviceView> views = views_of(sight, book);
  EXPECT_EQ(views[0].health, Health::quarantined);
  EXPECT_EQ(views[0].intent, Intent::cordoned);
  EXPECT_EQ(views[2].intent, Intent::cordoned) << "a part of a cordoned device";
  EXPECT_EQ(views[1].holders, 1U);
  EXPECT_TRUE(views[1].held_exclusively);
  EXPECT_FALSE(views[1].memory_bytes_free) << "silent, so unknown";
  EXPECT_EQ(views[1].id_order, 0U);
  EXPECT_EQ(views[0].id_order, 1U);
}

class Reserving : public testing::Test {
 protected:
  static Wanted wanting(std::uint64_t bytes, std::size_t count = 1) {
    Wanted wanted;
    wanted.hints.memory_bytes_min = bytes;
    wanted.count = count;
    wanted.policy = find_policy("least_loaded");
    wanted.name = "engine";
    return wanted;
  }
  Result<Reserved> ask(const Wanted& wanted, Deadline deadline = {TimePoint{}}) {
    return reserve(*ledger_, wanted, [this] { return sight_; }, deadline);
  }

  TestFolder folder_;
  std::shared_ptr<Ledger> ledger_ = Ledger::open({folder_.path, nullptr}).value();
  Sight sight_{{gpu("a", 80, 80), gpu("b", 80, 80)}, {}};
};

TEST_F(Reserving, PromisesWhatItGivesAndRefusesTheRest) {
  const auto one = ask(wanting(50)), two = ask(wanting(50)), three = ask(wanting(50));
  ASSERT_TRUE(one->lease);
  ASSERT_TRUE(two->lease);
  EXPECT_NE(one->winners, two->winners);
  ASSERT_TRUE(three);
  EXPECT_FALSE(three->lease);
  EXPECT_FALSE(three->never) << "when the others end it fits";
  EXPECT_EQ(three->explanation.cause, Cause::memory_fragmented);
  const auto huge = ask(wanting(81), Deadline::never());
  EXPECT_FALSE(huge->lease);
  EXPECT_TRUE(huge->never) << "said at once, also to who would wait";
}

TEST_F(Reserving, APromiseAndAnAllocationOfTheSameBytesCountOnce) {
  const auto one = ask(wanting(50));
  ASSERT_TRUE(ledger_->lock().value().take(*one->lease, this_process()));
  SeenDevice& device = sight_.devices[one->winners[0]];
  device.telemetry->load.memory_bytes_free = 35;
  add_process(device, this_process(), 45);
  Wanted wanted = wanting(30);
  wanted.hints.only = {device.info.id};
  EXPECT_TRUE(ask(wanted)->lease) << "35 are free, 5 of them promised";
  EXPECT_FALSE(ask(wanted)->lease);
}

TEST_F(Reserving, WhatEndedSinceTheLookIsLookedAtAgain) {
  // Somebody loads 20 more bytes and is killed, between our look and our lock:
  // his promise is gone, and the look does not show what he still occupies.
  const auto one = ask(wanting(30));
  ASSERT_TRUE(one->lease);
  const DeviceId device = sight_.devices[one->winners[0]].info.id;
  Wanted wanted = wanting(60);
  wanted.hints.only = {device};
  int looks = 0;
  const auto asked = reserve(*ledger_, wanted,
                             [&] {
                               Sight sight;
                               sight.devices = {gpu(device.text(), 80, looks == 0 ? 70 : 50)};
                               const bool first = looks++ == 0;
                               EXPECT_TRUE(!first || ledger_->lock().value().release(*one->lease).has_value());
                               return sight;
                             },
                             {TimePoint{}});
  EXPECT_EQ(looks, 2);
  EXPECT_FALSE(asked->lease) << "50 are free";
}

TEST_F(Reserving, DecidingOnceHoldsNothing) {
  const auto picked = decide_once(*ledger_, wanting(50, 2), [this] { return sight_; });
  EXPECT_EQ(picked->winners.size(), 2U);
  EXPECT_FALSE(picked->lease);
  EXPECT_TRUE(ledger_->lock().value().book().entries.empty());
}

TEST_F(Reserving, AWaiterIsServedWhenRoomIsGivenBack) {
  const auto one = ask(wanting(50, 2));
  ASSERT_TRUE(one->lease);
  std::jthread other([&] {
    while (ledger_->lock().value().book().entries.size() < 2) std::this_thread::yield();
    EXPECT_TRUE(ledger_->lock().value().release(*one->lease));
  });
  const auto two = reserve(
      *ledger_, wanting(50, 2), [this] { return sight_; }, Deadline::after(real_clock(), seconds(60)),
      [](const Explanation& explanation) { EXPECT_FALSE(explanation.reason().empty()); });
  ASSERT_TRUE(two);
  EXPECT_TRUE(two->lease);
  EXPECT_EQ(ledger_->lock().value().book().entries.size(), 1U) << "its place in line is given up";
}

TEST_F(Reserving, AWaiterWhoseTimeIsUpLeavesTheLine) {
  ASSERT_TRUE(ask(wanting(50, 2))->lease);
  const auto late = ask(wanting(50), Deadline::after(real_clock(), milliseconds(30)));
  ASSERT_TRUE(late);
  EXPECT_FALSE(late->lease);
  EXPECT_EQ(ledger_->lock().value().book().entries.size(), 1U);
}

TEST_F(Reserving, SmallRequestsDoNotStarveOneThatHasWaitedLong) {
  // A waiter of another process, in line for longer than small ones may pass it.
  const auto one = ask(wanting(50, 2));
  ASSERT_TRUE(one->lease);
  Ledger::Request old;
  old.state = EntryState::waiting;
  old.holder = this_process();
  old.claims = {{DeviceId("a"), "a", 60}};
  ASSERT_TRUE(ledger_->lock().value().add(old));
  Wanted small = wanting(10);
  small.hints.only = {DeviceId("a")};
  Book book = ledger_->lock().value().book();
  ASSERT_EQ(book.entries.size(), 2U);
  const TimePoint later = book.entries[1].since + seconds(31);
  EXPECT_EQ(book.kept_for_others(0, Priority::normal, later, seconds(30)), std::vector{DeviceId("a")});
  EXPECT_TRUE(ask(small)->lease) << "so far it may pass";
}

TEST(Lineage, GoesUpToTheFirstProcessAndKnowsTheLease) {
  const Lineage own = lineage_of(static_cast<std::uint32_t>(getpid()));
  ASSERT_FALSE(own.processes.empty());
  EXPECT_EQ(own.processes[0], this_process());
  ASSERT_GT(own.processes.size(), 1U);
  EXPECT_EQ(own.processes[1].pid, static_cast<std::uint32_t>(getppid()));
  EXPECT_FALSE(own.lease);
  const pid_t child = fork();
  if (child == 0) {
    setenv("BERTH_LEASE", "17", 1);
    execlp("sleep", "sleep", "60", nullptr);
    _exit(1);
  }
  Lineage seen;
  // Until the exec its environment is ours.
  for (int i = 0; i < 100'000 && !seen.lease; ++i) {
    seen = lineage_of(static_cast<std::uint32_t>(child));
    std::this_thread::yield();
  }
  EXPECT_EQ(seen.lease, std::optional<std::uint64_t>(17));
  EXPECT_NE(std::find(seen.processes.begin(), seen.processes.end(), this_process()), seen.processes.end());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(lineage_of(static_cast<std::uint32_t>(child)).processes.empty());
}

}  // namespace
}  // namespace berth
