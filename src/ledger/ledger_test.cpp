#include "berth/ledger.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "berth/random.hpp"
#include "ledger/ledger_case.hpp"
#include "ledger/process.hpp"
#include "ledger/user_file.hpp"
#include "world/test_units.hpp"

namespace berth::ledger {
namespace {

using world::gib;

using std::chrono::milliseconds;

class LedgerTest : public LedgerCase {
 protected:
  std::size_t alive() const { return open()->snapshot().value().entries.size(); }
};

TEST_F(LedgerTest, ALeaseIsVisibleToOtherPrograms) {
  const auto ledger = open();
  Ledger::Request wanted = request("GPU-a", 20 * gib);
  wanted.name = "a name, with = and % and \x1b[31m";
  wanted.priority = Priority::high;
  wanted.claims.push_back({DeviceId("GPU-b/sm64.0"), "GPU-b", 7, 3, true});
  const LedgerLease lease = std::move(ledger->lock().value().add(wanted).value());
  EXPECT_EQ(in_child([&] {
              const LedgerSnapshot seen = open()->snapshot().value();
              if (seen.entries.size() != 1) return 1;
              const LedgerEntry& entry = seen.entries.front();
              if (entry.name != wanted.name || entry.priority != Priority::high) return 2;
              if (entry.claims != wanted.claims || entry.user != geteuid()) return 3;
              if (entry.alive_by != Liveness::descriptor || entry.reference != lease.reference()) return 4;
              return seen.held_exclusively(DeviceId("GPU-b/sm64.0")) ? 0 : 5;
            }),
            0);
}

TEST_F(LedgerTest, ALeaseEndsWithTheLastDescriptor) {
  const auto ledger = open();
  {
    LedgerLease lease = take(*ledger, "GPU-a", 1);
    EXPECT_EQ(alive(), 1U);
    Child inherited([] {});
    {
      const LedgerLease gone = std::move(lease);
    }
    EXPECT_EQ(ledger->snapshot().value().entries.size(), 1U) << "a child has the descriptor too";
    inherited.end(SIGKILL);
  }
  // The holder is alive, but for a pool only the descriptor counts.
  Ledger::Request pool = request("GPU-a", 1);
  pool.kind = EntryKind::pool;
  {
    const LedgerLease lease = std::move(ledger->lock().value().add(pool).value());
  }
  const LedgerSnapshot seen = ledger->snapshot().value();
  for (const LedgerEntry& entry : seen.entries) EXPECT_NE(entry.kind, EntryKind::pool);
}

TEST_F(LedgerTest, ACommandThatClosesTheDescriptorIsIdentifiedByPidAndStartTime) {
  Child holder([&] {
    const auto ledger = open();
    const LedgerLease lease = take(*ledger, "GPU-a", 1);
  });
  const LedgerSnapshot seen = open()->snapshot().value();
  ASSERT_EQ(seen.entries.size(), 1U);
  EXPECT_EQ(seen.entries[0].alive_by, Liveness::holder);
  holder.end(SIGKILL);
  EXPECT_EQ(open()->snapshot().value().entries.size(), 0U);
}

TEST_F(LedgerTest, AProcessWithTheLeaseInItsEnvironmentKeepsIt) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto ledger = open();
    const LedgerLease lease = take(*ledger, "GPU-a", 1);
    const std::string variable = "BERTH_LEASE=" + to_string(lease.reference());
    const pid_t child = fork();
    if (child == 0) {
      // Like a child process in Python: no descriptor, its own session, and the variable
      // in its environment.
      setsid();
      closefrom(3);
      char name[] = "sleep", time[] = "60";
      char* arguments[] = {name, time, nullptr};
      char* variables[] = {const_cast<char*>(variable.c_str()), nullptr};
      execve("/bin/sleep", arguments, variables);
      _exit(1);
    }
    static_cast<void>(!write(pipe_ends[1], &child, sizeof child));
    _exit(0);
  }
  waitpid(parent, nullptr, 0);
  pid_t child = 0;
  ASSERT_EQ(read(pipe_ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  LedgerSnapshot seen;
  // Waits until the child has called exec.
  wait_until_true([&] {
    seen = open()->snapshot().value();
    return !seen.entries.empty() && seen.entries[0].alive_by == Liveness::environment;
  });
  ASSERT_EQ(seen.entries.size(), 1U);
  EXPECT_EQ(seen.entries[0].alive_by, Liveness::environment);
  EXPECT_EQ(seen.entries[0].kept_by, std::vector<std::uint32_t>{static_cast<std::uint32_t>(child)});
  kill(child, SIGKILL);
  wait_until_true([&] {
    seen = open()->snapshot().value();
    return seen.entries.empty();
  });
  EXPECT_TRUE(seen.entries.empty());
  EXPECT_EQ(seen.ended.size(), 1U) << "the devices have not been checked";
}

TEST_F(LedgerTest, ALeaseReferenceOfAnotherLedgerIsIgnored) {
  const auto ledger = open();
  const LedgerLease lease = take(*ledger, "GPU-a", 1);
  const LedgerSnapshot seen = ledger->snapshot().value();
  setenv("BERTH_LEASE", to_string(lease.reference()).c_str(), 1);
  EXPECT_EQ(Ledger::current_lease(seen), lease.reference());
  setenv("BERTH_LEASE", to_string(LeaseReference{lease.reference().file ^ 1, lease.reference().id}).c_str(), 1);
  EXPECT_EQ(Ledger::current_lease(seen), std::nullopt);
  for (const char* const text : {"", "1", ":", "zz:1", "00:0", "0000000000000000:1x"}) {
    setenv("BERTH_LEASE", text, 1);
    EXPECT_EQ(Ledger::current_lease(seen), std::nullopt) << text;
  }
  unsetenv("BERTH_LEASE");
}

TEST_F(LedgerTest, AReleasedLeaseNoLongerCounts) {
  const auto ledger = open();
  const LedgerLease lease = take(*ledger, "GPU-a", 1), other = take(*ledger, "GPU-b", 1);
  auto lock = ledger->lock().value();
  ASSERT_TRUE(lock.release(lease.reference()));
  EXPECT_EQ(lock.snapshot().entries.size(), 1U);
  EXPECT_EQ(lock.release(lease.reference()).error().code, ErrorCode::not_found);
  EXPECT_EQ(lock.set_claims(lease, {}).error().code, ErrorCode::not_found);
}

TEST_F(LedgerTest, EndedEntriesAreRemovedAndIdsAreNotReused) {
  const auto ledger = open();
  std::uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(in_child([&] { return take(*open(), "GPU-a", 1) ? 0 : 1; }), 0);
    auto lock = ledger->lock().value();
    const LedgerSnapshot seen = lock.snapshot();
    EXPECT_TRUE(seen.entries.empty());
    ASSERT_EQ(seen.ended.size(), 1U);
    EXPECT_GT(seen.ended[0].id(), last);
    last = seen.ended[0].id();
    lock.forget(seen.ended);
    EXPECT_TRUE(lock.snapshot().ended.empty());
  }
}

TEST_F(LedgerTest, IntentsAreStoredPerUserAndTheStrictestCounts) {
  const auto ledger = open();
  ASSERT_TRUE(ledger->lock().value().set_intent(DeviceId("GPU-a"), Intent::cordoned));
  ASSERT_TRUE(ledger->lock().value().set_intent(DeviceId("GPU-a"), Intent::draining));
  const LedgerSnapshot seen = open()->snapshot().value();
  ASSERT_EQ(seen.intents.size(), 1U) << "one intent per user";
  EXPECT_EQ(seen.intent(DeviceId("GPU-a"))->intent, Intent::draining);
  EXPECT_EQ(seen.intent(DeviceId("GPU-b")), nullptr);
  ASSERT_TRUE(open()->lock().value().set_intent(DeviceId("GPU-a"), Intent::in_service));
  EXPECT_TRUE(open()->snapshot().value().intents.empty());
  EXPECT_TRUE(open()->lock().value().set_intent(DeviceId("GPU-a"), Intent::in_service)) << "already in service";
}

// The real clock, which calls `before_now` once before it is next read.
class CallingClock final : public Clock {
 public:
  TimePoint now() const noexcept override {
    if (const auto call = std::exchange(before_now, nullptr)) call();
    return real_clock().now();
  }
  void sleep_until(TimePoint) override {}
  bool wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, TimePoint when) override {
    return real_clock().wait_until(condition, lock, when);
  }
  mutable std::function<void()> before_now;
};

