// Pools of several programs on one machine: they see each other's promises, what
// commands hold, and what the operator wants, through the ledger.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>

#include "berth/ledger.hpp"
#include "berth/pool.hpp"
#include "ledger/usage.hpp"
#include "pool/test_device.hpp"
#include "pool/test_shared_pool.hpp"

namespace berth {
namespace {

using test::make_device;
using test::SharedPool;

TEST_F(SharedPool, WhatOneProgramHoldsAnotherCannotHave) {
  const auto first = open(), second = open();
  Result<Lease> held = first.acquire(bytes_of(700));
  ASSERT_TRUE(held);
  // At once, before any poll: the promise is checked where it is made.
  EXPECT_FALSE(second.acquire(bytes_of(301)));
  EXPECT_EQ(promised("a"), 700U) << "a refused request claims nothing";
  EXPECT_TRUE(second.acquire(bytes_of(300)));
  Result<Lease> elsewhere = second.acquire(bytes_anywhere(700));
  ASSERT_TRUE(elsewhere);
  EXPECT_EQ(elsewhere->id(), DeviceId("b"));
  held->release();
  settle({first, second});
  EXPECT_TRUE(second.acquire(bytes_of(1000)));
}

TEST_F(SharedPool, AnOpenPoolHoldsItsDevicesAlsoWithoutBytes) {
  const auto pool = open();
  EXPECT_EQ(promised("a"), 0U);
  EXPECT_EQ(ledger()->snapshot().value().holders(DeviceId("a")), 1U) << "the device cannot be leased as a whole";
}

TEST_F(SharedPool, ALeaseThatOutlivesItsPoolKeepsItsPromise) {
  Lease lease = open().acquire(bytes_of(300)).value();
  EXPECT_EQ(promised("a"), 300U);
  const Pool other = open();
  EXPECT_FALSE(other.acquire(bytes_of(701)));
  lease.release();
  EXPECT_EQ(promised("a"), 0U);
  settle({other});
  EXPECT_TRUE(other.acquire(bytes_of(1000)));
}

TEST_F(SharedPool, WhatIsIdleGoesBackAtOnceWhenSomebodyWaits) {
  const auto pool = open();
  ASSERT_TRUE(pool.acquire(bytes_of(700)));
  EXPECT_EQ(promised("a"), 700U) << "the claim is kept for the next request";
  pool.poll_now();
  EXPECT_EQ(promised("a"), 700U) << "the bytes were claimed since the last poll";
  ASSERT_TRUE(pool.acquire(bytes_of(701)));
  Ledger::Request waiting;
  waiting.kind = EntryKind::waiting;
  const auto other = ledger();
  const LedgerLease place = std::move(other->lock().value().add(waiting).value());
  pool.poll_now();
  EXPECT_EQ(promised("a"), 0U);
  const Result<Lease> held = pool.acquire(bytes_of(300));
  ASSERT_TRUE(pool.acquire(bytes_of(200)));
  pool.poll_now();
  EXPECT_EQ(promised("a"), 300U) << "bytes in use are not returned";
}

TEST_F(SharedPool, WhatWasAllocatedUnderAPromiseIsNotSubtractedAgain) {
  auto device = make_device("a");
  PoolOptions options;
  options.poll = false;
  options.ledger = ledger();
  const auto pool = Pool::open({device}, options).value();
  std::vector<Lease> leases;
  std::vector<Buffer> buffers;
  for (int i = 0; i < 4; ++i) {
    pool.poll_now();
    Result<Lease> lease = pool.acquire(bytes_of(250));
    ASSERT_TRUE(lease) << i << ": " << lease.error().to_text();
    leases.push_back(*std::move(lease));
    buffers.push_back(leases.back().device().allocate(250).value());
    device->answer_free(1000 - 250 * (static_cast<std::uint64_t>(i) + 1));
  }
  pool.poll_now();
  EXPECT_FALSE(pool.acquire(bytes_of(1)));
  // Freed before its lease ends, the promise still stands.
  buffers.pop_back();
  device->answer_free(250);
  pool.poll_now();
  EXPECT_FALSE(pool.acquire(bytes_of(1)));
}

TEST_F(SharedPool, APoolInsideALeaseIsBoundedByItAndCountedWithinIt) {
  Ledger::Request command;
  command.claims = {{DeviceId("a"), "a", 400, 0, false}};
  const auto machine = ledger();
  const LedgerLease lease = std::move(machine->lock().value().add(command).value());
  setenv("BERTH_LEASE", to_string(lease.reference()).c_str(), 1);
  const auto inside = open();
  const auto beside = open();
  unsetenv("BERTH_LEASE");
  const auto outside = open();
  const Result<Lease> refused = inside.acquire(bytes_of(401));
  ASSERT_FALSE(refused) << "the lease has 400 bytes";
  EXPECT_EQ(refused.error().to_text().substr(0, 101),
            "the request needs 401 B, but the lease in which this program was started (berth run --mem) has 400 B ");
  EXPECT_EQ(refused.error().advice, "start the program with a larger --mem, or request less");
  const Result<Lease> held = inside.acquire(bytes_of(300));
  ASSERT_TRUE(held);
  const Result<Lease> shared = beside.acquire(bytes_of(101));
  ASSERT_FALSE(shared) << "both pools share the 400 bytes";
  EXPECT_FALSE(shared.error().message.starts_with("the request needs")) << "it fits the lease, which is in use";
  EXPECT_TRUE(beside.acquire(bytes_of(100)));
  EXPECT_EQ(promised("a"), 400U) << "the lease and the pools inside it count once";
  EXPECT_FALSE(outside.acquire(bytes_of(601)));
  EXPECT_TRUE(outside.acquire(bytes_of(600)));
}

// Idle bytes go back at every poll, because a request waits, while others are claimed.
TEST_F(SharedPool, AClaimThatShrinksWhileItGrowsIsNeverLessThanWhatIsHeld) {
  const auto pool = open();
  const auto machine = ledger();
  Ledger::Request waiting;
  waiting.kind = EntryKind::waiting;
  const LedgerLease place = std::move(machine->lock().value().add(waiting).value());
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> granted = 0, polled = 0;
  {
    const std::jthread polls([&] {
      while (!done) {
        pool.poll_now();
        ++polled;
      }
    });
    std::vector<std::jthread> takers;
    for (const std::uint64_t bytes : {300, 450}) {
      takers.emplace_back([&, bytes] {
        const auto other = ledger();
        for (int i = 0; i < 300; ++i) {
          const Result<Lease> lease = pool.acquire(bytes_of(bytes + static_cast<std::uint64_t>(i % 7)));
          if (!lease) continue;
          ++granted;
          // Waits until earlier changes are in the ledger.
          for (const std::uint64_t before = polled; polled < before + 2;) std::this_thread::yield();
          const LedgerSnapshot seen = other->snapshot().value();
          EXPECT_GE(ledger::unallocated_bytes(seen, {"a", 0, std::nullopt, {}}), bytes + i % 7) << i;
        }
      });
    }
    takers.clear();
    done = true;
  }
  EXPECT_GT(granted.load(), 0U);
  settle({pool});
  EXPECT_EQ(promised("a"), 0U);
}

TEST_F(SharedPool, AnExclusiveLeaseKeepsEveryOtherProgramOff) {
  const auto pool = open();
  Requirements alone = bytes_of(0);
  alone.exclusive = true;
  {
    const Result<Lease> held = pool.acquire(alone);
    ASSERT_TRUE(held);
    EXPECT_TRUE(ledger()->snapshot().value().held_exclusively(DeviceId("a")));
    const auto other = open();
    EXPECT_FALSE(other.acquire(bytes_of(1)));
    EXPECT_FALSE(other.acquire(alone));
  }
  pool.poll_now();
  EXPECT_FALSE(ledger()->snapshot().value().held_exclusively(DeviceId("a")));
  const auto other = open();
  EXPECT_FALSE(other.acquire(alone)) << "another program has the device open";
  EXPECT_TRUE(other.acquire(bytes_of(1)));
}

TEST_F(SharedPool, PartsShareTheirBytesWhateverTheLedgerHeardOfOneBefore) {
  // Then the ledger knows the last part by its id alone.
  ASSERT_TRUE(ledger()->lock()->set_intent(DeviceId("c"), Intent::cordoned));
  ASSERT_TRUE(ledger()->lock()->set_intent(DeviceId("c"), Intent::in_service));
  const auto open_parts = [&] {
    std::vector<std::shared_ptr<Device>> parts;
    for (const char* id : {"a", "b", "c"}) {
      auto part = make_device(id);
      part->describe().memory_domain = "gpu";
      parts.push_back(part);
    }
    PoolOptions options;
    options.poll = false;
    options.ledger = ledger();
    auto pool = Pool::open(std::move(parts), options).value();
    pool.poll_now();
    return pool;
  };
  const auto first = open_parts(), second = open_parts();
  const Result<Lease> held = first.acquire(bytes_of(700));
  ASSERT_TRUE(held);
  EXPECT_EQ(first.acquire(bytes_anywhere(400)).error().code, ErrorCode::no_eligible_device);
  for (const char* part : {"a", "b", "c"}) EXPECT_FALSE(second.acquire(bytes_of(400, part))) << part;
  EXPECT_TRUE(second.acquire(bytes_of(300, "c")));
}

// The device now has another memory; the memory that it shared does not change.
TEST_F(SharedPool, ADeviceThatComesBackInAnotherMemoryLeavesItsOldSiblingsAlone) {
  const auto part = [](const char* id, const char* memory) {
    auto device = make_device(id);
    device->describe().memory_domain = memory;
    return device;
  };
  PoolOptions options;
  options.poll = false;
  options.ledger = ledger();
  const auto pool = Pool::open({part("a", "x"), part("b", "y"), part("c", "y")}, options).value();
  options.ledger = ledger();
  const auto other = Pool::open({part("d", "y")}, options).value();
  ASSERT_TRUE(pool.leave(DeviceId("b")));
  ASSERT_TRUE(pool.join(part("b", "x")));
  pool.poll_now();
  other.poll_now();
  const Result<Lease> held = other.acquire(bytes_of(700, "d"));
  ASSERT_TRUE(held);
  EXPECT_FALSE(pool.acquire(bytes_of(400, "c")));
  EXPECT_TRUE(pool.acquire(bytes_of(300, "c")));
  EXPECT_TRUE(pool.acquire(bytes_of(1000, "b")));
}

TEST_F(SharedPool, MemoryThatTheDriverReportsLateIsNotPromisedTwice) {
  const auto device = make_device("a");
  const auto pid = static_cast<std::uint32_t>(getpid());
  const auto answer = [&](std::uint64_t free) {
    LoadSample sample;
    sample.memory_bytes_free = free;
    sample.memory_bytes_total = 1000;
    sample.processes = {{pid, ProcessKind::own, {}, 1000 - free}};
    device->answer(sample);
  };
  answer(1000);
  PoolOptions options;
  options.poll = false;
  options.ledger = ledger();
  const auto pool = Pool::open({device}, options).value();
  pool.poll_now();
  const Result<Lease> held = pool.acquire(bytes_of(400));
  ASSERT_TRUE(held);
  const Buffer buffer = device->allocate(400).value();
  pool.poll_now();
  EXPECT_FALSE(pool.acquire(bytes_of(700))) << "the driver does not report the buffer yet";
  answer(600);
  pool.poll_now();
  EXPECT_FALSE(pool.acquire(bytes_of(700)));
  EXPECT_TRUE(pool.acquire(bytes_of(600)));
}

TEST_F(SharedPool, ReasonsSayWhatIsLeft) {
  const auto first = open(), second = open();
  const Result<Lease> held = first.acquire(bytes_of(700));
  second.poll_now();
  const Explanation explanation = second.explain(bytes_of(400));
  EXPECT_EQ(explanation.candidates[0].memory_bytes_available, OptionalU64(300));
}

TEST_F(SharedPool, TheOperatorsIntentReachesEveryProgramAndRecoveryDoesNotUndoIt) {
  const auto pool = open();
  ASSERT_TRUE(ledger()->lock().value().set_intent(DeviceId("a"), Intent::cordoned));
  pool.poll_now();
  EXPECT_FALSE(pool.acquire(bytes_of(1)));
  ASSERT_TRUE(pool.set_intent(DeviceId("a"), Intent::in_service));
  EXPECT_FALSE(pool.acquire(bytes_of(1))) << "the program's intent does not override the operator's";
  ASSERT_TRUE(pool.set_intent(DeviceId("a"), Intent::draining));
  ASSERT_TRUE(ledger()->lock().value().set_intent(DeviceId("a"), Intent::in_service));
  pool.poll_now();
  EXPECT_FALSE(pool.acquire(bytes_of(1))) << "nor vice versa";
  ASSERT_TRUE(pool.set_intent(DeviceId("a"), Intent::in_service));
  EXPECT_TRUE(pool.acquire(bytes_of(1)));
}

TEST_F(SharedPool, ADeviceThatACommandHoldsAloneGetsNoWork) {
  const auto pool = open();
  Ledger::Request command;
  command.claims = {{DeviceId("a"), "a", 0, 0, true}};
  const auto machine = ledger();
  const LedgerLease lease = std::move(machine->lock().value().add(command).value());
  pool.poll_now();
  EXPECT_EQ(pool.acquire()->id(), DeviceId("b"));
  EXPECT_EQ(pool.explain(bytes_of(1)).candidates[0].rejection, Rejection::held);
  ASSERT_TRUE(machine->lock().value().release(lease.reference()));
  pool.poll_now();
  EXPECT_TRUE(pool.acquire(bytes_of(1)));
}

TEST_F(SharedPool, EveryLeaseIsGivenBackToTheLedger) {
  const auto pool = open();
  {
    std::vector<Lease> leases;
    for (int i = 0; i < 20; ++i) leases.push_back(pool.acquire(bytes_anywhere(100)).value());
    EXPECT_FALSE(pool.acquire(bytes_anywhere(100)));
    EXPECT_EQ(promised("a"), 1000U);
    leases[0].settle({ErrorCode::work_failed, {}});
    const auto group = pool.acquire_group(bytes_anywhere(50), 2);
    EXPECT_FALSE(group) << "one of the two is full";
  }
  settle({pool});
  EXPECT_EQ(promised("a"), 0U);
  EXPECT_EQ(promised("b"), 0U);
}

TEST_F(SharedPool, ProgramsThatContendNeverOvercommit) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not follow the threads of a process that was forked from one with threads";
#endif
  struct Shared {
    std::atomic<std::int64_t> held{0};
    std::atomic<std::int64_t> most{0};
    std::atomic<std::uint64_t> granted{0};
  };
  void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  Shared& shared = *new (at) Shared;
  std::vector<pid_t> children;
  for (int program = 0; program < 3; ++program) {
    const pid_t child = fork();
    if (child == 0) {
      const auto pool = open();
      const auto work = [&] {
        for (int i = 0; i < 500; ++i) {
          Result<Lease> lease = pool.acquire(bytes_of(400));
          if (!lease) {
            pool.poll_now();
            continue;
          }
          const std::int64_t now = shared.held.fetch_add(400) + 400;
          std::int64_t most = shared.most.load();
          while (now > most && !shared.most.compare_exchange_weak(most, now)) {
          }
          shared.granted.fetch_add(1);
          shared.held.fetch_sub(400);
        }
      };
      {
        std::jthread second(work);
        work();
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_LE(shared.most.load(), 1000);
  EXPECT_GT(shared.granted.load(), 0U);
  munmap(at, sizeof(Shared));
}

// A program of an earlier version holds a device under the id that it had then.
TEST_F(SharedPool, WhatIsHeldUnderAFormerIdIsNotGivenOutAgain) {
  const DeviceId former("opencl/x/chip.0");
  Ledger::Request request;
  request.name = "earlier version";
  request.claims = {{former, former.text(), 700, 0, false}};
  const LedgerLease lease = ledger()->lock()->add(request).value();
  auto device = std::make_shared<test::TestDevice>("gpu-opencl-0");
  device->describe().former_id = former;
  PoolOptions options;
  options.poll = false;
  options.ledger = ledger();
  const Pool pool = Pool::open({device, make_device("b")}, options).value();
  pool.poll_now();
  EXPECT_FALSE(pool.acquire(bytes_of(400, "gpu-opencl-0")));
  EXPECT_FALSE(pool.acquire(bytes_of(400, former.text()))) << "the same device";
  const auto fits = pool.acquire(bytes_of(200, former.text()));
  ASSERT_TRUE(fits) << fits.error().to_text();
  EXPECT_EQ(fits->device().id(), DeviceId("gpu-opencl-0"));

  ASSERT_TRUE(ledger()->lock()->set_intent(former, Intent::cordoned));
  pool.poll_now();
  EXPECT_FALSE(pool.acquire(bytes_of(1, "gpu-opencl-0"))) << "cordoned under its former id";
  EXPECT_TRUE(pool.acquire(bytes_of(1, "b")));
  EXPECT_TRUE(pool.set_intent(former, Intent::draining));
}

}  // namespace
}  // namespace berth
