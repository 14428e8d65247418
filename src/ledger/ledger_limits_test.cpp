// What one user can write into the ledger is limited, and what one user hides or forges costs the others nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ledger/folder_listing.hpp"
#include "ledger/folders.hpp"
#include "ledger/ledger_case.hpp"
#include "ledger/ledger_state.hpp"
#include "ledger/user_file.hpp"

namespace berth::ledger {
namespace {

class LedgerLimits : public LedgerCase {
 protected:
  // A file of this user with these lines.
  UserFile write(const std::string& text, std::uint64_t number = 7) const {
    UserFile file = UserFile::create(folder_.path.native(), number).value();
    EXPECT_TRUE(file.write_text(*file.read_header(), text));
    return file;
  }
  static std::string lines(std::size_t count, const std::string& kind = "running", std::size_t first = 1) {
    std::string text;
    for (std::size_t i = first; i < first + count; ++i)
      text += "lease " + std::to_string(i) + " " + kind + " pid=0 since=0 name=x claim=GPU-a,GPU-a,1,0,0\n";
    return text;
  }
  // The locks of all leases of a file, which keep them alive.
  static world::Descriptor lock_all(const UserFile& file) {
    world::Descriptor all(::open(file.path().c_str(), O_RDWR | O_CLOEXEC));
    struct flock range{};
    range.l_type = F_WRLCK;
    range.l_start = static_cast<off_t>(locks_begin);
    range.l_len = 1 << 30;
    EXPECT_EQ(fcntl(all.get(), F_OFD_SETLK, &range), 0);
    return all;
  }
  static bool has_problem(const LedgerSnapshot& seen, const std::string& words) {
    return std::any_of(seen.problems.begin(), seen.problems.end(), [&](const LedgerProblem& problem) {
      return problem.user == geteuid() && problem.text.find(words) != std::string::npos;
    });
  }
};

// A thread takes the lock without a pause, like a program that claims memory in many threads.
TEST(FolderLockTest, IsNotKeptFromOthersByOneThatTakesItAgainAndAgain) {
  const TestFolder folder;
  const auto take = [&] { return FolderLock::take(folder.path.native(), TimePoint::max()).value(); };
  std::atomic<bool> ends = false;
  std::atomic<std::uint64_t> turns = 0;
  std::thread greedy([&] {
    while (!ends) {
      const FolderLock held = take();
      ++turns;
      for (const TimePoint until = real_clock().now() + std::chrono::microseconds(20); real_clock().now() < until;) {
      }
    }
  });
  std::vector<std::thread> others;  // keep all processors busy
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i)
    others.emplace_back([&] {
      while (!ends) {
      }
    });
  std::vector<std::uint64_t> waits;  // counted in turns of `greedy`
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t before = turns;
    while (turns == before) std::this_thread::yield();
    const FolderLock held = take();
    waits.push_back(turns - before);
  }
  ends = true;
  greedy.join();
  for (std::thread& other : others) other.join();
  // Only the shorter waits count, as this thread may not run when its turn comes. Without a pause in FolderLock
  // a quarter of them takes over 80 turns.
  std::nth_element(waits.begin(), waits.begin() + 25, waits.end());
  EXPECT_LT(waits[25], 40U);
}

TEST(LedgerFileName, OnlyNamesThatBerthWritesAreLookedAt) {
  EXPECT_EQ(user_in_name("berth-ledger-5001"), 5001U);
  EXPECT_EQ(user_in_name("berth-ledger-0"), 0U);
  EXPECT_EQ(user_in_name("berth-ledger-4294967295-0123456789abcdef"), 4294967295U);
  EXPECT_EQ(user_in_name("berth-ledger-ns-0123456789abcdef"), any_user);
  for (const std::string other :
       {"berth-ledger-", "berth-ledger", "berth-ledger-4294967296", "berth-ledger-x", "berth-ledger-5001x",
        "berth-ledger-05001", "berth-ledger--1", "berth-ledger-5001-", "berth-ledger-5001-1",
        "berth-ledger-5001-0123456789ABCDEF", "berth-ledger-5001-0123456789abcdef0", "xberth-ledger-5001"})
    EXPECT_EQ(user_in_name(other), std::nullopt) << other;
  EXPECT_EQ(user_in_name(file_name(geteuid(), std::nullopt)).has_value(), true);
  EXPECT_EQ(user_in_name(file_name(geteuid(), 255)).has_value(), true);
}

