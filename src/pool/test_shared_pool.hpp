// Pools of several programs on one machine, which share a ledger.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>

#include "berth/ledger.hpp"
#include "berth/pool.hpp"
#include "ledger/test_folder.hpp"
#include "ledger/usage.hpp"
#include "pool/test_device.hpp"

namespace berth::test {

class SharedPool : public testing::Test {
 protected:
  std::shared_ptr<Ledger> ledger() { return Ledger::open({folder_.path, nullptr}).value(); }

  // One program: two devices of 1000 bytes each, both empty.
  Pool open() {
    Pool pool = open_unchecked();
    EXPECT_FALSE(pool.ledger_error());
    return pool;
  }
  // Works even if the ledger cannot be written.
  Pool open_unchecked() {
    PoolOptions options;
    options.poll = false;
    options.ledger = ledger();
    auto pool = Pool::open({make_device("a"), make_device("b")}, options);
    EXPECT_TRUE(pool) << pool.error().to_text();
    pool->poll_now();
    return *std::move(pool);
  }
  static Requirements bytes_of(std::uint64_t bytes, const std::string& device = "a") {
    Requirements requirements;
    requirements.memory_bytes_min = bytes;
    requirements.only = {DeviceId(device)};
    return requirements;
  }
  static Requirements bytes_anywhere(std::uint64_t bytes) {
    Requirements requirements;
    requirements.memory_bytes_min = bytes;
    return requirements;
  }

  // A poll returns unused bytes, unless they were claimed since the
  // poll before; other pools notice it at their own next poll.
  static void settle(std::initializer_list<Pool> pools) {
    for (int i = 0; i < 3; ++i) {
      for (const Pool& pool : pools) pool.poll_now();
    }
  }
  std::uint64_t promised(const std::string& domain) {
    return ledger::unallocated_bytes(ledger()->snapshot().value(), {domain, 0, std::nullopt, {}});
  }

  ledger::TestFolder folder_;
};

}  // namespace berth::test
