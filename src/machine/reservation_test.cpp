#include "machine/reservation.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "ledger/test_folder.hpp"
#include "machine/device_request.hpp"
#include "world/test_units.hpp"

namespace berth::machine {
namespace {

using world::gib;

using std::chrono::milliseconds;
using std::chrono::seconds;

const ProcessIdentity holder_process{4711, 12, 3};

ObservedDevice observed_gpu(const std::string& id, std::uint64_t total, std::uint64_t free) {
  ObservedDevice device;
  device.info.id = DeviceId(id);
  device.info.backend = "cuda";
  device.info.memory_bytes_total = total;
  device.telemetry = Telemetry{};
  device.telemetry->load.memory_bytes_free = free;
  return device;
}

void add_process(ObservedDevice& device, const ProcessIdentity& holder, std::uint64_t bytes,
                 std::optional<LeaseReference> lease = {}) {
  if (!device.telemetry->processes) device.telemetry->processes.emplace();
  device.telemetry->processes->push_back({holder.pid, ProcessKind::foreign, {}, bytes});
  ledger::ObservedProcess process;
  process.pid = holder.pid;
  process.memory_bytes = bytes;
  process.trace.lineage = {ProcessIdentity{holder.pid + 1, 0, 3}, holder};
  process.trace.lease = lease;
  device.processes.push_back(process);
}

LedgerEntry taken(std::uint64_t id, const std::string& device, std::uint64_t bytes) {
  LedgerEntry entry;
  entry.reference = {1, id};
  entry.holder = holder_process;
  entry.claims = {{DeviceId(device), device, bytes, 0, false}};
  return entry;
}

TEST(Views, ContainLeasesAndIntentsFromTheLedger) {
  MachineSnapshot observed;
  observed.devices = {observed_gpu("b", 80, 50), observed_gpu("a", 80, 50), observed_gpu("b/part", 80, 50)};
  observed.devices[0].health = Health::quarantined;
  observed.devices[1].telemetry.reset();
  observed.devices[2].info.parent = DeviceId("b");
  LedgerSnapshot snapshot;
  snapshot.entries = {taken(1, "a", 1)};
  snapshot.entries[0].claims[0].exclusive = true;
  snapshot.intents = {{DeviceId("b"), Intent::cordoned, 7, {}}};
  const std::vector<DeviceView> views = views_of(observed, snapshot);
  EXPECT_EQ(views[0].health, Health::quarantined);
  EXPECT_EQ(views[0].intent, Intent::cordoned);
  EXPECT_EQ(views[2].intent, Intent::cordoned) << "a part of a cordoned device";
  EXPECT_EQ(views[1].holders, 1U);
  EXPECT_TRUE(views[1].held_exclusively);
  EXPECT_FALSE(views[1].memory_bytes_free) << "no answer, so unknown";
  EXPECT_EQ(views[1].sample, SampleState::unknown);
}

TEST(Views, ContainOtherProcessesOnADevice) {
  MachineSnapshot observed;
  observed.devices = {observed_gpu("a", 80 * gib, 80 * gib)};
  ObservedDevice& device = observed.devices[0];
  device.telemetry->load.memory_bytes_total = 80 * gib;
  LedgerSnapshot snapshot;
  EXPECT_FALSE(views_of(observed, snapshot)[0].used_by_others);
  device.telemetry->load.utilization = 0.97;
  EXPECT_TRUE(views_of(observed, snapshot)[0].used_by_others);
  device.telemetry->load.utilization = 0;
  add_process(device, ProcessIdentity{4712, 1, 3}, gib / 2);
  device.telemetry->processes->back().graphics = true;
  EXPECT_EQ(views_of(observed, snapshot)[0].other_processes, 0U) << "a display";
  EXPECT_FALSE(views_of(observed, snapshot)[0].used_by_others);
  add_process(device, ProcessIdentity{4713, 1, 3}, gib);
  device.telemetry->processes->back().graphics = true;
  EXPECT_EQ(views_of(observed, snapshot)[0].other_processes, 2U) << "more than a display needs";
  device.processes.clear();
  device.telemetry->processes->clear();
  add_process(device, holder_process, gib);
  EXPECT_TRUE(views_of(observed, snapshot)[0].used_by_others);
  EXPECT_EQ(views_of(observed, snapshot)[0].other_processes, 1U);
  snapshot.entries = {taken(1, "a", gib)};
  EXPECT_FALSE(views_of(observed, snapshot)[0].used_by_others) << "a lease: counted as its holder";
  EXPECT_EQ(views_of(observed, snapshot, LeaseReference{1, 1})[0].other_processes, 0U) << "its own lease";
}

TEST(Views, AmongEqualDevicesInUseTheLessBusyComesFirst) {
  MachineSnapshot observed;
  observed.devices = {observed_gpu("a", 80, 20), observed_gpu("b", 80, 10), observed_gpu("c", 80, 30),
                      observed_gpu("d", 80, 80)};
  for (std::size_t i = 0; i < 3; ++i) {
    observed.devices[i].telemetry->load.memory_bytes_total = 80;
    add_process(observed.devices[i], ProcessIdentity{4711 + static_cast<std::uint32_t>(i), 1, 3}, 50);
    observed.devices[i].telemetry->load.utilization = i == 0 ? 0.99 : 0.4;
  }
  const std::vector<DeviceView> views = views_of(observed, {});
  EXPECT_EQ(views[3].id_order, 0U) << "unused";
  EXPECT_EQ(views[2].id_order, 1U) << "more free memory";
  EXPECT_EQ(views[1].id_order, 2U);
  EXPECT_EQ(views[0].id_order, 3U);
}

TEST(KeepAlive, ADriverThatDoesNotListProcessesKeepsLeasesOfItsDevices) {
  MachineSnapshot observed;
  observed.devices = {observed_gpu("a", 80, 80), observed_gpu("b", 80, 80), observed_gpu("c", 80, 80)};
  observed.devices[0].telemetry.reset();  // no answer
  observed.devices[2].telemetry->processes.emplace();
  LedgerSnapshot snapshot;
  snapshot.ended = {taken(1, "a", 30), taken(2, "b", 30), taken(3, "c", 30)};
  const std::vector<LedgerEntry> over = keep_alive(snapshot, observed, TimePoint(seconds(1)));
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].id(), 3U) << "its driver lists no process";
  EXPECT_EQ(snapshot.entries.size(), 2U);
  EXPECT_EQ(views_of(observed, snapshot)[1].memory_bytes_promised, 30U);
}

