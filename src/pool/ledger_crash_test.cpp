// A process that is killed while it changes the ledger, at any instruction: what
// the others find is consistent, with all of its entry or nothing of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "berth/ledger.hpp"
#include "berth/random.hpp"
#include "pool/ledger_row.hpp"
#include "pool/test_folder.hpp"

namespace berth {
namespace {

// Sanitizers add instructions to every access, and each is a step.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr long steps_max = 4'000'000;
constexpr int kills = 4;
#else
constexpr long steps_max = 400'000;
constexpr int kills = 40;
#endif

class LedgerCrash : public testing::Test {
 protected:
  void SetUp() override {
    ledger_ = Ledger::open({folder_.path, nullptr}).value();
    auto lock = ledger_->lock().value();
    ASSERT_TRUE(lock.add(request("GPU-a", 7)));
  }
  // Who promises without the lock looks at any moment.
  void watch() {
    row_ = Ledger::open_row(ledger_, "watcher").value();
    ASSERT_EQ(row_->add_claim(DeviceId("GPU-b"), "GPU-b").value(), 0U);
  }

  static Ledger::Request request(const std::string& device, std::uint64_t bytes) {
    Ledger::Request wanted;
    wanted.holder = this_process();
    wanted.name = "engine";
    wanted.claims = {{DeviceId(device), device, bytes}, {DeviceId(device + "/part"), device, bytes}};
    wanted.limits = {1000, 1000};
    return wanted;
  }

  // Reserves, takes up and gives back, between two stops.
  [[noreturn]] void victim() {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    const auto own = Ledger::open({folder_.path, nullptr});
    if (!own) _exit(1);
    const Ledger::Request wanted = request("GPU-b", 5);
    raise(SIGSTOP);
    {
      auto lock = (*own)->lock();
      const auto id = lock->add(wanted);
      if (!id || !lock->take(*id, wanted.holder) || !lock->set_intent(DeviceId("GPU-c"), Intent::cordoned) ||
          !lock->release(*id))
        _exit(1);
    }
    raise(SIGSTOP);
    _exit(0);
  }

  // Kills the victim after `steps` instructions between its stops; gives how
  // many it made. Absent: this machine forbids tracing.
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
      if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        return std::nullopt;
      }
      waitpid(child, &status, 0);
      ended = !WIFSTOPPED(status) || WSTOPSIG(status) == SIGSTOP;
      if (const std::uint64_t seen = row_->promised_by_others(0); seen != 0 && seen != 10) {
        ADD_FAILURE() << seen << " bytes promised after " << made << " instructions: half of a gang";
        break;
      }
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return made;
  }

  void expect_consistent() {
    auto lock = ledger_->lock();
    ASSERT_TRUE(lock) << "the lock of the dead is free";
    const Book book = lock->book();
    ASSERT_EQ(book.entries.size(), 2U) << "the first, and the watcher's";
    EXPECT_EQ(book.promised("GPU-a"), 14U) << "what others hold is as it was";
    EXPECT_EQ(book.promised("GPU-b"), 0U) << "what the dead held has returned";
    const auto id = lock->add(request("GPU-b", 500));
    ASSERT_TRUE(id) << "all of it can be had again: " << id.error().to_text();
    EXPECT_EQ(lock->book().promised("GPU-b"), 1000U);
    ASSERT_TRUE(lock->release(*id));
  }

  TestFolder folder_;
  std::shared_ptr<Ledger> ledger_;
  std::unique_ptr<Ledger::Row> row_;
};

TEST_F(LedgerCrash, AtAnyInstructionLeavesAllOrNothing) {
  watch();
  const std::optional<long> whole = run(steps_max);
  if (!whole) GTEST_SKIP() << "tracing a child is not permitted here";
  ASSERT_LT(*whole, steps_max);
  expect_consistent();
  SeededRandom random(20);
  for (int i = 0; i < kills; ++i) {
    const auto steps = static_cast<long>(random.below(static_cast<std::uint64_t>(*whole)));
    SCOPED_TRACE("killed after " + std::to_string(steps) + " of " + std::to_string(*whole) + " instructions");
    ASSERT_TRUE(run(steps));
    expect_consistent();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace berth
