#include "berth/ledger.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "berth/fake_clock.hpp"
#include "berth/random.hpp"
#include "pool/ledger_layout.hpp"
#include "pool/ledger_row.hpp"
#include "pool/test_folder.hpp"

namespace berth {
namespace {

using std::chrono::seconds;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;

class LedgerTest : public testing::Test {
 protected:
  std::shared_ptr<Ledger> open() {
    auto ledger = Ledger::open({folder_.path, &clock_});
    EXPECT_TRUE(ledger) << ledger.error().to_text();
    return *ledger;
  }
  Book book(Ledger& ledger) { return ledger.lock().value().book(); }
  static Ledger::Request request(std::uint64_t bytes, const std::string& device = "GPU-a") {
    Ledger::Request wanted;
    wanted.state = EntryState::taken;
    wanted.holder = this_process();
    wanted.name = "engine";
    wanted.claims = {{DeviceId(device), device, bytes}};
    return wanted;
  }
  static Result<std::uint64_t> add(Ledger& ledger, const Ledger::Request& wanted) {
    Result<Ledger::Lock> lock = ledger.lock();
    if (!lock) return lock.error();
    return lock->add(wanted);
  }

  TestFolder folder_;
  FakeClock clock_;
};

TEST_F(LedgerTest, WhatOneProgramPromisesAnotherSees) {
  const auto one = open(), other = open();
  Ledger::Request wanted = request(20 * gib);
  wanted.priority = Priority::high;
  wanted.exclusive = true;
  wanted.claims.push_back({DeviceId("GPU-b/sm64.0"), "GPU-b", 3 * gib});
  const auto id = add(*one, wanted);
  ASSERT_TRUE(id) << id.error().to_text();
  const Book seen = book(*other);
  ASSERT_EQ(seen.entries.size(), 1U);
  const LedgerEntry& entry = seen.entries[0];
  EXPECT_EQ(entry.id, *id);
  EXPECT_EQ(entry.state, EntryState::taken);
  EXPECT_EQ(entry.holder, this_process());
  EXPECT_EQ(entry.user, geteuid());
  EXPECT_EQ(entry.name, "engine");
  EXPECT_EQ(entry.priority, Priority::high);
  EXPECT_TRUE(entry.exclusive);
  EXPECT_EQ(entry.claims, wanted.claims);
  EXPECT_EQ(seen.promised("GPU-a"), 20 * gib);
  EXPECT_EQ(seen.promised("GPU-b"), 3 * gib);
  EXPECT_EQ(seen.holders(DeviceId("GPU-b/sm64.0")), 1U);
  EXPECT_EQ(seen.holders(DeviceId("GPU-b")), 0U) << "a part is not the whole";
  EXPECT_TRUE(seen.held_exclusively(DeviceId("GPU-a")));
  ASSERT_TRUE(other->lock().value().release(*id)) << "anybody may give it back who knows its number";
  EXPECT_TRUE(book(*one).entries.empty());
}

TEST_F(LedgerTest, TheSumOfPromisesStaysWithinItsLimit) {
  const auto ledger = open();
  Ledger::Request wanted = request(20 * gib);
  wanted.limits = {30 * gib};
  ASSERT_TRUE(add(*ledger, wanted));
  const auto refused = add(*ledger, wanted);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_EQ(book(*ledger).promised("GPU-a"), 20 * gib) << "a refusal leaves nothing behind";
}

TEST_F(LedgerTest, AGangIsPromisedWholeOrNotAtAll) {
  const auto ledger = open();
  ASSERT_TRUE(add(*ledger, request(20 * gib, "GPU-b")));
  Ledger::Request gang = request(20 * gib);
  gang.claims.push_back({DeviceId("GPU-b"), "GPU-b", 20 * gib});
  gang.limits = {30 * gib, 30 * gib};
  EXPECT_FALSE(add(*ledger, gang));
  EXPECT_EQ(book(*ledger).promised("GPU-a"), 0U);
}

TEST_F(LedgerTest, AReservationNobodyTakesUpExpiresAndATakenOneDoesNot) {
  const auto ledger = open();
  Ledger::Request wanted = request(gib);
  wanted.state = EntryState::reserved;
  wanted.expires = clock_.now() + seconds(30);
  const auto left_alone = add(*ledger, wanted), taken = add(*ledger, wanted);
  ASSERT_TRUE(left_alone);
  ASSERT_TRUE(taken);
  ASSERT_TRUE(ledger->lock().value().take(*taken, this_process()));
  clock_.advance(seconds(29));
  EXPECT_EQ(book(*ledger).entries.size(), 2U);
  clock_.advance(seconds(1));
  const Book after = book(*ledger);
  ASSERT_EQ(after.entries.size(), 1U);
  EXPECT_EQ(after.entries[0].id, *taken);
  EXPECT_EQ(after.entries[0].state, EntryState::taken);
  const auto late = ledger->lock().value().take(*left_alone, this_process());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::not_found);
}

TEST_F(LedgerTest, WhatTheDeadHeldReturns) {
  const auto ledger = open();
  const pid_t child = fork();
  if (child == 0) {
    const auto own = Ledger::open({folder_.path, &clock_});
    _exit(own && add(**own, request(20 * gib)) ? 0 : 1);
  }
  int status = 0;
  // Still a zombie: nobody has asked for its status.
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(book(*ledger).entries.empty()) << "a zombie holds nothing";
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(LedgerTest, ALaterProcessWithTheSameNumberIsAnother) {
  const auto ledger = open();
  Ledger::Request wanted = request(gib);
  wanted.holder.start_time += 1;
  ASSERT_TRUE(add(*ledger, wanted));
  EXPECT_TRUE(book(*ledger).entries.empty());
}

TEST_F(LedgerTest, AProcessThatCannotBeJudgedIsLeftAlone) {
  const auto ledger = open();
  Ledger::Request wanted = request(gib);
  wanted.holder.pid_namespace += 1;
  wanted.holder.pid = 4'000'000;
  ASSERT_TRUE(add(*ledger, wanted));
  EXPECT_EQ(book(*ledger).entries.size(), 1U);
}

TEST_F(LedgerTest, ALaterOwnerOfAReservationKeepsItWhenTheFirstDies) {
  const auto ledger = open();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t reserver = fork();
  if (reserver == 0) {
    const auto own = Ledger::open({folder_.path, &clock_});
    Ledger::Request wanted = request(gib);
    wanted.state = EntryState::reserved;
    const auto id = add(**own, wanted);
    Holder taker = find_process(static_cast<std::uint32_t>(getppid())).value();
    if (!(*own)->lock().value().take(*id, taker)) _exit(1);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(reserver, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Book after = book(*ledger);
  ASSERT_EQ(after.entries.size(), 1U);
  EXPECT_EQ(after.entries[0].holder, this_process());
}

TEST_F(LedgerTest, RowsPromiseWithoutTheLockAndNeverTooMuchTogether) {
  const auto ledger = open();
  constexpr std::uint64_t limit = 10;
  auto one = Ledger::open_row(ledger, "one");
  auto two = Ledger::open_row(open(), "two");
  ASSERT_TRUE(one);
  ASSERT_TRUE(two);
  for (auto* row : {&*one, &*two}) {
    EXPECT_EQ((*row)->add_claim(DeviceId("GPU-a/0"), "GPU-a").value(), 0U);
    EXPECT_EQ((*row)->add_claim(DeviceId("GPU-b"), "GPU-b").value(), 1U);
    EXPECT_EQ((*row)->add_claim(DeviceId("GPU-a/1"), "GPU-a").value(), 0U) << "one memory, one claim";
  }
  EXPECT_TRUE((*one)->promise(0, 6, limit));
  EXPECT_FALSE((*two)->promise(0, 5, limit));
  EXPECT_TRUE((*two)->promise(0, 4, limit));
  EXPECT_EQ((*one)->promised_by_others(0), 4U);
  (*one)->give_back(0, 6);
  EXPECT_TRUE((*two)->promise(0, 6, limit));
  two->reset();
  EXPECT_EQ((*one)->promised_by_others(0), 0U);
}

TEST_F(LedgerTest, TheLeaseAProgramRunsUnderIsItsOwn) {
  const auto ledger = open();
  const auto lease = add(*ledger, request(20 * gib));
  setenv("BERTH_LEASE", std::to_string(*lease).c_str(), 1);
  auto inside = Ledger::open_row(ledger, "inside");
  unsetenv("BERTH_LEASE");
  auto outside = Ledger::open_row(ledger, "outside");
  ASSERT_TRUE((*inside)->add_claim(DeviceId("GPU-a"), "GPU-a"));
  ASSERT_TRUE((*outside)->add_claim(DeviceId("GPU-a"), "GPU-a"));
  EXPECT_EQ((*inside)->promised_by_others(0), 0U);
  EXPECT_EQ((*outside)->promised_by_others(0), 20 * gib);
}

TEST_F(LedgerTest, RowsAndLockHoldersContendWithoutOvercommitting) {
  constexpr std::uint64_t limit = 3;
  std::atomic<int> held{0};
  std::atomic<int> most{0};
  const auto note = [&](int now) {
    int seen = most.load();
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
  };
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const auto ledger = *Ledger::open({folder_.path, &clock_});
      auto row = *Ledger::open_row(ledger, "row");
      EXPECT_TRUE(row->add_claim(DeviceId("GPU-a"), "GPU-a"));
      for (int i = 0; i < 400; ++i) {
        if (t == 0) {
          Ledger::Request wanted = request(2);
          wanted.limits = {limit};
          const auto id = add(*ledger, wanted);
          if (!id) continue;
          note(held += 2);
          held -= 2;
          EXPECT_TRUE(ledger->lock().value().release(*id));
        } else if (row->promise(0, 2, limit)) {
          note(held += 2);
          held -= 2;
          row->give_back(0, 2);
        }
      }
    });
  }
  threads.clear();
  EXPECT_LE(most.load(), 3);
  EXPECT_GT(most.load(), 0);
  EXPECT_TRUE(book(*open()).entries.empty()) << "rows end with their owners";
}

TEST_F(LedgerTest, IntentIsKeptAcrossProcessesAndEndsOnlyByWord) {
  const DeviceId gpu("GPU-a");
  ASSERT_TRUE(open()->lock().value().set_intent(gpu, Intent::cordoned));
  EXPECT_EQ(book(*open()).intent(gpu), Intent::cordoned);
  EXPECT_EQ(book(*open()).intent(DeviceId("GPU-b")), Intent::in_service);
  ASSERT_TRUE(open()->lock().value().set_intent(gpu, Intent::in_service));
  EXPECT_TRUE(book(*open()).intents.empty());
}

TEST_F(LedgerTest, AWaiterSleepsUntilSomethingChanges) {
  const auto ledger = *Ledger::open({folder_.path, nullptr});
  const std::uint64_t seen = ledger->changes();
  std::jthread other([&] { EXPECT_TRUE(add(*ledger, request(gib))); });
  while (ledger->changes() == seen) ledger->wait_for_change(seen, real_clock().now() + seconds(60));
  EXPECT_NE(ledger->changes(), seen);
}

TEST_F(LedgerTest, AStoppedHolderOfTheLockIsReportedAndADeadOneLetsGo) {
  const auto ledger = open();
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto own = *Ledger::open({folder_.path, &clock_});
    const auto lock = own->lock();
    if (write(told[1], "x", 1) != 1) _exit(1);
    pause();
  }
  char byte = 0;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  const auto refused = ledger->lock(std::chrono::milliseconds(20));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::timeout);
  kill(child, SIGKILL);
  EXPECT_TRUE(ledger->lock()) << "the kernel gives the lock back";
  waitpid(child, nullptr, 0);
  close(told[0]);
  close(told[1]);
}