class Reserving : public testing::Test {
 protected:
  Reserving() { unsetenv("BERTH_LEASE"); }
  static ReservationRequest wanting(std::uint64_t bytes, std::size_t count = 1) {
    ReservationRequest wanted;
    wanted.requirements.memory_bytes_min = bytes;
    wanted.count = count;
    wanted.policy = find_policy("least_loaded");
    wanted.name = "engine";
    return wanted;
  }
  Result<Reservation> ask(const ReservationRequest& wanted, Deadline deadline = {TimePoint{}}) {
    return reserve(*ledger_, wanted, [this] { return observed_; }, deadline);
  }
  std::size_t entries() { return ledger_->snapshot().value().entries.size(); }

  ledger::TestFolder folder_;
  std::shared_ptr<Ledger> ledger_ = Ledger::open({folder_.path, nullptr}).value();
  MachineSnapshot observed_{{observed_gpu("a", 80, 80), observed_gpu("b", 80, 80)}, {}};
};

TEST_F(Reserving, RequestsThatFitGetALeaseAndOthersAreRefused) {
  const auto first = ask(wanting(50)), second = ask(wanting(50)), third = ask(wanting(50));
  ASSERT_TRUE(first->lease);
  ASSERT_TRUE(second->lease);
  EXPECT_NE(first->winners, second->winners);
  ASSERT_TRUE(third);
  EXPECT_FALSE(third->lease);
  EXPECT_FALSE(third->never) << "it fits when other leases end";
  EXPECT_EQ(third->explanation.cause, Cause::memory_fragmented);
  const auto huge = ask(wanting(81), Deadline::never());
  EXPECT_FALSE(huge->lease);
  EXPECT_TRUE(huge->never) << "refused at once, without waiting";
}

TEST_F(Reserving, WhatCanNeverFitIsNotExplainedByRequestsAhead) {
  const auto held = ask(wanting(50));
  Ledger::Request whole;
  whole.kind = EntryKind::waiting;
  whole.count = 2;
  for (const ObservedDevice& device : observed_.devices) whole.claims.push_back({device.info.id, {}, 80, 0, true});
  const auto waiting = ledger_->lock()->add(whole);
  ASSERT_TRUE(held->lease);
  ASSERT_TRUE(waiting);
  const auto huge = ask(wanting(81));
  EXPECT_TRUE(huge->never);
  EXPECT_EQ(huge->explanation.cause, Cause::memory_too_small) << huge->explanation.reason();
  const auto decided = decide_once(*ledger_, wanting(81), [this] { return observed_; });
  EXPECT_EQ(decided->explanation.reason(), huge->explanation.reason());
}

