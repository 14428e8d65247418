#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "ledger/ledger_case.hpp"
#include "ledger/user_file.hpp"
#include "world/test_units.hpp"

namespace berth::ledger {
namespace {

using world::gib;

// What one user can do to another: 5001 holds a lease, 5002 attacks.
class HostileUser : public LedgerCase {
 protected:
  void SetUp() override {
    NEEDS_ROOT();
    // Debian's setting: open with O_CREAT fails on other users' files in such a folder.
    std::ofstream("/proc/sys/fs/protected_regular") << "2";
    victim_ = std::make_unique<Child>(
        [&] {
          static LedgerLease lease;
          lease = take(*open(), "GPU-a", 60 * gib);
        },
        5001);
    file_ = only_file();
  }
  void expect_victim_holds() const {
    EXPECT_EQ(in_child(
                  [&] {
                    const LedgerSnapshot seen = open()->snapshot().value();
                    for (const LedgerEntry& entry : seen.entries) {
                      if (entry.user == 5001 && entry.claims[0].memory_bytes == 60 * gib) return 0;
                    }
                    return 1;
                  },
                  5003),
              0);
  }
  int as_other(const std::function<int()>& work) const { return in_child(work, 5002); }

  std::unique_ptr<Child> victim_;
  std::filesystem::path file_;
};

TEST_F(HostileUser, CannotWriteTruncateOrRemoveAnothersFile) {
  EXPECT_EQ(as_other([&] {
              if (::open(file_.c_str(), O_RDWR) >= 0 || truncate(file_.c_str(), 0) == 0) return 1;
              if (unlink(file_.c_str()) == 0 || rename(file_.c_str(), "/tmp/elsewhere") == 0) return 2;
              return chmod(file_.c_str(), 0666) == 0 ? 3 : 0;
            }),
            0);
  expect_victim_holds();
}

TEST_F(HostileUser, CannotReleaseAnothersLeaseOrRemoveAnothersCordon) {
  ASSERT_EQ(
      in_child([&] { return open()->lock().value().set_intent(DeviceId("GPU-b"), Intent::cordoned) ? 0 : 1; }, 5001),
      0);
  EXPECT_EQ(as_other([&] {
              const auto ledger = open();
              auto lock = ledger->lock().value();
              const LedgerSnapshot seen = lock.snapshot();
              if (lock.release(seen.entries.at(0).reference)) return 1;
              const Result<void> lifted = lock.set_intent(DeviceId("GPU-b"), Intent::in_service);
              if (lifted || lifted.error().message.find("5001") == std::string::npos) return 2;
              return 0;
            }),
            0);
  expect_victim_holds();
  EXPECT_NE(open()->snapshot().value().intent(DeviceId("GPU-b")), nullptr);
  // Root can change it.
  EXPECT_TRUE(open()->lock().value().set_intent(DeviceId("GPU-b"), Intent::in_service));
  const LeaseReference victims = open()->snapshot().value().entries.at(0).reference;
  EXPECT_TRUE(open()->lock().value().release(victims));
  EXPECT_TRUE(open()->snapshot().value().entries.empty());
}

TEST_F(HostileUser, ReadLocksDoNotKeepALeaseAliveAndDoNotBlockOthers) {
  Child reader(
      [&] {
        const int descriptor = ::open(file_.c_str(), O_RDONLY);
        struct flock all{};
        all.l_type = F_RDLCK;
        // All bytes but the one that the victim has locked.
        all.l_start = static_cast<off_t>(ledger::locks_begin) + 2;
        if (fcntl(descriptor, F_OFD_SETLK, &all) != 0) _exit(1);
      },
      5002);
  Child second(
      [&] {
        static LedgerLease lease;
        lease = take(*open(), "GPU-b", gib);
      },
      5001);
  EXPECT_EQ(in_child([&] { return open()->snapshot().value().holders(DeviceId("GPU-b")) == 1 ? 0 : 1; }, 5003), 0);
  second.end(SIGKILL);
  EXPECT_EQ(open()->snapshot().value().holders(DeviceId("GPU-b")), 0U);
  victim_->end(SIGKILL);
  EXPECT_EQ(open()->snapshot().value().holders(DeviceId("GPU-a")), 0U);
  Child late(
      [&] {
        struct flock all{};
        all.l_type = F_RDLCK;
        if (fcntl(::open(file_.c_str(), O_RDONLY), F_OFD_SETLK, &all) != 0) _exit(1);
      },
      5002);
  EXPECT_EQ(open()->snapshot().value().holders(DeviceId("GPU-a")), 0U) << "a read lock does not keep an ended lease";
}

TEST_F(HostileUser, NamesLinksAndPipesOfOtherUsersAreIgnored) {
  const std::string name = (folder_.path / "berth-ledger-5004").native();
  for (const int kind : {0, 1, 2}) {
    ASSERT_EQ(as_other([&] {
                if (kind == 0) return close(::open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600));
                if (kind == 1) return symlink("/etc/passwd", name.c_str());
                return mkfifo(name.c_str(), 0666);
              }),
              0);
    EXPECT_EQ(in_child([&] { return take(*open(), "GPU-b", 1) ? 0 : 1; }, 5004), 0) << kind;
    EXPECT_EQ(as_other([&] { return unlink(name.c_str()); }), 0);
    expect_victim_holds();
  }
}

TEST_F(HostileUser, TheNumberOfFilesReadPerUserIsLimited) {
  EXPECT_EQ(as_other([&] {
              for (int i = 0; i < 3000; ++i)
                close(::open((folder_.path / ("berth-ledger-" + std::to_string(i))).c_str(), O_CREAT | O_WRONLY, 0644));
              return 0;
            }),
            0);
  const TimePoint began = real_clock().now();
  expect_victim_holds();
  EXPECT_LT(real_clock().now() - began, std::chrono::seconds(3));
  EXPECT_EQ(in_child([&] { return take(*open(), "GPU-b", 1) ? 0 : 1; }, 5004), 0);
}

TEST_F(HostileUser, ACopyOfAnotherUsersFileDoesNotChangeThatUsersLeases) {
  // The leases in it count as the copying user's own, and no lock keeps them alive.
  EXPECT_EQ(as_other([&] {
              std::filesystem::copy_file(file_, folder_.path / "berth-ledger-5002");
              return 0;
            }),
            0);
  EXPECT_EQ(in_child([&] { return static_cast<int>(open()->snapshot().value().holders(DeviceId("GPU-a"))); }, 5003), 1);
}

TEST_F(HostileUser, AnEntryCannotBeNestedInAnotherUsersLease) {
  EXPECT_EQ(as_other([&] {
              const auto ledger = open();
              const LedgerSnapshot seen = ledger->snapshot().value();
              setenv("BERTH_LEASE", to_string(seen.entries.at(0).reference).c_str(), 1);
              if (Ledger::current_lease(seen)) return 1;
              Ledger::Request wanted = request("GPU-a", gib);
              wanted.within = seen.entries.at(0).reference;
              const LedgerLease lease = std::move(ledger->lock().value().add(wanted).value());
              return static_cast<int>(ledger->snapshot().value().holders(DeviceId("GPU-a")));
            }),
            2);
}

TEST_F(HostileUser, AFullFolderIsAnErrorAndLosesNothing) {
  if (system(("mount -t tmpfs -o size=64k,mode=1777 none " + folder_.path.native() + " 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "mounting is not permitted here";
  const auto fill = [&] {
    std::ofstream(folder_.path / "rubbish") << std::string(60 << 10, 'x');
    return 0;
  };
  EXPECT_EQ(as_other(fill), 0);
  EXPECT_EQ(in_child(
                [&] {
                  const auto lease = open()->lock().value().add(request("GPU-a", 1));
                  if (lease || lease.error().code != ErrorCode::io) return 1;
                  return lease.error().message.find("No space left") == std::string::npos ? 2 : 0;
                },
                5001),
            0);
  system(("umount " + folder_.path.native()).c_str());
}

}  // namespace
}  // namespace berth::ledger
