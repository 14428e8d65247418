#include "ledger/usage.hpp"

#include <gtest/gtest.h>

namespace berth::ledger {
namespace {

const ProcessIdentity shell{100, 1, 3}, server{200, 2, 3}, stranger{300, 3, 3};

LedgerEntry entry(std::uint64_t id, const ProcessIdentity& holder, std::uint64_t bytes,
                  EntryKind kind = EntryKind::command) {
  LedgerEntry made;
  made.reference = {1, id};
  made.user = 1000;
  made.kind = kind;
  made.holder = holder;
  made.since = TimePoint(std::chrono::seconds(id));
  made.claims = {{DeviceId("a"), "a", bytes, 0, false}};
  return made;
}

ObservedProcess process(const ProcessIdentity& who, std::uint64_t bytes, std::vector<ProcessIdentity> ancestors = {}) {
  ObservedProcess made;
  made.pid = who.pid;
  made.memory_bytes = bytes;
  made.trace.user = 1000;
  made.trace.lineage = {who};
  made.trace.lineage.insert(made.trace.lineage.end(), ancestors.begin(), ancestors.end());
  return made;
}

std::uint64_t unallocated(const LedgerSnapshot& snapshot, const std::vector<ObservedProcess>& processes,
                          std::optional<std::uint64_t> used = std::nullopt,
                          std::optional<LeaseReference> except = std::nullopt) {
  return unallocated_bytes(snapshot, {"a", 0, used, processes}, except);
}

TEST(Usage, OnlyTheUnallocatedPartOfAPromiseIsSubtracted) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, shell, 30)};
  EXPECT_EQ(unallocated(snapshot, {}), 30U);
  EXPECT_EQ(unallocated(snapshot, {process(shell, 10)}), 20U);
  EXPECT_EQ(unallocated(snapshot, {process(server, 10, {shell})}), 20U) << "a child process";
  EXPECT_EQ(unallocated(snapshot, {process(stranger, 10)}), 30U);
  EXPECT_EQ(unallocated(snapshot, {process(shell, 50)}), 0U) << "never below zero";
}

TEST(Usage, EachKindOfEvidenceAssignsAProcessToItsLease) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, shell, 30)};
  snapshot.entries[0].cgroup = "/user.slice/berth-1.scope";
  ObservedProcess orphan = process(stranger, 10);
  EXPECT_EQ(owner_of(orphan.trace, snapshot), nullptr);
  orphan.trace.lease = LeaseReference{1, 1};
  EXPECT_EQ(owner_of(orphan.trace, snapshot), &snapshot.entries[0]);
  orphan.trace.lease = LeaseReference{2, 1};
  EXPECT_EQ(owner_of(orphan.trace, snapshot), nullptr) << "a lease of another ledger";
  orphan.trace.descriptors = {{1, 1}};
  EXPECT_EQ(owner_of(orphan.trace, snapshot), &snapshot.entries[0]);
  orphan.trace.descriptors.clear();
  orphan.trace.cgroup = "/user.slice/berth-1.scope/inner";
  EXPECT_EQ(owner_of(orphan.trace, snapshot), &snapshot.entries[0]);
  orphan.trace.cgroup = "/user.slice/berth-1.scope2";
  EXPECT_EQ(owner_of(orphan.trace, snapshot), nullptr);
}

TEST(Usage, AnotherUsersProcessDoesNotUseALease) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, shell, 30)};
  ObservedProcess other = process(stranger, 30);
  other.trace.lease = LeaseReference{1, 1};
  other.trace.user = 1001;
  EXPECT_EQ(unallocated(snapshot, {other}), 30U);
  other.trace.user = 0;
  EXPECT_EQ(unallocated(snapshot, {other}), 0U) << "root runs a container of the command";
}