TEST_F(LedgerTest, AWaitingProcessWakesWhenTheLedgerIsWritten) {
  CallingClock clock;
  const auto ledger = Ledger::open({folder_.path, &clock}).value();
  const LedgerLease first = take(*ledger, "GPU-a", 1);
  const std::uint64_t seen = ledger->snapshot().value().fingerprint;
  ledger->wait_for_change(seen, real_clock().now() + milliseconds(1));
  EXPECT_EQ(ledger->changes(), seen);
  // When wait_for_change() reads the clock to compute the remaining time, it has found no change.
  clock.before_now = [&] { EXPECT_EQ(in_child([&] { return take(*open(), "GPU-b", 1) ? 0 : 1; }), 0); };
  const TimePoint start = real_clock().now();
  ledger->wait_for_change(seen, start + std::chrono::seconds(20));
  EXPECT_LT(real_clock().now() - start, std::chrono::seconds(10));
  EXPECT_NE(ledger->changes(), seen);
}

TEST_F(LedgerTest, AWaitingRequestHasAHeartbeatAndEndsWithItsProcess) {
  Child waiter([&] {
    Ledger::Request wanted = request("GPU-a", 1);
    wanted.kind = EntryKind::waiting;
    wanted.count = 7;
    const auto ledger = open();
    static LedgerLease place;
    place = std::move(ledger->lock().value().add(wanted).value());
    ledger->heartbeat(place);
  });
  const auto ledger = open();
  const LedgerSnapshot seen = ledger->snapshot().value();
  ASSERT_EQ(seen.entries.size(), 1U);
  EXPECT_EQ(seen.entries[0].count, 7U);
  EXPECT_GE(seen.entries[0].last_heartbeat, seen.entries[0].since);
  EXPECT_EQ(seen.holders(DeviceId("GPU-a")), 0U) << "it holds nothing";
  waiter.end(SIGKILL);
  EXPECT_TRUE(ledger->snapshot().value().entries.empty());
}

