#include "machine/start_estimate.hpp"

#include <gtest/gtest.h>

#include "machine/decision.hpp"
#include "world/test_units.hpp"

namespace berth::machine {
namespace {

using world::gib;

// Two GPUs of 80 GiB: a lease of 60 GiB on each, and their processes use 50.
struct Busy {
  MachineSnapshot observed;
  LedgerSnapshot snapshot;
  ReservationRequest request;
  Busy() {
    for (std::uint64_t id = 1; id <= 2; ++id) {
      ObservedDevice& device = observed.devices.emplace_back();
      device.info.id = DeviceId("gpu" + std::to_string(id));
      device.info.backend = "cuda";
      device.info.memory_bytes_total = 80 * gib;
      device.telemetry = Telemetry{};
      device.telemetry->load.memory_bytes_total = 80 * gib;
      device.telemetry->load.memory_bytes_free = 30 * gib;
      const auto pid = static_cast<std::uint32_t>(100 + id);
      device.telemetry->processes.emplace().push_back({pid, ProcessKind::foreign, {}, 50 * gib});
      ledger::ObservedProcess process{pid, 50 * gib, {}};
      process.trace.lineage = {ProcessIdentity{pid, 1, 3}};
      process.trace.user = 1000;
      device.processes = {process};
      LedgerEntry entry;
      entry.reference = {1, id, 1000};
      entry.user = 1000;
      entry.holder = {pid, 1, 3};
      entry.claims = {{device.info.id, device.info.id.text(), 60 * gib, 0, false}};
      snapshot.entries.push_back(entry);
    }
    request.policy = find_policy("least_loaded");
    request.requirements.memory_bytes_min = 70 * gib;
  }
  std::optional<std::uint64_t> start(std::vector<LeaseEnd> ends, std::vector<WaitingRequest> ahead = {}) const {
    const auto end = estimate_start(request, observed, snapshot, ahead, {}, std::move(ends));
    return end ? std::optional(end->at_us) : std::nullopt;
  }
};

const LeaseEnd first_end{{1, 1, 1000}, 500}, second_end{{1, 2, 1000}, 400};

TEST(StartEstimate, IsTheFirstEndAfterWhichTheRequestFits) {
  Busy busy;
  EXPECT_EQ(busy.start({first_end, second_end}), 400U);
  EXPECT_EQ(busy.start({first_end}), 500U);
  EXPECT_EQ(busy.start({}), std::nullopt);
  busy.request.count = 2;
  EXPECT_EQ(busy.start({first_end, second_end}), 500U) << "it needs both";
  EXPECT_EQ(busy.start({second_end}), std::nullopt) << "the other lease has no time limit";
}

TEST(StartEstimate, CountsRequestsAhead) {
  const Busy busy;
  WaitingRequest ahead;
  ahead.reference = {1, 9, 1000};
  ahead.claims = {{DeviceId("gpu2"), "gpu2", 60 * gib, 0, false}};
  EXPECT_EQ(busy.start({first_end, second_end}, {ahead}), 500U) << "the request ahead gets what is free at 400";
}

TEST(ObstacleAhead, IsTheRequestWithWhichThisOneNoLongerFits) {
  Busy busy;
  std::vector<WaitingRequest> ahead(3);
  for (std::size_t i = 0; i < ahead.size(); ++i) ahead[i].reference = {1, 9 + i, 1000};
  ahead[0].claims = {{DeviceId("gpu2"), "gpu2", 5 * gib, 0, false}};
  for (const std::size_t i : {1U, 2U}) ahead[i].claims = {{DeviceId("gpu2"), "gpu2", 30 * gib, 0, false}};
  const auto obstacle = [&] { return obstacle_ahead(busy.request, busy.observed, busy.snapshot, ahead, {}); };
  EXPECT_EQ(obstacle(), nullptr) << "leases also block it";
  busy.snapshot.entries.pop_back();
  busy.observed.devices[1].processes.clear();
  busy.observed.devices[1].telemetry->processes->clear();
  busy.observed.devices[1].telemetry->load.memory_bytes_free = 80 * gib;
  ASSERT_NE(obstacle(), nullptr);
  EXPECT_EQ(obstacle()->reference.id, 10U);
  ahead.resize(1);
  EXPECT_EQ(obstacle(), nullptr) << "it fits beside the first one";
}

TEST(CommonCause, IsWhatMostSuitableDevicesFailOn) {
  Busy busy;
  busy.snapshot.entries[1].claims.clear();  // a process without a lease
  busy.snapshot.entries[0].claims[0].exclusive = true;
  ObservedDevice third = busy.observed.devices[0];
  third.info.id = DeviceId("gpu3");
  third.processes.clear();
  third.telemetry->processes->clear();
  third.telemetry->load.memory_bytes_free = 80 * gib;
  busy.snapshot.entries[0].claims.push_back({third.info.id, "gpu3", 80 * gib, 0, true});
  busy.observed.devices.push_back(third);
  Reservation out;
  out.observed = busy.observed;
  decide(busy.request, busy.snapshot, std::nullopt, {}, {}, out);
  ASSERT_EQ(out.explanation.cause, Cause::memory_in_use) << "that process alone would have to end";
  name_common_cause(busy.request.requirements, out);
  EXPECT_EQ(out.explanation.cause, Cause::held_exclusively);
  EXPECT_TRUE(out.explanation.reason().starts_with("every suitable device is held exclusively"));
}

}  // namespace
}  // namespace berth::machine