TEST_F(LedgerLimits, AListingIsUsedAgainUntilANameChanges) {
  const std::string folder = folder_.path.native();
  write("");
  std::optional<FolderListing> listing;
  wait_until_true([&] {
    listing = FolderListing::read(folder).value();
    return listing->is_current();
  });
  EXPECT_TRUE(listing->is_current());
  EXPECT_EQ(listing->files().size(), 1U);
  write("", 8);
  EXPECT_FALSE(listing->is_current()) << "a new file may hold promises";
  // Right after a change the kernel's clock may not have moved, and a second change would not be seen.
  const FolderListing soon = FolderListing::read(folder).value();
  write("", 9);
  EXPECT_FALSE(soon.is_current());
}

TEST_F(LedgerLimits, OfOneUserALimitedNumberOfFilesIsListed) {
  for (int i = 0; i < 200; ++i) {
    const std::string name = file_name(geteuid(), static_cast<std::uint64_t>(i));
    std::ofstream(folder_.path / name) << "x";
  }
  const FolderListing listing = FolderListing::read(folder_.path.native()).value();
  EXPECT_EQ(listing.files().size(), files_per_user_max);
  EXPECT_EQ(listing.unlisted().at(geteuid()), 200 - files_per_user_max);
  EXPECT_TRUE(has_problem(open()->snapshot().value(), "more ledger files"));
}

TEST_F(LedgerLimits, AFileAmongACrowdOfAnotherUsersNamesIsListed) {
  NEEDS_ROOT();
  // All names have the number of the victim, and nine of ten belong to another user.
  constexpr uid_t victim = 5001, author = 5002;
  for (int i = 0; i < 200; ++i) {
    const std::filesystem::path path = folder_.path / ("berth-ledger-5001-000000000000" + std::to_string(1000 + i));
    std::ofstream(path) << "x";
    const uid_t owner = i % 10 == 5 ? victim : author;
    ASSERT_EQ(chown(path.c_str(), owner, owner), 0);
  }
  const FolderListing listing = FolderListing::read(folder_.path.native()).value();
  const auto count_of = [&](uid_t user) {
    return std::count_if(listing.files().begin(), listing.files().end(),
                         [&](const FolderListing::File& file) { return file.user == user; });
  };
  EXPECT_EQ(count_of(victim), 20);
  EXPECT_EQ(count_of(author), static_cast<long>(files_per_user_max));
}

TEST_F(LedgerLimits, LinesBeyondTheLimitOfAUserDoNotCountAndAreReported) {
  const UserFile first = write(lines(3000)), second = write(lines(3000), 8);
  const world::Descriptor alive = lock_all(first), also = lock_all(second);
  const auto ledger = open();
  for (int again = 0; again < 2; ++again) {
    const LedgerSnapshot seen = ledger->snapshot().value();
    EXPECT_EQ(seen.entries.size(), lines_per_user_max);
    EXPECT_TRUE(has_problem(seen, "4096 lines"));
  }
  // What the first file gives up, the second may use.
  ASSERT_TRUE(first.write_text(*first.read_header(), lines(1)));
  EXPECT_EQ(ledger->snapshot().value().entries.size(), 3001U);
  EXPECT_FALSE(has_problem(ledger->snapshot().value(), "4096 lines"));
}

TEST_F(LedgerLimits, BytesBeyondTheLimitOfAUserAreNotRead) {
  std::string text = lines(1);
  text.append(text_bytes_max - text.size(), 'x');
  const UserFile first = write(text), second = write(lines(1), 8);
  const world::Descriptor alive = lock_all(first), also = lock_all(second);
  const LedgerSnapshot seen = open()->snapshot().value();
  EXPECT_EQ(seen.entries.size(), 1U);
  EXPECT_TRUE(has_problem(seen, "1 MiB"));
}

TEST_F(LedgerLimits, AnEntryThatWouldNotCountIsRefused) {
  const UserFile file = write(lines(lines_per_user_max - 1, "waiting"));
  const world::Descriptor alive = lock_all(file);
  const auto ledger = open();
  const Result<LedgerLease> last = ledger->lock().value().add(request("GPU-a", 1));
  ASSERT_TRUE(last) << last.error().to_text();
  EXPECT_EQ(open()->snapshot().value().entries.size(), lines_per_user_max);
  const Result<LedgerLease> beyond = ledger->lock().value().add(request("GPU-a", 1));
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::queue_full);
  EXPECT_EQ(open()->snapshot().value().entries.size(), lines_per_user_max) << "and nothing is lost";
}

