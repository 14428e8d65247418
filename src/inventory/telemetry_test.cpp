#include "berth/telemetry.hpp"

#include <gtest/gtest.h>
#ifdef BERTH_HAS_RAPIDCHECK
#include <rapidcheck.h>
#endif

#include <algorithm>
#include <set>

namespace berth {
namespace {

DeviceProcess process(ProcessKind kind, std::optional<std::uint64_t> bytes) { return {1, kind, {}, bytes}; }

TEST(Telemetry, BytesInUseAreAttributedToProcesses) {
  const std::vector<DeviceProcess> processes{process(ProcessKind::foreign, 30), process(ProcessKind::own, 5),
                                             process(ProcessKind::berth, 7), process(ProcessKind::foreign, 10),
                                             process(ProcessKind::foreign, std::nullopt)};
  EXPECT_EQ(attribute_memory(60, processes), (MemoryUse{5, 7, 40, 8}));
}

TEST(Telemetry, WithoutATotalNothingIsAttributed) {
  const std::vector<DeviceProcess> processes{process(ProcessKind::own, 5)};
  EXPECT_EQ(attribute_memory(std::nullopt, processes), MemoryUse{});
}

TEST(Telemetry, AnExcessIsSubtractedFromOtherProcessesFirst) {
  const std::vector<DeviceProcess> processes{process(ProcessKind::foreign, 30), process(ProcessKind::berth, 20),
                                             process(ProcessKind::own, 10)};
  EXPECT_EQ(attribute_memory(45, processes), (MemoryUse{10, 20, 15, 0}));
  EXPECT_EQ(attribute_memory(15, processes), (MemoryUse{10, 5, 0, 0}));
  EXPECT_EQ(attribute_memory(4, processes), (MemoryUse{4, 0, 0, 0}));
}

TEST(Telemetry, EveryKindAndActionHasADistinctName) {
  std::set<std::string_view> words;
  for (int i = 0; i < 5; ++i) words.insert(to_string(static_cast<RecoveryAction>(i)));
  for (int i = 0; i < 3; ++i) words.insert(to_string(static_cast<ProcessKind>(i)));
  EXPECT_EQ(words.size(), 8U);
}

#ifdef BERTH_HAS_RAPIDCHECK

// From a few bytes to the maximum, so that some sums overflow.
rc::Gen<std::uint64_t> some_bytes() {
  return rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(0, 100), rc::gen::arbitrary<std::uint64_t>());
}

std::vector<DeviceProcess> some_processes(const rc::Gen<std::uint64_t>& bytes = some_bytes()) {
  std::vector<DeviceProcess> processes;
  for (int i = *rc::gen::inRange(0, 8); i > 0; --i) {
    const auto kind = static_cast<ProcessKind>(*rc::gen::inRange(0, 3));
    processes.push_back(process(kind, *rc::gen::arbitrary<bool>() ? std::optional(*bytes) : std::nullopt));
  }
  return processes;
}

TEST(TelemetryLaws, TheSharesAddUpToTheBytesInUse) {
  EXPECT_TRUE(rc::check([] {
    const std::uint64_t used = *some_bytes();
    const std::vector<DeviceProcess> processes = some_processes();
    const MemoryUse use = attribute_memory(used, processes);
    std::uint64_t left = used;
    for (const auto& share : {use.own, use.berth, use.foreign, use.unattributed}) {
      RC_ASSERT(share.has_value());
      RC_ASSERT(*share <= left);  // none is negative, and no sum wraps around
      left -= *share;
    }
    RC_ASSERT(left == 0U);
  }));
}

TEST(TelemetryLaws, NoKindGetsMoreThanItsProcessesReport) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<DeviceProcess> processes = some_processes(rc::gen::inRange<std::uint64_t>(0, 100));
    const MemoryUse use = attribute_memory(*some_bytes(), processes);
    const auto reported = [&](ProcessKind kind) {
      std::uint64_t sum = 0;
      for (const DeviceProcess& p : processes) sum += p.kind == kind ? p.memory_bytes.value_or(0) : 0;
      return sum;
    };
    RC_ASSERT(*use.own <= reported(ProcessKind::own));
    RC_ASSERT(*use.berth <= reported(ProcessKind::berth));
    RC_ASSERT(*use.foreign <= reported(ProcessKind::foreign));
  }));
}

TEST(TelemetryLaws, TheOrderOfProcessesDoesNotMatter) {
  EXPECT_TRUE(rc::check([] {
    const std::uint64_t used = *some_bytes();
    std::vector<DeviceProcess> processes = some_processes();
    const MemoryUse before = attribute_memory(used, processes);
    std::reverse(processes.begin(), processes.end());
    RC_ASSERT(attribute_memory(used, processes) == before);
    if (!processes.empty()) {
      const auto turn = *rc::gen::inRange<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(processes.size()));
      std::rotate(processes.begin(), processes.begin() + turn, processes.end());
    }
    RC_ASSERT(attribute_memory(used, processes) == before);
  }));
}

#else
TEST(TelemetryLaws, NeedRapidcheck) { GTEST_SKIP() << "rapidcheck is not installed"; }
#endif

}  // namespace
}  // namespace berth