TEST_F(Reserving, APromiseAndAnAllocationOfTheSameBytesCountOnce) {
  const auto first = ask(wanting(50));
  ASSERT_TRUE(first->lease);
  ObservedDevice& device = observed_.devices[first->winners[0]];
  device.telemetry->load.memory_bytes_free = 35;
  add_process(device, this_process(), 45);
  ReservationRequest wanted = wanting(30);
  wanted.requirements.only = {device.info.id};
  const auto second = ask(wanted), third = ask(wanted);
  EXPECT_TRUE(second->lease) << "35 are free, 5 of them promised";
  EXPECT_FALSE(third->lease);
}

TEST_F(Reserving, ALeaseThatEndedDuringTheSnapshotStillCounts) {
  // A lease allocates 20 more bytes and is released between the snapshot and the lock:
  // it is no longer in the ledger, and the snapshot does not show the bytes.
  const auto held = ask(wanting(30));
  ASSERT_TRUE(held->lease);
  const DeviceId device = observed_.devices[held->winners[0]].info.id;
  ReservationRequest wanted = wanting(60);
  wanted.requirements.only = {device};
  int looks = 0;
  const auto asked = reserve(*ledger_, wanted,
                             [&] {
                               MachineSnapshot observed;
                               observed.devices = {observed_gpu(device.text(), 80, looks == 0 ? 70 : 50)};
                               if (looks++ == 0) {
                                 EXPECT_TRUE(ledger_->lock().value().release(held->lease.reference()));
                               }
                               return observed;
                             },
                             {TimePoint{}});
  EXPECT_GE(looks, 2);
  EXPECT_FALSE(asked->lease) << "50 are free";
}

TEST_F(Reserving, LeasesThatEndContinuallyDoNotDelayARequest) {
  // A lease ends during every snapshot, as with short jobs of another user.
  const auto churn = [&] {
    LedgerLease lease;
    {
      Ledger::Request request;
      request.claims = {{DeviceId("b"), "b", 1, 0, false}};
      lease = std::move(ledger_->lock().value().add(request).value());
    }
    EXPECT_TRUE(ledger_->lock().value().release(lease.reference()));
    return observed_;
  };
  const TimePoint began = real_clock().now();
  EXPECT_TRUE(reserve(*ledger_, wanting(50), churn, {TimePoint{}})->lease);
  EXPECT_FALSE(reserve(*ledger_, wanting(50, 2), churn, {TimePoint{}})->lease);
  EXPECT_LT(real_clock().now() - began, seconds(5));
}

TEST_F(Reserving, DecideOnceTakesNoLease) {
  const auto picked = decide_once(*ledger_, wanting(50, 2), [this] { return observed_; });
  EXPECT_EQ(picked->winners.size(), 2U);
  EXPECT_FALSE(picked->lease);
  EXPECT_EQ(entries(), 0U);
}

TEST_F(Reserving, AWaitingRequestReportsItsPlaceAndIsServedAfterARelease) {
  const auto first = ask(wanting(50, 2));
  ASSERT_TRUE(first->lease);
  std::atomic<bool> was_reported = false;
  std::jthread other([&] {
    while (!was_reported) std::this_thread::yield();
    EXPECT_TRUE(ledger_->lock().value().release(first->lease.reference()));
  });
  const auto second = reserve(
      *ledger_, wanting(50, 2), [this] { return observed_; }, Deadline::after(real_clock(), seconds(60)),
      [&](const Progress& progress) {
        EXPECT_FALSE(progress.reason.empty());
        EXPECT_EQ(progress.place, 1U);
        was_reported = true;
      });
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->lease);
  EXPECT_EQ(entries(), 1U) << "it has left the queue";
}

TEST_F(Reserving, ARequestBehindASmallerOneReportsItsPlace) {
  const auto held = ask(wanting(50, 2));
  ASSERT_TRUE(held->lease);
  Ledger::Request first;
  first.kind = EntryKind::waiting;
  first.claims = {{DeviceId("a"), "a", 40, 0, false}, {DeviceId("b"), "b", 40, 0, false}};
  LedgerLease place = std::move(ledger_->lock().value().add(first).value());
  std::size_t reported_place = 0;
  const auto asked = reserve(
      *ledger_, wanting(50), [this] { return observed_; }, Deadline::after(real_clock(), seconds(2)),
      [&](const Progress& progress) {
        reported_place = progress.place;
        ledger_->heartbeat(place);
      });
  EXPECT_FALSE(asked->lease);
  EXPECT_EQ(reported_place, 2U);
}

