#include "machine/this_node.hpp"
#include "world/test_units.hpp"

#include <gtest/gtest.h>

namespace berth::machine {
namespace {

using world::gib;

inventory::LeaseKey ann(std::uint64_t number) { return {1000, number}; }
inventory::LeaseKey bob(std::uint64_t number) { return {1001, number}; }

// 80 GiB: 10 used by lease 1's process, 5 by a pool nested in it (lease 2), 20 by lease 3.
inventory::DeviceRow shared_device() {
  inventory::DeviceRow row;
  row.info.id = DeviceId("GPU-a");
  row.info.backend = "cuda";
  row.info.memory_bytes_total = 80 * gib;
  row.seen.emplace();
  row.seen->load.memory_bytes_total = 80 * gib;
  row.seen->load.memory_bytes_free = 45 * gib;
  row.seen->processes.emplace();
  for (const auto& [pid, bytes] : {std::pair{11u, 10 * gib}, {12u, 5 * gib}, {13u, 20 * gib}}) {
    DeviceProcess process;
    process.pid = pid;
    process.memory_bytes = bytes;
    process.kind = ProcessKind::berth;
    row.seen->processes->push_back(process);
  }
  row.held_by = {{1, "ann", "serve", 11, {}, false, 30 * gib, {11}, std::nullopt},
                 {2, "ann", "serve", 12, {}, false, 8 * gib, {12}, ann(1)},
                 {3, "bob", "train", 13, {}, true, 25 * gib, {13}, std::nullopt}};
  for (inventory::DeviceLease& lease : row.held_by) lease.user_id = lease.user == "ann" ? 1000 : 1001;
  row.holders = 3;
  row.held_exclusively = true;
  row.memory_bytes_promised = 15 * gib + 5 * gib;  // not yet allocated, of leases 1 and 3
  return row;
}

TEST(ThisNode, CountsAllThatIsHeld) {
  const NodeDevice device = node_device(shared_device());
  EXPECT_EQ(device.memory_bytes_promised, 20 * gib);
  EXPECT_EQ(device.memory_bytes_used, 35 * gib);
  EXPECT_EQ(device.holders, 3u);
  EXPECT_TRUE(device.held_exclusively);
}

TEST(ThisNode, LeavesOutALeaseWithThoseNestedInIt) {
  const NodeDevice device = node_device_without(shared_device(), {ann(1)});
  EXPECT_EQ(device.memory_bytes_promised, 5 * gib);
  EXPECT_EQ(device.memory_bytes_used, 20 * gib);
  EXPECT_EQ(device.holders, 1u);
  EXPECT_TRUE(device.held_exclusively);
}

TEST(ThisNode, TheNumberOfALeaseIsThatOfItsUser) {
  inventory::DeviceRow row = shared_device();
  row.held_by[2].lease = 1;
  const NodeDevice device = node_device_without(row, {ann(1)});
  EXPECT_EQ(device.holders, 1u);
  EXPECT_TRUE(device.held_exclusively) << "by bob, who has a lease of the same number";
  EXPECT_EQ(node_device_without(row, {bob(2)}).holders, 3u);
}

TEST(ThisNode, WithoutAllLeasesTheDeviceIsFree) {
  const NodeDevice device = node_device_without(shared_device(), {ann(1), bob(3)});
  EXPECT_EQ(device.memory_bytes_promised, 0u);
  EXPECT_EQ(device.memory_bytes_used, 0u);
  EXPECT_EQ(device.holders, 0u);
  EXPECT_FALSE(device.held_exclusively);
}

TEST(ThisNode, ADrainByAStrangerIsACordonForTheFleet) {
  constexpr std::uint32_t agent = 990, stranger = 1001;
  DeviceInfo device, part;
  device.id = DeviceId("GPU-a");
  part.id = DeviceId("GPU-a/sm64.0");
  part.parent = device.id;
  const auto intent = [&](std::vector<DeviceIntent> all) {
    LedgerSnapshot snapshot;
    snapshot.intents = std::move(all);
    EXPECT_EQ(fleet_intent(snapshot, part, agent), fleet_intent(snapshot, device, agent));
    return fleet_intent(snapshot, device, agent);
  };
  const auto set = [&](Intent what, std::uint32_t user) { return DeviceIntent{device.id, what, user, {}}; };
  EXPECT_EQ(intent({}), Intent::in_service);
  EXPECT_EQ(intent({set(Intent::draining, stranger)}), Intent::cordoned);
  EXPECT_EQ(intent({set(Intent::cordoned, stranger)}), Intent::cordoned);
  EXPECT_EQ(intent({set(Intent::draining, agent)}), Intent::draining);
  EXPECT_EQ(intent({set(Intent::draining, 0)}), Intent::draining);
  EXPECT_EQ(intent({set(Intent::draining, stranger), set(Intent::draining, 0)}), Intent::draining);
  EXPECT_EQ(intent({set(Intent::draining, stranger), set(Intent::cordoned, agent)}), Intent::cordoned);
  EXPECT_EQ(intent({{DeviceId("GPU-b"), Intent::draining, 0, {}}}), Intent::in_service);
}

}  // namespace
}  // namespace berth::machine