TEST_F(LedgerTest, TheHolderOfTheLockIsNamedAndItsEndReleasesTheLock) {
  Child holder([&] { flock(::open(folder_.path.c_str(), O_RDONLY | O_DIRECTORY), LOCK_EX); });
  const auto ledger = open();
  const auto refused = ledger->lock(milliseconds(30));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::timeout);
  EXPECT_NE(refused.error().message.find("(pid " + std::to_string(holder.pid())), std::string::npos)
      << refused.error().message;
  holder.end(SIGKILL);
  EXPECT_TRUE(ledger->lock(milliseconds(500)));
}

TEST_F(LedgerTest, AForkedChildDoesNotKeepTheLock) {
  const auto ledger = open();
  auto lock = std::make_unique<Ledger::Lock>(std::move(ledger->lock().value()));
  Child forked([] {});
  lock.reset();
  EXPECT_TRUE(open()->lock(milliseconds(100)));
}

TEST_F(LedgerTest, UnknownLinesOfANewerVersionAreReadAndKept) {
  const auto ledger = open();
  const LedgerLease lease = take(*ledger, "GPU-a", 5 * gib);
  // What a later version may add: keys, parts of a claim, kinds, lines.
  auto file = ledger::UserFile::open(only_file().native(), true).value();
  std::string text = file.read_text(*file.read_header()).value();
  text.insert(text.find("\n", text.find("lease ")), " future=1 claim=GPU-c,GPU-c,7,0,0,later");
  const std::string strange = "weather sunny\nlease 77 hibernating claim=GPU-d,GPU-d,9\n";
  ASSERT_TRUE(file.write_text(*file.read_header(), text + strange));
  world::Descriptor held = file.take_lock(77).value();
  const LedgerSnapshot seen = open()->snapshot().value();
  ASSERT_EQ(seen.entries.size(), 2U);
  EXPECT_EQ(seen.holders(DeviceId("GPU-c")), 1U);
  EXPECT_EQ(seen.holders(DeviceId("GPU-d")), 1U) << "an entry of unknown kind holds its claims";
  const LedgerLease another = take(*ledger, "GPU-b", 1);
  text = file.read_text(*file.read_header()).value();
  EXPECT_NE(text.find(strange), std::string::npos) << text;
  EXPECT_NE(text.find("future=1"), std::string::npos) << text;
  static_cast<void>(held.close());
}