TEST_F(LedgerTest, TheFileIsThisUsersAlone) {
  open();
  struct stat about{};
  ASSERT_EQ(stat((folder_.path / "ledger").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U);
  EXPECT_EQ(about.st_size, static_cast<off_t>(sizeof(ledger_layout::File)));
}

TEST_F(LedgerTest, InAFolderThatOthersMayWriteTheFileIsForAllOfThem) {
  ASSERT_EQ(chmod(folder_.path.c_str(), 01777), 0);
  open();
  struct stat about{};
  ASSERT_EQ(stat((folder_.path / "ledger").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0666U);
}

TEST_F(LedgerTest, EntriesOfAnEarlierBootHoldNothingAndIntentStays) {
  {
    const auto ledger = open();
    ASSERT_TRUE(add(*ledger, request(gib)));
    ASSERT_TRUE(ledger->lock().value().set_intent(DeviceId("GPU-a"), Intent::cordoned));
  }
  std::fstream file(folder_.path / "ledger", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offsetof(ledger_layout::Header, boot));
  file.write("earlier", 8);
  file.close();
  const Book after = book(*open());
  EXPECT_TRUE(after.entries.empty());
  EXPECT_EQ(after.intent(DeviceId("GPU-a")), Intent::cordoned);
}

TEST_F(LedgerTest, WhatIsNoLedgerIsRefusedAndLeftAsItIs) {
  const auto refuses = [&](const std::string& why) {
    const auto opened = Ledger::open({folder_.path, &clock_});
    EXPECT_FALSE(opened) << why;
    if (!opened) {
      EXPECT_NE(opened.error().message.find(why), std::string::npos) << opened.error().to_text();
      EXPECT_FALSE(opened.error().advice.empty());
    }
  };
  const auto path = folder_.path / "ledger";
  std::ofstream(path) << "hello";
  refuses("cut short");
  std::ofstream(path) << std::string(sizeof(ledger_layout::File), 'x');
  refuses("something else");
  std::filesystem::remove(path);
  open();
  std::filesystem::resize_file(path, sizeof(ledger_layout::File) - 1);
  refuses("cut short");
  std::filesystem::resize_file(path, sizeof(ledger_layout::File));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offsetof(ledger_layout::Header, version));
  file.put(99);
  file.close();
  refuses("version is 99");
  std::filesystem::remove(path);
  std::filesystem::create_symlink("elsewhere", path);
  refuses("symbolic link");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  refuses("folder");
  std::filesystem::remove(path);
  open();
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  refuses("other users");
}

TEST_F(LedgerTest, AFileCutShortOrRemovedWhileInUseIsReported) {
  const auto ledger = open();
  std::filesystem::resize_file(folder_.path / "ledger", 4096);
  EXPECT_FALSE(ledger->lock());
  std::filesystem::resize_file(folder_.path / "ledger", sizeof(ledger_layout::File));
  EXPECT_TRUE(ledger->lock());
  std::filesystem::remove(folder_.path / "ledger");
  const auto gone = ledger->lock();
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::unavailable);
}

