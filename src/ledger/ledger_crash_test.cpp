// A process that is killed while it changes the ledger, at any instruction, leaves a
// consistent ledger with all of its entry or none of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "berth/ledger.hpp"
#include "ledger/test_folder.hpp"
#include "ledger/usage.hpp"

namespace berth::ledger {
namespace {

constexpr long steps_max = 100'000;

class LedgerCrash : public testing::Test {
 protected:
  void SetUp() override {
    ledger_ = Ledger::open({folder_.path, nullptr}).value();
    first_ = std::move(ledger_->lock().value().add(request("GPU-a", 7)).value());
  }

  static Ledger::Request request(const std::string& device, std::uint64_t bytes) {
    Ledger::Request wanted;
    wanted.name = "engine";
    wanted.claims = {{DeviceId(device), device, bytes, 0, false},
                     {DeviceId(device + "/part"), device, bytes, 0, false}};
    return wanted;
  }
  static std::uint64_t promised(const LedgerSnapshot& snapshot, const std::string& domain) {
    return ledger::unallocated_bytes(snapshot, {domain, 0, std::nullopt, {}});
  }

  // Takes a lease, changes it, cordons a device and ends the lease, between two stops.
  [[noreturn]] void victim() {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    const auto own = Ledger::open({folder_.path, nullptr});
    if (!own) _exit(1);
    const Ledger::Request wanted = request("GPU-b", 5);
    raise(SIGSTOP);
    {
      auto lock = (*own)->lock();
      const auto lease = lock->add(wanted);
      if (!lease || !lock->set_claims(*lease, request("GPU-b", 6).claims) ||
          !lock->set_intent(DeviceId("GPU-c"), Intent::cordoned) || !lock->release(lease->reference()))
        _exit(1);
    }
    raise(SIGSTOP);
    _exit(0);
  }

  // Kills the victim at the beginning or end of its system call number `steps`, and
  // returns how many there were. Only system calls change what others can see.
  // Empty if this machine forbids tracing.
  std::optional<long> run(long steps) {
    const pid_t child = fork();
    if (child == 0) victim();
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) {
      EXPECT_EQ(status, 0) << "the victim failed before it began";
      return std::nullopt;
    }
    long made = 0;
    bool ended = false;
    for (; made < steps && !ended; ++made) {
      if (ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        return std::nullopt;
      }
      waitpid(child, &status, 0);
      ended = !WIFSTOPPED(status) || WSTOPSIG(status) == SIGSTOP;
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return made;
  }

  void expect_consistent() {
    auto lock = ledger_->lock();
    ASSERT_TRUE(lock) << "the lock of a killed process is free";
    const LedgerSnapshot seen = lock->snapshot();
    ASSERT_EQ(seen.entries.size(), 1U) << "the first lease";
    EXPECT_EQ(promised(seen, "GPU-a"), 14U) << "the leases of others are unchanged";
    EXPECT_EQ(promised(seen, "GPU-b"), 0U) << "the lease of the killed process has ended";
    for (const LedgerEntry& entry : seen.ended) {
      const std::uint64_t bytes = entry.claims.at(0).memory_bytes;
      EXPECT_TRUE(entry.claims.size() == 2 && (bytes == 5 || bytes == 6)) << "no partial change";
    }
    lock->forget(seen.ended);
    const auto lease = lock->add(request("GPU-b", 500));
    ASSERT_TRUE(lease) << "its memory is available again: " << lease.error().to_text();
    EXPECT_EQ(promised(lock->snapshot(), "GPU-b"), 1000U);
    ASSERT_TRUE(lock->release(lease->reference()));
  }

  TestFolder folder_;
  std::shared_ptr<Ledger> ledger_;
  LedgerLease first_;
};

TEST_F(LedgerCrash, AtAnySystemCallLeavesAllOrNothing) {
  const std::optional<long> whole = run(steps_max);
  if (!whole) GTEST_SKIP() << "tracing a child is not permitted here";
  ASSERT_LT(*whole, steps_max);
  ASSERT_GT(*whole, 50);
  expect_consistent();
  for (long steps = 0; steps <= *whole && !HasFailure(); ++steps) {
    SCOPED_TRACE("killed after " + std::to_string(steps) + " of " + std::to_string(*whole) + " stops");
    ASSERT_TRUE(run(steps));
    expect_consistent();
  }
}

}  // namespace
}  // namespace berth::ledger