TEST(Usage, AProcessCountsForTheInnermostLeaseOnly) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, shell, 20), entry(2, server, 20)};
  // A launcher under a lease starts a second, separate lease: 20 used bytes are
  // subtracted from one promise only.
  EXPECT_EQ(unallocated(snapshot, {process(server, 20, {shell})}), 20U);
  // Nested in the outer one, both are one promise of 20.
  snapshot.entries[1].within = snapshot.entries[0].reference;
  EXPECT_EQ(unallocated(snapshot, {}), 20U);
  EXPECT_EQ(unallocated(snapshot, {process(server, 20, {shell})}), 0U);
  EXPECT_EQ(snapshot.holders(DeviceId("a")), 1U);
}

TEST(Usage, AnEntryOfAnotherUserUsesNothingOfALease) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, shell, 60), entry(2, stranger, 20)};
  snapshot.entries[1].user = 1001;
  snapshot.entries[1].within = snapshot.entries[0].reference;
  ObservedProcess other = process(stranger, 20);
  other.trace.user = 1001;
  EXPECT_EQ(unallocated(snapshot, {}), 80U);
  EXPECT_EQ(unallocated(snapshot, {other}), 60U) << "20 of its own, and none of the 60";
  EXPECT_EQ(bytes_left_within(snapshot, {1, 1}, {"a", 0, std::nullopt, {}}), 60U);
}

TEST(Usage, BytesAPoolUsesOutsideOfItsLeasesDoNotCountAsPromised) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, server, 20, EntryKind::pool)};
  snapshot.entries[0].claims[0].memory_bytes_outside = 5;
  EXPECT_EQ(unallocated(snapshot, {process(server, 5)}), 20U);
  EXPECT_EQ(unallocated(snapshot, {process(server, 17)}), 8U);
  EXPECT_EQ(unallocated(snapshot, {process(stranger, 17, {server})}), 20U) << "nor what its child processes use";
}

TEST(Usage, NoMoreThanTheMemoryInUseCountsAsAllocated) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, shell, 20)};
  // 18 were freed between the list of processes and the free memory.
  EXPECT_EQ(unallocated(snapshot, {process(shell, 20)}, 2), 18U);
}

TEST(Usage, SumsDoNotWrap) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, shell, ~std::uint64_t{0}), entry(2, server, ~std::uint64_t{0})};
  EXPECT_EQ(unallocated(snapshot, {}), ~std::uint64_t{0});
  EXPECT_EQ(unallocated(snapshot, {process(shell, ~std::uint64_t{0}), process(server, 7)}), 0U);
}

TEST(Usage, InsideALeaseItsUnusedBytesAreAvailable) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, shell, 20), entry(2, server, 8)};
  snapshot.entries[1].within = snapshot.entries[0].reference;
  const auto left = [&](const std::vector<ObservedProcess>& processes, std::optional<LeaseReference> except = {}) {
    return bytes_left_within(snapshot, {1, 1}, {"a", 0, std::nullopt, processes}, except);
  };
  EXPECT_EQ(left({}), 12U);
  EXPECT_EQ(left({process(server, 5, {shell})}), 12U) << "5 of the 8 promised inside";
  EXPECT_EQ(left({process(shell, 5)}), 7U) << "used by the command itself";
  EXPECT_EQ(left({process(server, 9, {shell})}), 11U) << "more than was promised";
  EXPECT_EQ(left({process(server, 5, {shell})}, LeaseReference{1, 2}), 20U) << "without that entry";
}

TEST(Usage, AProcessOnTheDeviceKeepsALeaseWithoutOtherEvidence) {
  LedgerSnapshot snapshot;
  snapshot.ended = {entry(5, shell, 30)};
  ObservedProcess child = process(stranger, 10);
  child.trace.lease = LeaseReference{1, 5};
  const std::vector<ObservedProcess> processes{child};
  const std::vector<DeviceProcesses> devices{{DeviceId("a"), processes}};
  keep_entries_in_use(snapshot, devices, {});
  ASSERT_EQ(snapshot.entries.size(), 1U);
  EXPECT_EQ(snapshot.entries[0].alive_by, Liveness::device);
  EXPECT_EQ(snapshot.entries[0].kept_by, std::vector<std::uint32_t>{300});
  EXPECT_TRUE(snapshot.ended.empty());
}

