#include <gtest/gtest.h>

#include "berth/ledger.hpp"

namespace berth {
namespace {

using std::chrono::seconds;

LedgerEntry entry(std::uint64_t id, EntryState state, std::vector<Claim> claims) {
  LedgerEntry made;
  made.id = id;
  made.state = state;
  made.claims = std::move(claims);
  return made;
}

LedgerEntry waiter(std::uint64_t id, Priority priority, std::uint64_t tried, TimePoint tried_at = {}) {
  LedgerEntry made = entry(id, EntryState::waiting, {{DeviceId("a"), "a", 5}});
  made.priority = priority;
  made.tried = tried;
  made.tried_at = tried_at;
  return made;
}

TEST(Book, PromisesOfOneMemoryDomainAddUpAndThoseWhoWaitPromiseNothing) {
  Book book;
  book.entries = {entry(1, EntryState::taken, {{DeviceId("a/0"), "a", 5}, {DeviceId("a/1"), "a", 6}}),
                  entry(2, EntryState::reserved, {{DeviceId("a"), "a", 7}}),
                  entry(3, EntryState::pool, {{DeviceId("a"), "a", 8}, {DeviceId("b"), "b", 0}}),
                  entry(4, EntryState::waiting, {{DeviceId("a"), "a", 100}})};
  EXPECT_EQ(book.promised("a"), 26U);
  EXPECT_EQ(book.promised("b"), 0U);
  EXPECT_EQ(book.holders(DeviceId("a")), 2U);
  EXPECT_EQ(book.holders(DeviceId("a/0")), 1U);
  EXPECT_EQ(book.holders(DeviceId("b")), 0U) << "a pool holds what it has promised bytes of";
  EXPECT_EQ(book.find(3), &book.entries[2]);
  EXPECT_EQ(book.find(9), nullptr);
}

TEST(Book, OnlyALoadUnderWayIsLoading) {
  Book book;
  book.entries = {entry(1, EntryState::taken, {{DeviceId("a"), "a", 5}})};
  book.entries[0].loads_until = TimePoint(seconds(10));
  EXPECT_TRUE(book.is_loading(DeviceId("a"), TimePoint(seconds(9))));
  EXPECT_FALSE(book.is_loading(DeviceId("a"), TimePoint(seconds(10))));
  EXPECT_FALSE(book.is_loading(DeviceId("b"), TimePoint(seconds(9))));
}

TEST(Book, ThoseAheadGoFirstOncePerState) {
  Book book;
  book.changes = 7;
  const TimePoint now(seconds(100)), just_now(seconds(100)), never = TimePoint::min();
  const Duration silence = seconds(1);
  book.entries = {waiter(1, Priority::normal, 7, just_now), waiter(2, Priority::normal, 6, just_now)};
  EXPECT_FALSE(book.others_first(1, Priority::normal, never, now, silence)) << "nobody is ahead of the first";
  EXPECT_FALSE(book.others_first(2, Priority::normal, never, now, silence)) << "the first has tried";
  EXPECT_TRUE(book.others_first(0, Priority::normal, never, now, silence)) << "the second has not";
  EXPECT_FALSE(book.others_first(0, Priority::high, never, now, silence)) << "a higher priority passes both";
  EXPECT_TRUE(book.others_first(1, Priority::low, never, now, silence));
  EXPECT_TRUE(book.others_first(2, Priority::normal, now, now, silence)) << "not since my last try";
  book.entries[1].tried_at = TimePoint(seconds(98));
  EXPECT_FALSE(book.others_first(0, Priority::normal, never, now, silence)) << "stopped: waited for by nobody";
}

TEST(Book, DevicesAreKeptForWhoHasWaitedLong) {
  Book book;
  book.entries = {waiter(1, Priority::normal, 0), waiter(2, Priority::low, 0)};
  book.entries[1].claims[0].device = DeviceId("b");
  const Duration patience = seconds(30);
  EXPECT_TRUE(book.kept_for_others(0, Priority::normal, TimePoint(seconds(29)), patience).empty());
  EXPECT_EQ(book.kept_for_others(0, Priority::normal, TimePoint(seconds(30)), patience), std::vector{DeviceId("a")});
  EXPECT_EQ(book.kept_for_others(0, Priority::low, TimePoint(seconds(30)), patience).size(), 2U);
  EXPECT_TRUE(book.kept_for_others(1, Priority::normal, TimePoint(seconds(30)), patience).empty());
}

}  // namespace
}  // namespace berth