TEST_F(LedgerTest, ADamagedFileIsReportedAndHoldsNothing) {
  const auto ledger = open();
  {
    const LedgerLease lease = take(*ledger, "GPU-a", 1);
  }
  const std::filesystem::path file = only_file();
  const auto problem = [&] { return ledger->folders().front().files.front().problem; };
  std::filesystem::resize_file(file, 20);
  EXPECT_NE(problem(), "");
  EXPECT_TRUE(ledger->snapshot().value().entries.empty());
  std::filesystem::resize_file(file, 0);
  EXPECT_NE(problem(), "");
  const LedgerLease again = take(*ledger, "GPU-a", 1);
  EXPECT_EQ(open()->snapshot().value().entries.size(), 1U) << "a damaged file does not block others";
}

TEST_F(LedgerTest, HostileBytesNeverCrashAReader) {
  SeededRandom random(7);
  const auto ledger = open();
  const LedgerLease lease = take(*ledger, "GPU-a", gib);
  const std::filesystem::path path = only_file();
  std::ifstream in(path, std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(in)), {});
  for (int round = 0; round < 400; ++round) {
    std::string bytes = sound;
    for (std::uint64_t i = 1 + random.below(20); i > 0; --i) {
      const std::size_t at = random.below(4) == 0 ? random.below(64) : 16384 + random.below(bytes.size() - 16384);
      bytes[at] = static_cast<char>(random.next());
    }
    std::ofstream(path, std::ios::binary) << bytes;
    const LedgerSnapshot seen = open()->snapshot().value();
    EXPECT_LE(seen.entries.size(), 2U);
  }
}

TEST_F(LedgerTest, TheNumberOfWaitingRequestsAndTheFileSizeAreLimited) {
  const auto ledger = open();
  Ledger::Request wanted = request("GPU-a", 1);
  wanted.kind = EntryKind::waiting;
  std::vector<LedgerLease> places;
  auto lock = std::make_unique<Ledger::Lock>(std::move(ledger->lock().value()));
  for (;;) {
    Result<LedgerLease> place = lock->add(wanted);
    if (!place) {
      EXPECT_EQ(place.error().code, ErrorCode::queue_full) << place.error().to_text();
      break;
    }
    places.push_back(*std::move(place));
    ASSERT_LE(places.size(), 2000U);
  }
  lock.reset();
  EXPECT_GE(places.size(), 512U);
  EXPECT_EQ(alive(), places.size());
}

TEST_F(LedgerTest, TheNumberOfDeviceIdsOverTimeIsNotLimited) {
  // MIG creates new ids each time a GPU is partitioned.
  const auto ledger = open();
  for (int layout = 0; layout < 40; ++layout) {
    auto lock = ledger->lock().value();
    std::vector<LedgerLease> leases;
    for (int slice = 0; slice < 20; ++slice) {
      const std::string id = "MIG-" + std::to_string(layout) + "-" + std::to_string(slice);
      Result<LedgerLease> lease = lock.add(request(id, gib));
      ASSERT_TRUE(lease) << lease.error().to_text();
      ASSERT_TRUE(lock.set_intent(DeviceId(id), Intent::cordoned));
      ASSERT_TRUE(lock.set_intent(DeviceId(id), Intent::in_service));
      leases.push_back(*std::move(lease));
    }
    for (const LedgerLease& lease : leases) ASSERT_TRUE(lock.release(lease.reference()));
  }
}