TEST(Usage, AHiddenProcessKeepsALease) {
  LedgerSnapshot snapshot;
  snapshot.ended = {entry(5, shell, 30)};
  ObservedProcess unseen;
  unseen.pid = 300;
  unseen.memory_bytes = 10;
  std::vector<ObservedProcess> processes{unseen};
  const std::vector<DeviceProcesses> devices{{DeviceId("a"), processes}};
  keep_entries_in_use(snapshot, devices, {});
  EXPECT_TRUE(snapshot.entries.empty()) << "it has ended, or its pid is of another namespace";
  processes[0].trace.hidden = true;
  keep_entries_in_use(snapshot, devices, {});
  EXPECT_EQ(snapshot.entries.size(), 1U) << "hidepid: it may belong to the lease";
}

TEST(Usage, ADeviceThatDoesNotListItsProcessesKeepsALease) {
  LedgerSnapshot snapshot;
  snapshot.ended = {entry(5, shell, 30)};
  const std::vector<DeviceProcesses> others{{DeviceId("b"), {}, true}}, silent{{DeviceId("a"), {}, true}};
  keep_entries_in_use(snapshot, others, {});
  EXPECT_TRUE(snapshot.entries.empty()) << "the lease does not hold that device";
  keep_entries_in_use(snapshot, silent, {});
  ASSERT_EQ(snapshot.entries.size(), 1U);
  EXPECT_EQ(snapshot.entries[0].alive_by, Liveness::device);
}

TEST(Usage, AnOrphanOfTheSameUserKeepsALeaseAndOthersDoNot) {
  // Another user's environment is hidden: only the user and the start time of an orphan
  // are known.
  const BootTime time{TimePoint(std::chrono::seconds(100)), 10'000, 100};
  ObservedProcess orphan = process({300, 5'000, 3}, 10);  // started 50 s ago, at 50
  orphan.trace.orphan = true;
  const auto kept = [&](const ObservedProcess& seen, std::uint64_t since, const char* device = "a") {
    LedgerSnapshot snapshot;
    snapshot.ended = {entry(since, shell, 30)};
    const std::vector<ObservedProcess> processes{seen};
    const std::vector<DeviceProcesses> devices{{DeviceId(device), processes}};
    keep_entries_in_use(snapshot, devices, time);
    return !snapshot.entries.empty();
  };
  EXPECT_TRUE(kept(orphan, 40));
  EXPECT_FALSE(kept(orphan, 60)) << "started before the lease";
  EXPECT_FALSE(kept(orphan, 40, "b")) << "on another device";
  ObservedProcess other = orphan;
  other.trace.user = 1001;
  EXPECT_FALSE(kept(other, 40));
  other = orphan;
  other.trace.orphan = false;
  EXPECT_FALSE(kept(other, 40)) << "started from a shell";
  other = orphan;
  other.memory_bytes = 0;
  EXPECT_FALSE(kept(other, 40));
}

TEST(Usage, OnlyLeasesOnDevicesWithoutAProcessListAreKept) {
  LedgerSnapshot snapshot;
  snapshot.ended = {entry(1, shell, 30), entry(2, shell, 30)};
  snapshot.ended[1].claims[0].device = DeviceId("b");
  const std::vector<DeviceProcesses> seen{{DeviceId("a"), {}, true}, {DeviceId("b"), {}, false}};
  keep_entries_in_use(snapshot, seen, {});
  ASSERT_EQ(snapshot.entries.size(), 1U);
  EXPECT_EQ(snapshot.entries[0].id(), 1U);
  EXPECT_EQ(snapshot.entries[0].alive_by, Liveness::device);
  EXPECT_EQ(snapshot.ended.size(), 1U);
}

// A process of root may belong to any user's lease, as a container does.
TEST(Usage, AForgedLeaseReferenceDoesNotClaimProcessesOfRoot) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, shell, 30), entry(1, server, 30)};
  snapshot.entries[0].user = snapshot.entries[0].reference.user = 0;
  snapshot.entries[1].user = snapshot.entries[1].reference.user = 2000;
  snapshot.entries[1].since += std::chrono::seconds(9);
  ObservedProcess with_lease = process(stranger, 10);
  with_lease.trace.user = 0;
  with_lease.trace.lease = LeaseReference{1, 1};
  EXPECT_EQ(owner_of(with_lease.trace, snapshot), &snapshot.entries[0]) << "the lease of its own user";
  snapshot.entries[0].user = snapshot.entries[0].reference.user = 1000;
  EXPECT_EQ(owner_of(with_lease.trace, snapshot), nullptr) << "ambiguous between two other users";
  with_lease.trace.descriptors = {snapshot.entries[0].reference};
  EXPECT_EQ(owner_of(with_lease.trace, snapshot), &snapshot.entries[0]);
  snapshot.entries.pop_back();
  with_lease.trace.descriptors.clear();
  EXPECT_EQ(owner_of(with_lease.trace, snapshot), &snapshot.entries[0]) << "the only lease with that reference";
}

