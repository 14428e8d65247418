#include "inventory/device_row.hpp"
#include "world/test_units.hpp"

#include <gtest/gtest.h>

namespace berth::inventory {
namespace {

using world::gib;

DeviceProcess process(ProcessKind kind, std::uint64_t bytes, bool graphics = false) {
  DeviceProcess out;
  out.kind = kind;
  out.memory_bytes = bytes;
  out.graphics = graphics;
  return out;
}

TEST(OtherUse, OnlyForeignProcessesAreCounted) {
  Telemetry seen;
  EXPECT_EQ(use_by_others(seen), (OtherUse{0, false})) << "nothing is known";
  seen.processes = {process(ProcessKind::own, gib), process(ProcessKind::berth, gib)};
  seen.load.utilization = 0.9;
  EXPECT_EQ(use_by_others(seen), (OtherUse{0, false})) << "the load is this process's own";
  seen.processes->push_back(process(ProcessKind::foreign, gib));
  EXPECT_EQ(use_by_others(seen), (OtherUse{1, true}));
}

TEST(OtherUse, ADesktopOfLessThanOneGibibyteIsNotCounted) {
  Telemetry seen;
  seen.processes = {process(ProcessKind::foreign, gib / 2, true), process(ProcessKind::foreign, gib / 2 - 1, true)};
  seen.memory_use.foreign = gib - 1;
  EXPECT_EQ(use_by_others(seen), (OtherUse{0, false}));
  seen.processes->push_back(process(ProcessKind::foreign, 1, true));
  EXPECT_EQ(use_by_others(seen), (OtherUse{3, true}));
}

TEST(OtherUse, LoadAndMemoryWithoutAProcessListCount) {
  Telemetry seen;
  seen.load.memory_bytes_total = 80 * gib;
  seen.memory_use.unattributed = 2 * gib;
  EXPECT_FALSE(use_by_others(seen).used) << "what a driver keeps for itself";
  seen.memory_use.unattributed = 30 * gib;
  EXPECT_TRUE(use_by_others(seen).used) << "processes that another namespace hides";
  seen.memory_use = {};
  seen.load.utilization = 0.04;
  EXPECT_FALSE(use_by_others(seen).used);
  seen.load.utilization = 0.97;
  EXPECT_TRUE(use_by_others(seen).used);
}

}  // namespace
}  // namespace berth::inventory