TEST_F(LedgerTest, OwnFoldersArePrivateAndUnsafeOnesAreRefused) {
  TestFolder other;
  const std::string path = (other.path / "runtime").native();
  EXPECT_TRUE(Ledger::open({path, nullptr}));
  struct stat about{};
  ASSERT_EQ(stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700U);
  chmod(path.c_str(), 0777);
  EXPECT_FALSE(Ledger::open({path, nullptr})) << "all users could remove files there";
  std::filesystem::create_directory_symlink(folder_.path, other.path / "link");
  EXPECT_FALSE(Ledger::open({other.path / "link", nullptr}));
  EXPECT_EQ(Ledger::open({"relative", nullptr}).error().code, ErrorCode::invalid_argument);
}

TEST_F(LedgerTest, TheDefaultFoldersDoNotDependOnTheSession) {
  setenv("XDG_RUNTIME_DIR", folder_.path.c_str(), 1);
  const char* const own = std::getenv("BERTH_RUNTIME_DIR");
  const std::string before = own ? own : "";
  unsetenv("BERTH_RUNTIME_DIR");
  const auto ledger = Ledger::open();
  if (ledger) {
    std::vector<std::string> paths;
    for (const LedgerFolder& folder : (*ledger)->folders()) paths.push_back(folder.path);
    EXPECT_EQ(paths, (std::vector<std::string>{"/run/berth", "/run/lock", "/dev/shm", "/tmp"}));
  }
  if (own) setenv("BERTH_RUNTIME_DIR", before.c_str(), 1);
  unsetenv("XDG_RUNTIME_DIR");
}

TEST_F(LedgerTest, ALeaseOfAPidNamespaceEndsWithTheNamespace) {
  NEEDS_ROOT();
  // The holder is process 1 of another pid namespace: its pid means nothing here.
  std::optional<Child> outer;
  outer.emplace([&] {
    if (unshare(CLONE_NEWPID) != 0) return;
    int ready[2];
    if (pipe(ready) != 0) _exit(1);
    if (fork() == 0) {
      const auto ledger = open();
      const LedgerLease lease = take(*ledger, "GPU-a", 1);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      static_cast<void>(!write(ready[1], "x", 1));
      for (;;) pause();
    }
    char byte = 0;
    static_cast<void>(!read(ready[0], &byte, 1));
  });
  const LedgerSnapshot seen = open()->snapshot().value();
  if (seen.entries.empty()) GTEST_SKIP() << "a pid namespace is not permitted here";
  EXPECT_EQ(seen.entries[0].alive_by, Liveness::descriptor);
  EXPECT_NE(seen.entries[0].holder.pid_namespace, this_process().pid_namespace);
  outer.reset();
  std::size_t left = 1;
  wait_until_true([&] {
    left = open()->snapshot().value().entries.size();
    return left == 0;
  });
  EXPECT_EQ(left, 0U);
}

// A process that keeps the lease is not visible from inside.
TEST_F(LedgerTest, InAContainerALeaseTakenOutsideIsNotRemoved) {
  NEEDS_ROOT();
  ASSERT_EQ(in_child([&] {
              const auto ledger = open();
              const LedgerLease lease = take(*ledger, "GPU-a", 1);
              return 0;
            }),
            0);
  const auto forget = [&] {
    const auto ledger = open();
    Ledger::Lock lock = ledger->lock().value();
    lock.forget(lock.snapshot().ended);
    const LedgerSnapshot seen = lock.snapshot();
    return static_cast<int>(seen.entries.size() + seen.ended.size());
  };
  const int left = in_child([&] { return unshare(CLONE_NEWPID) == 0 ? in_child(forget) : 77; });
  if (left == 77) GTEST_SKIP() << "a pid namespace is not permitted here";
  EXPECT_EQ(left, 1);
  EXPECT_EQ(forget(), 0) << "outside the container";
}

}  // namespace
}  // namespace berth::ledger