TEST_F(LedgerLimits, AFileLeaseDelaysNoReaderAndIsReported) {
  const UserFile hidden = write(lines(1));
  const std::string path = hidden.path();
  const auto others = open();
  const LedgerLease held = take(*open(), "GPU-b", 1);  // goes into the same file
  static_cast<void>(held);
  const std::string leased = (folder_.path / file_name(geteuid(), 99)).native();
  Child owner([&] {
    const int file = ::open(leased.c_str(), O_RDWR | O_CREAT, 0644);
    signal(SIGIO, SIG_IGN);
    if (fcntl(file, F_SETLEASE, F_WRLCK) != 0) _exit(1);
  });
  const Result<UserFile> opened = UserFile::open(leased, false);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::unavailable);
  EXPECT_EQ(opened.error().to_text().find("BERTH_RUNTIME_DIR"), std::string::npos) << "that would split the ledger";
  const Result<LedgerSnapshot> seen = open()->snapshot();
  ASSERT_TRUE(seen) << seen.error().to_text();
  EXPECT_EQ(seen->holders(DeviceId("GPU-b")), 1U);
  EXPECT_TRUE(has_problem(*seen, "file lease"));
  EXPECT_TRUE(open()->lock().value().add(request("GPU-a", 1)));
}

TEST_F(LedgerLimits, AForgedHeartbeatInTheFutureIsNoSignOfLife) {
  const auto ledger = open();
  Ledger::Request wanted = request("GPU-a", 1);
  wanted.kind = EntryKind::waiting;
  const LedgerLease place = std::move(ledger->lock().value().add(wanted).value());
  const TimePoint added = ledger->snapshot().value().entries.at(0).since;
  write_heartbeat(place.descriptor(), 0, ledger->clock().now() + std::chrono::hours(1));
  const LedgerEntry entry = ledger->snapshot().value().entries.at(0);
  EXPECT_EQ(entry.last_heartbeat, added) << "a heartbeat from the future does not count";
  EXPECT_EQ(ledger->last_heartbeat(entry), added);
  ledger->heartbeat(place);
  EXPECT_GT(ledger->snapshot().value().entries.at(0).last_heartbeat, added);
}

TEST_F(LedgerLimits, AProcessOfAnotherUserIsNoHolder) {
  const auto holder = [](pid_t pid) { return find_process(static_cast<std::uint32_t>(pid)).value(); };
  EXPECT_EQ(process_state(holder(getpid()), geteuid()), ProcessState::alive);
  EXPECT_EQ(process_state(holder(1), 5002), ProcessState::gone) << "init";
  EXPECT_EQ(process_state(holder(getpid()), geteuid() + 1), ProcessState::gone);
  EXPECT_EQ(process_state(holder(getppid()), 5002), ProcessState::gone);
}

TEST_F(LedgerLimits, WhatAUserStartedAsRootIsTheUsers) {
  NEEDS_ROOT();
  // A parent of user 5002 with a child of root, as sudo is: the parent gives up its rights after the fork.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Child parent([&] {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    if (setgid(5002) != 0 || setuid(5002) != 0) _exit(1);
    static_cast<void>(!::write(ends[1], &child, sizeof child));
  });
  pid_t child = 0;
  ASSERT_EQ(read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  const ProcessIdentity holder = find_process(static_cast<std::uint32_t>(child)).value();
  EXPECT_EQ(process_state(holder, 5002), ProcessState::alive);
  EXPECT_EQ(process_state(holder, 5003), ProcessState::gone);
  parent.end(SIGKILL);
  EXPECT_EQ(process_state(holder, 5002), ProcessState::gone) << "nothing shows any longer who started it";
  kill(child, SIGKILL);
  for (const int end : ends) close(end);
}

TEST_F(LedgerLimits, ThousandsOfUsersExhaustNoDescriptors) {
  NEEDS_ROOT();
  constexpr uid_t users = 600;
  std::vector<world::Descriptor> alive;
  for (uid_t user = 0; user < users; ++user) {
    const std::string path = (folder_.path / ("berth-ledger-" + std::to_string(200000 + user))).native();
    std::filesystem::rename(write(lines(1)).path(), path);
    ASSERT_EQ(chown(path.c_str(), 200000 + user, 200000 + user), 0);
    if (user % 2 == 0) alive.push_back(lock_all(UserFile::open(path, false).value()));
  }
  const auto ledger = open();
  for (int again = 0; again < 2; ++again) {
    const LedgerSnapshot seen = ledger->snapshot().value();
    EXPECT_EQ(seen.entries.size(), users / 2) << "also entries of files that are not kept open";
    EXPECT_TRUE(std::all_of(seen.entries.begin(), seen.entries.end(),
                            [&](const LedgerEntry& entry) { return ledger->is_still_alive(entry); }));
  }
  const auto count = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  EXPECT_LT(static_cast<std::size_t>(count), alive.size() + 300);
  alive.clear();
  EXPECT_TRUE(ledger->snapshot().value().entries.empty());
}

}  // namespace
}  // namespace berth::ledger