TEST_F(LedgerTest, MoreEntriesThanItHoldsAreRefused) {
  const auto ledger = open();
  auto lock = ledger->lock();
  for (std::size_t i = 0; i < ledger_layout::entries_max; ++i) ASSERT_TRUE(lock->add(request(1)));
  const auto refused = lock->add(request(1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::queue_full);
  Ledger::Request wide = request(1);
  wide.claims.resize(ledger_layout::claims_max + 1, wide.claims[0]);
  EXPECT_EQ(lock->add(wide).error().code, ErrorCode::invalid_argument);
}

TEST_F(LedgerTest, HostileBytesAreNeverTrusted) {
  // Words and bytes of the body replaced at random: every call must answer, and
  // none may read or write beyond the file. The header's four constants stay:
  // without them it is refused at open, as tested above.
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::filesystem::remove(folder_.path / "ledger");
    const auto ledger = open();
    ASSERT_TRUE(add(*ledger, request(gib)));
    ASSERT_TRUE(add(*ledger, request(gib, "GPU-b")));
    SeededRandom random(seed);
    const auto below = [&](std::uint64_t n) { return random.below(n); };
    std::fstream file(folder_.path / "ledger", std::ios::in | std::ios::out | std::ios::binary);
    // Most of the file is unused; the hits go where the entries are.
    constexpr std::uint64_t first = 24, devices = offsetof(ledger_layout::File, devices),
                            entries = offsetof(ledger_layout::File, entries);
    for (int hit = 0; hit < 40; ++hit) {
      const std::uint64_t spans[] = {first + below(devices - first), devices + below(4 * sizeof(ledger_layout::Device)),
                                     entries + below(4 * sizeof(ledger_layout::Entry))};
      file.seekp(static_cast<std::streamoff>(spans[below(3)] & ~std::uint64_t{7}));
      const std::uint64_t values[] = {0, ~std::uint64_t{0}, below(600), random.next()};
      const std::uint64_t value = values[below(4)];
      file.write(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    file.close();
    const auto again = Ledger::open({folder_.path, &clock_});
    if (!again) continue;
    auto lock = (*again)->lock();
    ASSERT_TRUE(lock);
    const Book seen = lock->book();
    for (const LedgerEntry& entry : seen.entries) {
      EXPECT_LE(entry.claims.size(), ledger_layout::claims_max);
      EXPECT_LT(entry.name.size(), 64U);
    }
    Ledger::Request wanted = request(5);
    wanted.limits = {10 * gib};
    const auto id = lock->add(wanted);
    if (id) static_cast<void>(lock->release(*id));
    static_cast<void>(lock->set_intent(DeviceId("GPU-z"), Intent::cordoned));
  }
}

}  // namespace
}  // namespace berth
