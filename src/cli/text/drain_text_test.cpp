#include "cli/text/drain_text.hpp"
#include "world/test_units.hpp"

#include <gtest/gtest.h>

namespace berth::cli {

using namespace inventory;
using namespace world;
namespace {

using world::gib;

const std::string name = "cuda:6 GPU-00000006";

DeviceRow gpu() {
  DeviceRow row;
  row.info.id = DeviceId("GPU-00000006-1111-2222-3333-444455556666");
  row.info.memory_domain = row.info.id.text();
  row.seen.emplace();
  row.seen->processes.emplace();
  return row;
}

DeviceProcess process(std::uint32_t pid, std::optional<std::string> called = {}) {
  DeviceProcess out;
  out.pid = pid;
  out.name = std::move(called);
  out.memory_bytes = 30 * gib;
  return out;
}

DeviceLease lease(std::uint32_t pid, std::vector<std::uint32_t> processes) {
  return {7, "alice", "train.sh", pid, {}, false, gib, std::move(processes)};
}

TEST(Drain, ForeignProcessesCount) {
  DeviceRow row = gpu();
  EXPECT_TRUE(occupation_of(row, {}).empty());
  row.seen->processes = {process(4712)};
  const Occupation occupation = occupation_of(row, {});
  EXPECT_FALSE(occupation.empty());
  ASSERT_EQ(occupation.others.size(), 1u);
  EXPECT_EQ(occupation.others[0].pid, 4712u);
}

TEST(Drain, ProcessesOfALeaseAreNotForeign) {
  DeviceRow row = gpu();
  row.held_by = {lease(100, {101})};
  row.seen->processes = {process(100), process(101)};
  const Occupation occupation = occupation_of(row, {});
  EXPECT_EQ(occupation.leases.size(), 1u);
  EXPECT_TRUE(occupation.others.empty());
}

TEST(Drain, ProcessesOfALeaseOnAnotherPartAreNotCounted) {
  DeviceRow part = gpu(), sibling = gpu();
  part.seen->processes = {process(100)};
  sibling.held_by = {lease(100, {100})};
  const std::vector<DeviceRow> all{part, sibling};
  EXPECT_TRUE(occupation_of(part, all).empty());
}

TEST(Drain, ADeviceWithMemoryOfHiddenProcessesIsNotEmpty) {
  DeviceRow row = gpu();
  row.seen->memory_use.unattributed = gib / 2;
  EXPECT_TRUE(occupation_of(row, {}).empty()) << "the driver's own memory";
  row.seen->memory_use.unattributed = 12 * gib;
  const Occupation occupation = occupation_of(row, {});
  EXPECT_FALSE(occupation.empty());
  EXPECT_NE(draining_text(name, false, occupation, "", {}).find("12.0 GiB of its memory"), std::string::npos);
  EXPECT_EQ(still_there(name, occupation, {}).status, does_not_fit);
}

// As for whole devices, see use_by_others.
TEST(Drain, ADesktopDoesNotCountAndIsNamed) {
  DeviceRow row = gpu();
  row.seen->processes = {process(4712), process(4713)};
  for (DeviceProcess& drawn : *row.seen->processes) {
    drawn.graphics = true;
    drawn.memory_bytes = gib / 2 - 1;
  }
  EXPECT_TRUE(occupation_of(row, {}).empty());
  EXPECT_EQ(draining_text(name, false, occupation_of(row, {}), "TABLE\n", {200, false, false}),
            name +
                " is draining: only a desktop runs on it (graphics processes with less than 1.0 GiB in total), "
                "which does not count\n");
  row.seen->processes->push_back(process(4714));
  EXPECT_EQ(still_there(name, occupation_of(row, {}), {}).error.message,
            "1 foreign process is still on cuda:6 GPU-00000006: 4714");
  row.seen->processes->front().memory_bytes = gib;
  EXPECT_EQ(occupation_of(row, {}).others.size(), 3u) << "more than a desktop needs";
}

TEST(Drain, OnlyAnEmptyDeviceIsCalledEmpty) {
  DeviceRow row = gpu();
  EXPECT_EQ(draining_text(name, false, occupation_of(row, {}), "", {}), name + " is draining: nothing runs on it\n");
  row.seen->processes.reset();
  EXPECT_EQ(draining_text(name, true, occupation_of(row, {}), "", {120, false, false}),
            name + " would be draining: no lease holds it, and its driver does not list other processes\n");
  row.seen.reset();
  EXPECT_EQ(draining_text(name, false, occupation_of(row, {}), "", {}),
            name + " is draining: no lease holds it, and its driver does not list other processes\n");
  row = gpu();
  row.seen->processes = {process(4712)};
  EXPECT_EQ(draining_text(name, false, occupation_of(row, {}), "TABLE\n", {}),
            name + " is draining: no new work; running work is not interrupted\nTABLE\n");
}

TEST(Drain, AWaitThatTimesOutNamesTheProcesses) {
  DeviceRow row = gpu();
  row.seen->processes = {process(4712, "python\033")};
  StillThere outcome = still_there(name, occupation_of(row, {}), {{4712, "bob"}});
  EXPECT_EQ(outcome.error.message, "1 foreign process is still on cuda:6 GPU-00000006: 4712 (python\\x1b of bob)");
  EXPECT_EQ(outcome.status, does_not_fit);
  row.held_by = {lease(100, {})};
  row.seen->processes->push_back(process(4713));
  outcome = still_there(name, occupation_of(row, {}), {});
  EXPECT_EQ(outcome.error.message, "2 foreign processes are still on cuda:6 GPU-00000006: 4712 (python\\x1b), 4713");
  EXPECT_EQ(outcome.status, does_not_fit);
  row.seen->processes->clear();
  outcome = still_there(name, occupation_of(row, {}), {});
  EXPECT_EQ(outcome.error.message, "1 lease still holds cuda:6 GPU-00000006");
  EXPECT_EQ(outcome.status, environment_error);
  row.held_by.push_back(lease(101, {}));
  EXPECT_EQ(still_there(name, occupation_of(row, {}), {}).error.message, "2 leases still hold cuda:6 GPU-00000006");
}

}  // namespace
}  // namespace berth::cli
