// A board with devices that have reported, on virtual time.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "berth/fake_clock.hpp"
#include "pool/board.hpp"
#include "pool/test_device.hpp"

namespace berth::pool {

inline const Outcome success{};
inline Outcome failure(ErrorCode code) { return {code, {}}; }

// The driver reports an event, in an answer whose load is too old to count.
inline void report(Board& board, std::size_t slot, const DeviceEvent& event) {
  LoadSample sample;
  sample.events = {event};
  EXPECT_FALSE(board.apply_sample(slot, 0, sample, {}));
}

// A board on virtual time with devices d0, d1 ... that have reported `free` bytes.
struct BoardFixture {
  explicit BoardFixture(std::size_t devices, std::uint64_t free = 1000, HealthRules health = {})
      : board(options(health)) {
    for (std::size_t i = 0; i < devices; ++i) {
      EXPECT_TRUE(board.join(test::make_device("d" + std::to_string(i))));
      sample(i, free);
    }
  }
  PoolOptions options(HealthRules health) {
    PoolOptions options;
    options.clock = &clock;
    options.random = &random;
    options.health = health;
    return options;
  }
  void sample(std::size_t slot, std::uint64_t free) {
    LoadSample sample;
    sample.memory_bytes_free = free;
    EXPECT_TRUE(board.apply_sample(slot, ++sequence, sample, clock.now()));
  }
  DeviceView view(std::size_t slot) { return board.entries().at(slot).view; }
  DeviceView view_of(const DeviceId& id) {
    for (const Board::Entry& entry : board.entries())
      if (entry.info->id == id) return entry.view;
    ADD_FAILURE() << "there is no " << id;
    return {};
  }
  Lease take(const Requirements& requirements = {}, std::string_view name = "least_loaded") {
    Result<Lease> lease = board.acquire(test::policy(name), requirements);
    EXPECT_TRUE(lease) << (lease ? "" : lease.error().message);
    return lease ? std::move(*lease) : Lease();
  }

  FakeClock clock{FakeClock::Sleepers::block};
  SeededRandom random{1};
  std::uint64_t sequence = 0;
  Board board;
};

}  // namespace berth::pool
