// Pools of several programs on one machine: what happens to promises when a process forks, ends, or loses its files.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "berth/ledger.hpp"
#include "berth/pool.hpp"
#include "pool/test_device.hpp"
#include "pool/test_shared_pool.hpp"

namespace berth {
namespace {

using test::make_device;
using test::SharedPool;

TEST_F(SharedPool, AForkedChildChangesNothingOfItsParents) {
  std::optional<Pool> pool = open();
  Result<Lease> held = pool->acquire(bytes_of(700));
  ASSERT_TRUE(held);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = !pool->acquire(bytes_of(100));
    held->release();
    pool.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(promised("a"), 700U);
}

// A child that calls exit() destroys the objects of its parent.
TEST_F(SharedPool, AForkedChildThatExitsLeavesItsParentsClaim) {
  PoolOptions options;
  options.ledger = ledger();  // with the thread that polls
  // Destroyed after the pool, and before leak checkers run.
  struct Last {
    pid_t process = getpid();
    ~Last() {
      if (getpid() != process) _exit(7);
    }
  };
  static const Last last;
  static std::optional<Pool> pool;
  pool = Pool::open({make_device("a")}, options).value();
  pool->poll_now();
  static std::optional<Lease> held;
  held = pool->acquire(bytes_of(700)).value();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  EXPECT_EQ(promised("a"), 700U);
  held.reset();
  pool.reset();
}

TEST_F(SharedPool, WithoutDescriptorsAProgramKeepsItsClaimAndGetsNoMore) {
  const auto pool = open();
  Result<Lease> held = pool.acquire(bytes_of(700));
  ASSERT_TRUE(held);
  rlimit before{}, none{};
  getrlimit(RLIMIT_NOFILE, &before);
  none = before;
  none.rlim_cur = 3;
  setrlimit(RLIMIT_NOFILE, &none);
  pool.poll_now();
  const bool more = static_cast<bool>(pool.acquire(bytes_of(200)));
  const bool elsewhere = static_cast<bool>(pool.acquire(bytes_of(1, "b")));
  const bool has_error = pool.ledger_error().has_value();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(more || elsewhere) << "a promise that cannot be written is refused";
  EXPECT_TRUE(has_error);
  EXPECT_EQ(promised("a"), 700U);
  settle({pool});
  EXPECT_EQ(promised("a"), 700U);
  EXPECT_TRUE(pool.acquire(bytes_of(200)));
}

TEST_F(SharedPool, AFolderForEverybodyThatIsMadeLaterIsSeenByOpenPools) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make folders for everybody";
  const std::vector<std::string> paths{(folder_.path / "first").native(), (folder_.path / "second").native()};
  const auto make = [](const std::string& path) {
    std::filesystem::create_directory(path);
    std::filesystem::permissions(path, std::filesystem::perms(01777));
  };
  make(paths[1]);
  PoolOptions options;
  options.poll = false;
  options.ledger = Ledger::open({{}, nullptr, paths}).value();
  const auto pool = Pool::open({make_device("a")}, options).value();
  pool.poll_now();
  make(paths[0]);
  Ledger::Request command;
  command.claims = {{DeviceId("a"), "a", 700, 0, false}};
  const auto later = Ledger::open({{}, nullptr, paths}).value();
  const LedgerLease lease = std::move(later->lock().value().add(command).value());
  EXPECT_FALSE(std::filesystem::is_empty(paths[0]));
  EXPECT_FALSE(pool.acquire(bytes_of(301)));
  EXPECT_TRUE(pool.acquire(bytes_of(300)));
}

TEST_F(SharedPool, ARemovedFileIsWrittenAnew) {
  const auto pool = open();
  const Result<Lease> held = pool.acquire(bytes_of(700));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path)) std::filesystem::remove(entry.path());
  EXPECT_EQ(promised("a"), 0U);
  pool.poll_now();
  EXPECT_EQ(promised("a"), 700U);
}

TEST_F(SharedPool, AProgramThatDiesGivesBackWhatItHeld) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto pool = open();
    const Result<Lease> held = pool.acquire(bytes_of(1000));
    static_cast<void>(!write(ends[1], held ? "y" : "n", 1));
    pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ends[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  const auto pool = open();
  EXPECT_FALSE(pool.acquire(bytes_of(1)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  settle({pool});
  EXPECT_TRUE(pool.acquire(bytes_of(1000)));
  close(ends[0]);
  close(ends[1]);
}

TEST_F(SharedPool, WithoutALedgerAProgramWorksAloneAndSaysWhy) {
  setenv("BERTH_RUNTIME_DIR", "/proc/nowhere", 1);
  BackendOptions backends;
  const std::vector<std::shared_ptr<Backend>> all{make_backend("host", backends).value()};
  const auto pool = Pool::open_backends(all, {});
  unsetenv("BERTH_RUNTIME_DIR");
  ASSERT_TRUE(pool);
  ASSERT_TRUE(pool->ledger_error());
  EXPECT_NE(pool->ledger_error()->message.find("/proc/nowhere"), std::string::npos);
  EXPECT_TRUE(pool->acquire(bytes_anywhere(1)));
}

// The machine's ledger may exist, so the pool does not work without it.
TEST_F(SharedPool, DoesNotOpenWithAVariableThatNamesNoLedger) {
  BackendOptions backends;
  const std::vector<std::shared_ptr<Backend>> all{make_backend("host", backends).value()};
  for (const char* const given : {"", "here"}) {
    setenv("BERTH_RUNTIME_DIR", given, 1);
    const auto pool = Pool::open_backends(all, {});
    unsetenv("BERTH_RUNTIME_DIR");
    ASSERT_FALSE(pool) << given;
    EXPECT_EQ(pool.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(pool.error().to_text().find("BERTH_RUNTIME_DIR"), std::string::npos) << pool.error().to_text();
  }
}

}  // namespace
}  // namespace berth
