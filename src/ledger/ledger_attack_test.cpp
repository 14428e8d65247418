// Attempts to make the ledger lose leases: forged files, no free descriptors, a limit
// on file sizes, folders that appear later.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "berth/ledger.hpp"
#include "ledger/ledger_case.hpp"
#include "ledger/user_file.hpp"
#include "world/test_units.hpp"

namespace berth::ledger {
namespace {

using namespace std::chrono_literals;
using world::gib;

constexpr uid_t alice = 5001, mallory = 5002;

class LedgerAttack : public LedgerCase {
 protected:
  // Creates a file of mallory's with the number of another file and these lines.
  int forge(std::uint64_t number, const std::string& text) const {
    return in_child(
        [&] {
          const auto file = ledger::UserFile::create(folder_.path.native(), number);
          return file && file->write_text(*file->read_header(), text) ? 0 : 1;
        },
        mallory);
  }
};

// An agent and a pool ask about every second; a lock that is held for an hour must not use up their descriptors.
TEST_F(LedgerAttack, ALockThatIsHeldForLongCostsOneThreadAndNotOnePerAttempt) {
  const auto count = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  const auto ledger = open();
  const LedgerLease held = take(*ledger, "GPU-a", 60 * gib);
  const world::Descriptor other(::open(folder_.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
  EXPECT_FALSE(ledger->snapshot(500ms));  // long enough to enter the queue, also on a busy machine
  const auto descriptors = count("/proc/self/fd"), threads = count("/proc/self/task");
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(ledger->snapshot(1ms));
  EXPECT_EQ(count("/proc/self/fd"), descriptors);
  EXPECT_EQ(count("/proc/self/task"), threads);
  // A later attempt takes over the place in the queue; if there is none, the lock becomes free.
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(flock(other.get(), LOCK_UN), 0);
    const auto seen = ledger->snapshot(1min);
    ASSERT_TRUE(seen) << seen.error().to_text();
    EXPECT_EQ(seen->entries.size(), 1U);
    ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
    EXPECT_FALSE(ledger->snapshot(1ms));
  }
}

TEST_F(LedgerAttack, AForgedFileNumberDoesNotAffectAnotherUsersLease) {
  NEEDS_ROOT();
  const auto ledger = open();
  const LedgerLease held = take(*ledger, "GPU-a", 60 * gib);
  const LeaseReference lease = held.reference();
  // Started at time 0, so that it comes first, and with a live holder.
  const std::string forged = "lease " + std::to_string(lease.id) +
                             " running pid=1 start=0 pidns=0 since=0 priority=1 name=x claim=GPU-a,GPU-a,1,0,0\n";
  ASSERT_EQ(forge(lease.file, forged), 0);
  const auto file = ledger::UserFile::open((folder_.path / "berth-ledger-5002").native(), true).value();
  world::Descriptor lock = file.take_lock(lease.id).value();
  const LedgerSnapshot seen = ledger->snapshot().value();
  ASSERT_EQ(seen.entries.size(), 2U);
  EXPECT_EQ(seen.holders(DeviceId("GPU-a")), 2U);
  setenv("BERTH_LEASE", to_string(lease).c_str(), 1);
  EXPECT_EQ(Ledger::current_lease(seen), lease) << "the lease of its own user";
  unsetenv("BERTH_LEASE");
  EXPECT_NE(in_child(
                [&] {
                  const auto theirs = open();
                  return theirs->lock().value().release(lease) ? 0 : 1;
                },
                mallory),
            0);
  ASSERT_TRUE(ledger->lock().value().release({lease.file, lease.id, mallory}));
  EXPECT_EQ(ledger->snapshot().value().entries.size(), 1U) << "only the forged lease ended";
  EXPECT_TRUE(ledger->snapshot().value().find(lease));
  static_cast<void>(lock.close());
}

TEST_F(LedgerAttack, ALeaseReferenceSharedByTwoUsersIsAmbiguousForRoot) {
  NEEDS_ROOT();
  LedgerSnapshot seen;
  seen.entries.resize(2);
  seen.entries[0].reference = {7, 1, alice};
  seen.entries[0].user = alice;
  seen.entries[1].reference = {7, 2, mallory};
  seen.entries[1].user = mallory;
  setenv("BERTH_LEASE", to_string(seen.entries[0].reference).c_str(), 1);
  EXPECT_EQ(Ledger::current_lease(seen), seen.entries[0].reference) << "a container of alice";
  seen.entries[1].reference.id = 1;
  EXPECT_EQ(Ledger::current_lease(seen), std::nullopt);
  unsetenv("BERTH_LEASE");
}

// An entry of root nested in an ended lease counts by itself, even if another user has
// a lease with the reference of the ended one.
TEST_F(LedgerAttack, AForgedOuterLeaseHidesNothing) {
  NEEDS_ROOT();
  const auto ledger = open();
  const LedgerLease outer = take(*ledger, "GPU-a", 60 * gib);
  Ledger::Request wanted = request("GPU-a", 40 * gib);
  wanted.within = outer.reference();
  const LedgerLease inner = std::move(ledger->lock().value().add(wanted).value());
  EXPECT_EQ(ledger->snapshot().value().holders(DeviceId("GPU-a")), 1U);
  const std::string forged = "lease " + std::to_string(outer.reference().id) +
                             " running pid=1 start=0 pidns=0 since=0 priority=1 name=x claim=GPU-a,GPU-a,0,0,0\n";
  ASSERT_EQ(forge(outer.reference().file, forged), 0);
  const auto file = ledger::UserFile::open((folder_.path / "berth-ledger-5002").native(), true).value();
  world::Descriptor lock = file.take_lock(outer.reference().id).value();
  ASSERT_TRUE(ledger->lock().value().release(outer.reference()));
  const LedgerSnapshot seen = open()->snapshot().value();
  EXPECT_EQ(&seen.outermost(*seen.find(inner.reference())), seen.find(inner.reference()));
  EXPECT_EQ(seen.holders(DeviceId("GPU-a")), 2U);
  static_cast<void>(lock.close());
}

TEST_F(LedgerAttack, RootMayNestInAnotherUsersLease) {
  NEEDS_ROOT();
  int ready[2], stay[2];
  ASSERT_EQ(pipe(ready) + pipe(stay), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(stay[1]);
    if (setgid(alice) != 0 || setuid(alice) != 0) _exit(1);
    const auto theirs = open();
    const LedgerLease held = take(*theirs, "GPU-a", 60 * gib);
    char byte = 'x';
    static_cast<void>(!write(ready[1], &byte, 1));
    static_cast<void>(!read(stay[0], &byte, 1));
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const auto ledger = open();
  Ledger::Request wanted = request("GPU-a", 40 * gib);
  wanted.within = ledger->snapshot().value().entries.at(0).reference;
  const LedgerLease inner = std::move(ledger->lock().value().add(wanted).value());
  EXPECT_EQ(open()->snapshot().value().holders(DeviceId("GPU-a")), 1U) << "a container of alice's command";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (const int end : {ready[0], ready[1], stay[0], stay[1]}) close(end);
}

// /proc is searched once per ended lease; the forged lease must not be taken for both.
TEST_F(LedgerAttack, AForgedEndedLeaseDoesNotEndALiveLeaseWithTheSameReference) {
  NEEDS_ROOT();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    if (setgid(alice) != 0 || setuid(alice) != 0) _exit(1);
    const auto ledger = open();
    const LedgerLease lease = take(*ledger, "GPU-a", gib);
    const std::string variable = "BERTH_LEASE=" + to_string(lease.reference());
    const pid_t child = fork();
    if (child == 0) {
      close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
      char name[] = "sleep", time[] = "60";
      char* arguments[] = {name, time, nullptr};
      char* variables[] = {const_cast<char*>(variable.c_str()), nullptr};
      execve("/bin/sleep", arguments, variables);
      _exit(1);
    }
    static_cast<void>(!write(ends[1], &child, sizeof child));
    const LeaseReference reference = lease.reference();
    static_cast<void>(!write(ends[1], &reference, sizeof reference));
    _exit(0);
  }
  waitpid(parent, nullptr, 0);
  pid_t child = 0;
  LeaseReference lease;
  ASSERT_EQ(read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_EQ(read(ends[0], &lease, sizeof lease), static_cast<ssize_t>(sizeof lease));
  const auto alive = [&](Ledger& ledger) { return ledger.snapshot().value().find(lease) != nullptr; };
  for (int i = 0; i < 1000 && !alive(*open()); ++i) {
  }  // until exec
  ASSERT_EQ(
      forge(lease.file, "lease " + std::to_string(lease.id) + " running pid=0 since=0 name=x claim=GPU-a,GPU-a,1\n"),
      0);
  const auto ledger = open();
  EXPECT_TRUE(alive(*ledger));
  EXPECT_TRUE(alive(*ledger)) << "second snapshot";
  kill(child, SIGKILL);
  for (const int end : ends) close(end);
}

// Allows as many descriptors as are open, and `more`.
void limit_descriptors(rlim_t more) {
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(next) + more;
  close(next);
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST_F(LedgerAttack, WithoutDescriptorsTheLedgerIsNeverTakenForEmpty) {
  const auto ledger = open();
  const LedgerLease held = take(*ledger, "GPU-a", 60 * gib);
  for (rlim_t more = 0; more < 12; ++more) {
    EXPECT_EQ(in_child([&] {
                const auto other = open();
                for (int i = 3; i < 10; ++i) static_cast<void>(::open("/dev/null", O_RDONLY));  // numbers below 10
                limit_descriptors(more);
                const Result<LedgerSnapshot> seen = other->snapshot();
                static_cast<void>(other->changes());  // of the files read before
                if (!seen) return seen.error().code == ErrorCode::io ? 0 : 1;
                if (!seen->find(held.reference())) return 2;
                Result<Ledger::Lock> lock = other->lock();
                if (!lock) return 0;
                const Result<LedgerLease> lease = lock->add(request("GPU-a", gib));
                return lease || lease.error().code == ErrorCode::io ? 0 : 3;
              }),
              0)
        << more;
  }
  EXPECT_EQ(open()->snapshot().value().holders(DeviceId("GPU-a")), 1U);
}

TEST_F(LedgerAttack, WithoutDescriptorsACgroupThatCannotBeReadHasProcesses) {
  EXPECT_FALSE(ledger::cgroup_is_populated("/no-such-cgroup"));
  EXPECT_EQ(in_child([&] {
              limit_descriptors(0);
              return ledger::cgroup_is_populated("/no-such-cgroup") ? 0 : 1;
            }),
            0);
}

// Only its environment assigns it to the lease, and /proc cannot be read.
TEST_F(LedgerAttack, WithoutDescriptorsALeaseWhoseProcessesCannotBeSearchedCounts) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto ledger = open();
    const LedgerLease lease = take(*ledger, "GPU-a", gib);
    const std::string variable = "BERTH_LEASE=" + to_string(lease.reference());
    const pid_t child = fork();
    if (child == 0) {
      close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
      char name[] = "sleep", time[] = "60";
      char* arguments[] = {name, time, nullptr};
      char* variables[] = {const_cast<char*>(variable.c_str()), nullptr};
      execve("/bin/sleep", arguments, variables);
      _exit(1);
    }
    static_cast<void>(!write(ends[1], &child, sizeof child));
    _exit(0);
  }
  waitpid(parent, nullptr, 0);
  pid_t child = 0;
  ASSERT_EQ(read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  close(ends[1]);
  EXPECT_EQ(read(ends[0], &child, sizeof child), 0) << "exec closes its end";
  for (rlim_t more = 0; more < 8; ++more) {
    EXPECT_EQ(in_child([&] {
                const auto ledger = open();
                rlimit before{};
                getrlimit(RLIMIT_NOFILE, &before);
                limit_descriptors(more);
                const Result<LedgerSnapshot> seen = ledger->snapshot();
                if (seen && seen->entries.size() != 1) return 1;
                setrlimit(RLIMIT_NOFILE, &before);
                return ledger->snapshot().value().entries.size() == 1 ? 0 : 2;
              }),
              0)
        << more;
  }
  kill(child, SIGKILL);
  close(ends[0]);
}

TEST_F(LedgerAttack, AFileSizeLimitIsAnErrorAndChangesNothing) {
  const auto ledger = open();
  const LedgerLease held = take(*ledger, "GPU-a", 60 * gib);
  for (const rlim_t bytes : {0UL, 10UL, 63UL, 16384UL, 16400UL, 1064960UL, 1064970UL}) {
    EXPECT_EQ(in_child([&] {
                signal(SIGXFSZ, SIG_DFL);
                const rlimit limit{bytes, bytes};
                setrlimit(RLIMIT_FSIZE, &limit);
                const auto other = open();
                const Result<LedgerLease> lease = other->lock().value().add(request("GPU-a", gib));
                if (lease || lease.error().code != ErrorCode::io) return 1;
                return lease.error().to_text().find("ulimit -f") == std::string::npos ? 2 : 0;
              }),
              0)
        << bytes;
    const LedgerSnapshot seen = open()->snapshot().value();
    ASSERT_EQ(seen.entries.size(), 1U) << bytes;
    EXPECT_EQ(seen.entries[0].claims[0].memory_bytes, 60 * gib);
    for (const LedgerFolder& folder : open()->folders()) {
      for (const LedgerFolder::File& file : folder.files) EXPECT_EQ(file.problem, "") << file.path;
    }
  }
}

// Shared folders, of which some do not exist yet.
class FoldersThatAppear : public LedgerAttack {
 protected:
  void SetUp() override { NEEDS_ROOT(); }
  std::string make(const std::string& name) const {
    const std::string path = (folder_.path / name).native();
    mkdir(path.c_str(), 01777);
    chmod(path.c_str(), 01777);
    return path;
  }
  std::shared_ptr<Ledger> open_all() const {
    return Ledger::open({{}, nullptr, {(folder_.path / "first").native(), (folder_.path / "second").native()}}).value();
  }
};

TEST_F(FoldersThatAppear, ALedgerOpenedEarlierReadsANewFolder) {
  make("second");
  const auto before = open_all();
  const LedgerLease old = take(*before, "GPU-a", 1);
  EXPECT_EQ(before->folder(), folder_.path / "second");
  make("first");
  const auto after = open_all();
  const LedgerLease held = take(*after, "GPU-b", 1);
  EXPECT_TRUE(std::filesystem::exists(folder_.path / "first" / ("berth-ledger-" + std::to_string(geteuid()))));
  EXPECT_EQ(before->snapshot().value().entries.size(), 2U);
  EXPECT_EQ(after->snapshot().value().entries.size(), 2U);
  EXPECT_EQ(before->folder(), folder_.path / "first");
  std::filesystem::remove_all(folder_.path / "first");
  EXPECT_EQ(before->snapshot().value().entries.size(), 1U) << "the folder was removed";
}

TEST_F(FoldersThatAppear, ANewFolderUnderLoadNeitherSplitsNorBlocksTheLedger) {
  make("second");
  constexpr int rounds = 40, locks = 6;
  for (int round = 0; round < rounds; ++round) {
    std::filesystem::remove_all(folder_.path / "first");
    std::atomic<int> inside = 0;
    std::atomic<std::size_t> held = 0;
    std::mutex mutex;
    std::vector<LedgerLease> leases;
    const auto work = [&](const std::shared_ptr<Ledger>& ledger) {
      for (int i = 0; i < locks; ++i) {
        Result<Ledger::Lock> lock = ledger->lock();
        ASSERT_TRUE(lock) << lock.error().to_text();
        EXPECT_EQ(++inside, 1);
        EXPECT_EQ(lock->snapshot().entries.size(), held++) << "all leases taken so far";
        const std::lock_guard guard(mutex);
        leases.push_back(lock->add(request("GPU-a", 1)).value());
        --inside;
      }
    };
    {
      const std::jthread first(work, open_all()), second(work, open_all()), root([&] { make("first"); });
    }
    const auto ledger = open_all();
    Ledger::Lock lock = ledger->lock().value();
    for (const LedgerLease& lease : leases) EXPECT_TRUE(lock.release(lease.reference()));
  }
}

TEST_F(FoldersThatAppear, OneFolderUnderTwoNamesIsLockedAndCountedOnce) {
  const std::string path = make("first");
  const auto ledger = Ledger::open({{}, nullptr, {path, path + "/."}}).value();
  const LedgerLease held = take(*ledger, "GPU-a", 1);
  EXPECT_EQ(ledger->snapshot(std::chrono::milliseconds(500)).value().holders(DeviceId("GPU-a")), 1U);
  EXPECT_EQ(ledger->folders().at(1).problem, "is the same folder as " + path);
}

TEST_F(FoldersThatAppear, WithoutAnyFolderTheLedgerIsAnErrorAndNotEmpty) {
  make("second");
  const auto ledger = open_all();
  const LedgerLease held = take(*ledger, "GPU-a", 1);
  std::filesystem::remove_all(folder_.path / "second");
  EXPECT_EQ(ledger->snapshot().error().code, ErrorCode::io);
}

}  // namespace
}  // namespace berth::ledger