TEST(Usage, EntriesOfBothSnapshotsCount) {
  LedgerSnapshot before, after;
  before.entries = {entry(1, shell, 30), entry(2, server, 20)};
  after.entries = {entry(2, server, 5), entry(3, stranger, 1)};
  const LedgerSnapshot both = merged(before, after);
  EXPECT_EQ(unallocated(both, {}), 51U);
  before.entries[0].kind = EntryKind::waiting;
  EXPECT_EQ(merged(before, after).entries.size(), 2U) << "a request that waited and left blocks no other";
}

TEST(Usage, AnEndedLeaseOfAnotherUserAddedDuringTheObservationCounts) {
  LedgerSnapshot snapshot;
  snapshot.ended = {entry(1, shell, 30), entry(2, server, 20)};
  const TimePoint looked_at(std::chrono::seconds(2));
  LedgerSnapshot own = snapshot, of_root = snapshot;
  keep_entries_added_since(own, looked_at, [](const LedgerEntry& entry) { return entry.user == 1000; });
  EXPECT_EQ(own.ended.size(), 2U) << "it can read environments of its own user";
  keep_entries_added_since(of_root, looked_at, [](const LedgerEntry&) { return true; });
  EXPECT_EQ(of_root.ended.size(), 2U);
  keep_entries_added_since(snapshot, looked_at, [](const LedgerEntry& entry) { return entry.user == 1001; });
  ASSERT_EQ(snapshot.entries.size(), 1U);
  EXPECT_EQ(snapshot.entries[0].id(), 2U);
  EXPECT_EQ(snapshot.ended.size(), 1U);
  EXPECT_EQ(unallocated(snapshot, {}), 20U);
}

TEST(Usage, AClaimUnderAFormerIdCountsForTheDevice) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, shell, 30)};
  snapshot.ended = {entry(2, shell, 5)};
  for (std::vector<LedgerEntry>* const entries : {&snapshot.entries, &snapshot.ended})
    (*entries)[0].claims = {{DeviceId("opencl/x/chip.0"), "opencl/x/chip.0", 30, 0, true}};
  snapshot.intents = {{DeviceId("opencl/x/chip.0"), Intent::draining, 1000, {}}};
  inventory::FormerIds ids;
  use_current_ids(snapshot, ids);
  EXPECT_EQ(unallocated_bytes(snapshot, {"gpu-opencl-0", 0, {}, {}}), 0U);
  DeviceInfo info;
  info.id = DeviceId("gpu-opencl-0");
  info.former_id = DeviceId("opencl/x/chip.0");
  ids.add(info);
  use_current_ids(snapshot, ids);
  EXPECT_EQ(unallocated_bytes(snapshot, {"gpu-opencl-0", 0, {}, {}}), 30U);
  EXPECT_TRUE(snapshot.held_exclusively(info.id));
  EXPECT_TRUE(snapshot.ended[0].claim_on(info.id));
  ASSERT_TRUE(snapshot.intent(info.id));
  EXPECT_EQ(snapshot.intent(info.id)->intent, Intent::draining);
}

}  // namespace
}  // namespace berth::ledger
