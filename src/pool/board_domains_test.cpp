// Parts of one device, which share its memory and its faults.
#include <gtest/gtest.h>

#include <thread>

#include "berth/fake_clock.hpp"
#include "pool/board.hpp"
#include "pool/test_board.hpp"
#include "pool/test_device.hpp"

namespace berth::pool {
namespace {

using test::bytes;
using test::make_device;
using test::on;
using test::policy;

// Two halves of the GPU "g" and one separate device, all with 1000 bytes free.
struct Halves {
  Halves() {
    for (const char* id : {"g/0", "g/1", "solo"}) {
      auto device = make_device(id);
      if (id[0] == 'g') device->describe().memory_domain = device->describe().fault_domain = "g";
      const Result<std::size_t> slot = board.join(device);
      EXPECT_TRUE(slot);
      LoadSample sample;
      sample.memory_bytes_free = 1000;
      EXPECT_TRUE(board.apply_sample(*slot, 1, sample, clock.now()));
    }
  }
  Result<Lease> take(std::uint64_t count, const char* id) {
    Requirements requirements = on(id);
    requirements.memory_bytes_min = count;
    return board.acquire(policy("least_loaded"), requirements);
  }
  const Board::Entry& entry(std::size_t slot) { return entries = board.entries(), entries[slot]; }

  FakeClock clock;
  Board board{[&] {
    PoolOptions options;
    options.clock = &clock;
    return options;
  }()};
  std::vector<Board::Entry> entries;
};

TEST(BoardDomains, PartsOfOneDeviceDrawOnOneMemory) {
  Halves f;
  const Result<Lease> first = f.take(600, "g/1");
  ASSERT_TRUE(first);
  EXPECT_EQ(f.entry(0).view.memory_bytes_promised, 600U) << "the sibling sees the promise";
  EXPECT_EQ(f.entry(2).view.memory_bytes_promised, 0U);
  EXPECT_EQ(f.take(500, "g/0").error().code, ErrorCode::no_eligible_device);
  EXPECT_TRUE(f.take(400, "g/0"));
  EXPECT_TRUE(f.take(1000, "solo"));
}

TEST(BoardDomains, WhatAPartWasPromisedComesBackToAll) {
  Halves f;
  {
    const Result<Lease> a = f.take(600, "g/1");
    const Result<Lease> b = f.take(400, "g/0");
    ASSERT_TRUE(a && b);
    ASSERT_TRUE(f.board.leave(DeviceId("g/0")));
    EXPECT_EQ(f.entry(0).view.memory_bytes_promised, 1000U) << "leases of the device that left still count";
  }
  EXPECT_EQ(f.entry(0).view.memory_bytes_promised, 0U);
  EXPECT_TRUE(f.take(1000, "g/1"));
}

TEST(BoardDomains, AGroupCountsWhatItsOwnMembersTake) {
  Halves f;
  const Result<std::vector<Lease>> all = f.board.acquire_group(policy("least_loaded"), bytes(600), 3);
  ASSERT_FALSE(all) << "the halves together would need 1200 of 1000 bytes";
  EXPECT_EQ(all.error().code, ErrorCode::no_eligible_device);
  for (std::size_t slot = 0; slot < 3; ++slot) EXPECT_EQ(f.entry(slot).view.memory_bytes_promised, 0U);
  EXPECT_TRUE(f.board.acquire_group(policy("least_loaded"), bytes(500), 3));
}

TEST(BoardDomains, WhatLosesOnePartLosesItsSiblings) {
  Halves f;
  Result<Lease> lease = f.take(0, "g/1");
  ASSERT_TRUE(lease);
  lease->settle({ErrorCode::device_lost, {}});
  for (std::size_t slot : {0U, 1U}) {
    EXPECT_EQ(f.entry(slot).view.health, Health::lost);
    ASSERT_TRUE(f.entry(slot).error);
    EXPECT_EQ(f.entry(slot).error->code, ErrorCode::device_lost);
  }
  EXPECT_NE(f.entry(0).error->message.find("g/1"), std::string::npos) << f.entry(0).error->message;
  EXPECT_EQ(f.entry(2).view.health, Health::healthy);
}

TEST(BoardDomains, WhatTheDriverReportsOfOnePartCountsForItsSiblings) {
  Halves f;
  report(f.board, 1, {DeviceEvent::Kind::xid, 95, {}});
  EXPECT_EQ(f.entry(0).view.health, Health::quarantined);
  EXPECT_EQ(f.entry(1).view.health, Health::quarantined);
  EXPECT_EQ(f.entry(2).view.health, Health::healthy);
  EXPECT_EQ(f.entry(0).error->where, "g/0");
  report(f.board, 0, {DeviceEvent::Kind::xid, 79, {}});
  EXPECT_EQ(f.entry(1).view.health, Health::lost);
}

TEST(BoardDomains, PartsThatFailTogetherCountOnceAgainstTheCap) {
  Halves f;
  // Five failures in a row take a device out: both halves may go, since they
  // are one of two fault domains.
  for (std::size_t slot : {0U, 1U, 2U}) {
    for (int i = 0; i < 5; ++i) f.board.apply_failure(slot, {ErrorCode::work_failed, "broken"});
  }
  EXPECT_EQ(f.entry(0).view.health, Health::quarantined);
  EXPECT_EQ(f.entry(1).view.health, Health::quarantined);
  EXPECT_EQ(f.entry(2).view.health, Health::suspect) << "the last domain stays in service";
}

TEST(BoardDomains, PromisesOfSiblingsNeverExceedTheirMemory) {
  Halves f;
  std::atomic<std::uint64_t> held{0};
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const std::uint64_t want = 100 + (i * 7 + t * 13) % 500;
        if (Result<Lease> lease = f.take(want, t % 2 ? "g/1" : "g/0")) {
          if (held.fetch_add(want) + want > 1000) exceeded = true;
          held.fetch_sub(want);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(f.entry(0).view.memory_bytes_promised, 0U);
}

}  // namespace
}  // namespace berth::pool
