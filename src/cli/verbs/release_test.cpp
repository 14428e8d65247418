#include "cli/verbs/release.hpp"

#include <gtest/gtest.h>

namespace berth::cli {

namespace {

LedgerEntry entry(std::uint32_t user, std::uint64_t id, EntryKind kind = EntryKind::command) {
  LedgerEntry entry;
  entry.user = user;
  entry.reference = {user, id};
  entry.kind = kind;
  entry.holder.pid = 4711;
  return entry;
}

Error error_of(const LedgerSnapshot& snapshot, const LeaseName& name, std::uint32_t caller) {
  const Result<LedgerEntry> found = releasable(snapshot, name, caller);
  return found ? Error{} : found.error();
}

TEST(Release, ANameIsANumberWithOrWithoutAUser) {
  EXPECT_EQ(parse_lease_name("17")->id, 17U);
  EXPECT_FALSE(parse_lease_name("17")->user);
  EXPECT_EQ(parse_lease_name("alice/17")->user, "alice");
  for (const char* const wrong : {"", "x", "0", "-1", "17x", "/17", "alice/", "99999999999999999999"})
    EXPECT_FALSE(parse_lease_name(wrong)) << wrong;
}

TEST(Release, ALeaseOfAnotherUserWithTheSameNumberIsNotReleased) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(70001, 3), entry(70002, 3)};
  EXPECT_EQ(releasable(snapshot, {std::nullopt, 3}, 70002)->user, 70002U);
  EXPECT_EQ(releasable(snapshot, {"70001", 3}, 0)->user, 70001U);
  const Error several = error_of(snapshot, {std::nullopt, 3}, 0);
  EXPECT_EQ(several.code, ErrorCode::invalid_argument);
  EXPECT_EQ(several.advice, "write 70001/3 or 70002/3");
  EXPECT_EQ(error_of(snapshot, {"70001", 3}, 70002).code, ErrorCode::unavailable);
  EXPECT_EQ(error_of(snapshot, {std::nullopt, 4}, 0).code, ErrorCode::not_found);
}

TEST(Release, PoolsAndWaitingRequestsEndWithTheirProcess) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(70001, 1, EntryKind::pool), entry(70001, 2, EntryKind::waiting)};
  const Error pool = error_of(snapshot, {std::nullopt, 1}, 70001), waiting = error_of(snapshot, {std::nullopt, 2}, 0);
  EXPECT_NE(pool.message.find("belongs to a running program"), std::string::npos);
  EXPECT_EQ(waiting.advice, "end its process: kill 4711");
}

}  // namespace
}  // namespace berth::cli