TEST_F(Reserving, ARequestLeavesTheQueueAtItsDeadline) {
  const auto held = ask(wanting(50, 2));
  ASSERT_TRUE(held->lease);
  const auto late = ask(wanting(50), Deadline::after(real_clock(), milliseconds(30)));
  ASSERT_TRUE(late);
  EXPECT_FALSE(late->lease);
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Reserving, SmallRequestsAreServedOnDevicesThatAreNotKept) {
  const auto held = ask(wanting(50, 2));
  ASSERT_TRUE(held->lease);
  Ledger::Request first;
  first.kind = EntryKind::waiting;
  first.claims = {{DeviceId("a"), "a", 60, 0, false}};
  const LedgerLease place = std::move(ledger_->lock().value().add(first).value());
  ReservationRequest small = wanting(10);
  small.requirements.only = {DeviceId("a")};
  const auto refused = ask(small);
  EXPECT_FALSE(refused->lease) << "30 are free there, kept for the waiting request";
  small.requirements.only = {DeviceId("b")};
  EXPECT_TRUE(ask(small)->lease);
}

TEST_F(Reserving, ANestedRequestUsesTheEnclosingLease) {
  const auto outer = ask(wanting(50));
  ASSERT_TRUE(outer->lease);
  setenv("BERTH_LEASE", to_string(outer->lease.reference()).c_str(), 1);
  const auto inner = ask(wanting(40)), second = ask(wanting(20)), third = ask(wanting(10));
  EXPECT_TRUE(inner->lease);
  EXPECT_EQ(inner->winners, outer->winners) << "only the device of the lease";
  EXPECT_FALSE(second->lease) << "10 are left in the lease";
  EXPECT_TRUE(third->lease);
  unsetenv("BERTH_LEASE");
  ReservationRequest beside = wanting(30);
  beside.requirements.only = {observed_.devices[outer->winners[0]].info.id};
  EXPECT_TRUE(ask(beside)->lease) << "nested leases count once";
}

// Entries of an earlier version count for a device even if its id has changed.
TEST(Views, ALedgerWithFormerIdsCountsAgainstTheRightDevice) {
  const ledger::TestFolder folder;
  const auto ledger = Ledger::open({folder.path, nullptr}).value();
  const DeviceId former("opencl/x/chip.0");
  Ledger::Request request;
  request.name = "written before";
  request.claims = {{former, former.text(), 30, 0, true}};
  std::optional<LedgerLease> lease;
  {
    Ledger::Lock lock = ledger->lock().value();
    lease = lock.add(request).value();
    ASSERT_TRUE(lock.set_intent(former, Intent::cordoned));
  }
  MachineSnapshot observed;
  observed.devices = {observed_gpu("gpu-opencl-0", 80, 80), observed_gpu("gpu-opencl-1", 80, 80)};
  observed.devices[0].info.former_id = former;
  observed.devices[1].info.former_id = DeviceId("opencl/x/chip.1");
  for (ObservedDevice& device : observed.devices) device.info.backend = "opencl";
  LedgerSnapshot snapshot = ledger->snapshot().value();
  keep_alive(snapshot, observed, ledger->clock().now());
  const std::vector<DeviceView> views = views_of(observed, snapshot);
  EXPECT_EQ(views[0].holders, 1U);
  EXPECT_TRUE(views[0].held_exclusively);
  EXPECT_EQ(views[0].memory_bytes_promised, 30U);
  EXPECT_EQ(views[0].intent, Intent::cordoned);
  EXPECT_EQ(views[1].holders, 0U);
  EXPECT_EQ(views[1].memory_bytes_promised, 0U);
  EXPECT_EQ(views[1].intent, Intent::in_service);

  ReservationRequest wanted;
  wanted.policy = policy_named("spread").value();
  wanted.requirements.memory_bytes_min = 60;
  const Result<Reservation> decided = decide_once(*ledger, wanted, [&] { return observed; });
  ASSERT_TRUE(decided);
  ASSERT_EQ(decided->winners.size(), 1U);
  EXPECT_EQ(decided->observed.devices[decided->winners[0]].info.id, DeviceId("gpu-opencl-1"));
}

TEST(DeviceNames, AFormerIdNamesItsDevice) {
  std::vector<ObservedDevice> devices = {observed_gpu("gpu-opencl-0", 80, 80), observed_gpu("gpu-opencl-1", 80, 80)};
  devices[1].info.former_id = DeviceId("opencl/x/chip.0");
  EXPECT_EQ(find_device(devices, "opencl/x/chip.0").value(), DeviceId("gpu-opencl-1"));
  EXPECT_EQ(find_device(devices, "gpu-opencl-1").value(), DeviceId("gpu-opencl-1"));
  EXPECT_FALSE(find_device(devices, "opencl/x/chip"));
}

}  // namespace
}  // namespace berth::machine
