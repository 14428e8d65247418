#include "ledger/lines.hpp"

#include <gtest/gtest.h>

#include "berth/random.hpp"

namespace berth::ledger {
namespace {

EntryLine random_line(SeededRandom& random) {
  const auto text = [&] {
    std::string made;
    for (std::uint64_t i = 1 + random.below(20); i > 0; --i) made += static_cast<char>(random.next());
    return made;
  };
  EntryLine line;
  LedgerEntry& entry = line.entry;
  entry.reference.id = 1 + random.below(id_max);
  entry.kind = static_cast<EntryKind>(random.below(3));
  entry.holder = {static_cast<std::uint32_t>(random.next()), random.next() >> 1, random.next() >> 1};
  entry.name = text();
  entry.priority = static_cast<Priority>(random.below(3));
  entry.since = TimePoint(Duration(static_cast<std::int64_t>(random.next() >> 1)));
  if (random.below(2)) entry.loads_until = entry.since;
  if (random.below(2)) entry.within = LeaseReference{random.next(), 1 + random.below(100)};
  if (random.below(2)) entry.cgroup = "/" + text();
  for (std::uint64_t i = random.below(5); i > 0; --i)
    entry.claims.push_back({DeviceId(text()), text(), random.next(), random.next(), random.below(2) == 0});
  if (entry.kind == EntryKind::waiting) {
    entry.count = 1 + random.below(64);
    line.heartbeat_slot = random.below(1024);
  }
  return line;
}

TEST(Lines, ReadBackAsTheyWereWritten) {
  SeededRandom random(1);
  for (int i = 0; i < 2000; ++i) {
    const EntryLine line = random_line(random);
    const std::string text = line_of(line);
    EXPECT_EQ(text.find('\n'), text.size() - 1);
    const auto read = parse_line(text);
    ASSERT_TRUE(read) << text;
    const EntryLine& back = std::get<EntryLine>(*read);
    EXPECT_EQ(line_of(back), text);
    EXPECT_EQ(back.entry.claims, line.entry.claims);
    EXPECT_EQ(back.entry.holder, line.entry.holder);
    EXPECT_EQ(back.entry.name, line.entry.name);
  }
  const DeviceIntent intent{DeviceId("GPU a"), Intent::draining, 0, TimePoint(Duration(7))};
  EXPECT_EQ(line_of(std::get<DeviceIntent>(*parse_line(line_of(intent)))), line_of(intent));
}

TEST(Lines, LinesOfTheFirstVersionAreRead) {
  // Written by the first version; every version must read it the same way.
  const auto read = parse_line(
      "lease 17 running pid=4711 start=99 pidns=4026531836 since=5 priority=1 name=python3 "
      "claim=GPU-a,GPU-a,42949672960,0,1 claim=GPU-b/sm64.0,GPU-b,7,3,0\n");
  ASSERT_TRUE(read);
  const LedgerEntry& entry = std::get<EntryLine>(*read).entry;
  EXPECT_EQ(entry.id(), 17U);
  EXPECT_EQ(entry.kind, EntryKind::command);
  EXPECT_EQ(entry.holder, (ProcessIdentity{4711, 99, 4026531836}));
  ASSERT_EQ(entry.claims.size(), 2U);
  EXPECT_EQ(entry.claims[0], (Claim{DeviceId("GPU-a"), "GPU-a", std::uint64_t{40} << 30, 0, true}));
  EXPECT_EQ(entry.claims[1], (Claim{DeviceId("GPU-b/sm64.0"), "GPU-b", 7, 3, false}));
  // Only device, domain and bytes are required.
  EXPECT_TRUE(parse_line("lease 1 running claim=a,a,5"));
}

TEST(Lines, DamagedLinesAreNotParsed) {
  for (const char* const text :
       {"", " ", "lease", "lease 1", "lease 0 running", "lease x running", "lease 99999999999999999999 running",
        "lease 1 running claim=a", "lease 1 running claim=a,b", "lease 1 running claim=a,b,x",
        "lease 1 running claim=,b,1", "lease 1 running claim=a%,b,1", "lease 1 running claim=a%2,b,1",
        "lease 1 running claim=a,b,-1", "intent", "intent GPU-a", "other line"})
    EXPECT_FALSE(parse_line(text)) << text;
  SeededRandom random(2);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = line_of(random_line(random));
    for (std::uint64_t n = 1 + random.below(4); n > 0; --n)
      text[random.below(text.size())] = static_cast<char>(random.next());
    static_cast<void>(parse_line(text));
  }
}

}  // namespace
}  // namespace berth::ledger
