// What the SQLite engine promises beyond the contract of all engines: its file, its errors, and that nothing
// acknowledged is lost.
#include <gtest/gtest.h>
#ifdef BERTH_HAS_SQLITE
#include "store/sqlite_engine.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "world/files.hpp"
#include "world/test_folder.hpp"

namespace berth::store {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class SqliteEngine : public testing::Test {
 protected:
  SqliteEngine() {
    fs::create_directory(folder_.path / "data");
    fs::permissions(folder_.path / "data", fs::perms::owner_all);
  }
  std::string path() const { return (folder_.path / "data" / "store.db").native(); }
  std::shared_ptr<Engine> opened() const { return open_sqlite_engine(path()).value(); }
  Error refusal() const {
    const auto engine = open_sqlite_engine(path());
    return engine ? Error{ErrorCode::internal, "it was opened"} : engine.error();
  }
  static mode_t mode_of(const fs::path& file) {
    struct stat status{};
    return ::stat(file.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
  }
  // Runs `body` in a child process; returns the exit status.
  template <class Body>
  static int in_child(Body&& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  world::TestFolder folder_;
};

TEST_F(SqliteEngine, FilesAreOfTheUserAlone) {
  const mode_t mask = ::umask(0);
  const auto engine = opened();
  ASSERT_TRUE(engine->commit({{}, {{"a", "1"}}}));
  ASSERT_TRUE(engine->hold("server", 1s));
  ::umask(mask);
  EXPECT_EQ(mode_of(folder_.path / "data"), 0700U);
  for (const char* end : {"", "-wal", "-shm", ".leader", ".changes"}) EXPECT_EQ(mode_of(path() + end), 0600U) << end;
  ::chmod(path().c_str(), 0644);
  ASSERT_TRUE(open_sqlite_engine(path()));
  EXPECT_EQ(mode_of(path()), 0600U);
}

TEST_F(SqliteEngine, AFileThatOthersWriteToIsRefused) {
  ASSERT_TRUE(opened());
  ::chmod(path().c_str(), 0666);
  EXPECT_NE(refusal().message.find("can write to it"), std::string::npos) << refusal().message;
  EXPECT_EQ(mode_of(path()), 0666U) << "the mode is not changed";
}

TEST_F(SqliteEngine, AFileOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  ASSERT_TRUE(opened());
  ASSERT_EQ(::chown(path().c_str(), 65534, 65534), 0);
  EXPECT_NE(refusal().message.find("belongs to another user"), std::string::npos) << refusal().message;
}

TEST_F(SqliteEngine, KeepsItsContent) {
  ASSERT_TRUE(opened()->commit({{}, {{"a", "1"}, {"b", "2"}}}));
  const Listing listing = opened()->list("").value();
  EXPECT_EQ(listing.entries, (std::vector<Entry>{{"a", "1", 1}, {"b", "2", 1}}));
  EXPECT_EQ(listing.change_number, 1U);
}

TEST_F(SqliteEngine, AFileThatIsNoStoreIsRefusedAndNotTouched) {
  ASSERT_TRUE(world::write_private_text(path(), std::string(5000, 'x')));
  EXPECT_EQ(refusal().code, ErrorCode::io);
  EXPECT_NE(refusal().message.find("not a Berth store"), std::string::npos) << refusal().message;
  EXPECT_EQ(world::read_text(path()).value(), std::string(5000, 'x'));
}

TEST_F(SqliteEngine, ADatabaseOfAnotherProgramIsRefused) {
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "CREATE TABLE photos(name)", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(other);
  EXPECT_NE(refusal().message.find("another program"), std::string::npos) << refusal().message;
}

TEST_F(SqliteEngine, AForeignFileKeepsItsModeAndItsContent) {
  for (const std::string& content : {std::string("my notes"), std::string(5000, 'x'), std::string()}) {
    ASSERT_TRUE(world::write_private_text(path(), content));
    ::chmod(path().c_str(), 0644);
    EXPECT_EQ(refusal().code, ErrorCode::io);
    EXPECT_NE(refusal().message.find("not a Berth store"), std::string::npos) << refusal().message;
    EXPECT_EQ(mode_of(path()), 0644U);
    EXPECT_EQ(world::read_text(path()).value(), content);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path / "data"), {}), 1) << "there is no other file";
  }
  fs::remove(path());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "PRAGMA application_id = 7; CREATE TABLE photos(name)", nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(other);
  ::chmod(path().c_str(), 0644);
  EXPECT_NE(refusal().message.find("another program"), std::string::npos) << refusal().message;
  EXPECT_EQ(mode_of(path()), 0644U);
}

TEST_F(SqliteEngine, AFolderThatDoesNotExistIsNotMade) {
  const fs::path missing = folder_.path / "typo";
  const auto engine = open_sqlite_engine((missing / "store.db").native());
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(engine.error().message.find("there is no folder " + missing.native()), std::string::npos)
      << engine.error().message;
  EXPECT_FALSE(fs::exists(missing));
}

// SQLite takes these damages for a log that ends earlier, or for a new database.
TEST_F(SqliteEngine, AStoreThatHasLostChangesIsNotTakenForAnOlderOne) {
  // The process is killed, so that the log is not moved into the file.
  EXPECT_EQ(in_child([&] {
              const auto engine = opened();
              for (int i = 0; i < 5; ++i)
                if (!engine->commit({{}, {{"key" + std::to_string(i), std::string(100, 'v')}}})) return 1;
              ::raise(SIGKILL);
              return 2;
            }),
            -SIGKILL);
  const fs::path whole = folder_.path / "whole", data = folder_.path / "data";
  fs::copy(data, whole);
  const auto begin_again = [&] {
    fs::remove_all(data);
    fs::copy(whole, data);
    fs::permissions(data, fs::perms::owner_all);
  };
  EXPECT_EQ(opened()->list("").value().entries.size(), 5U) << "a killed process loses nothing";
  const auto expect_refused = [&](const char* what) {
    EXPECT_EQ(refusal().code, ErrorCode::io) << what;
    EXPECT_NE(refusal().advice.find("restore the last backup"), std::string::npos) << what << refusal().advice;
  };
  begin_again();
  fs::remove(path() + "-wal");
  expect_refused("without its log");
  begin_again();
  {
    std::fstream log(path() + "-wal", std::ios::in | std::ios::out | std::ios::binary);
    log.seekp(static_cast<std::streamoff>(fs::file_size(path() + "-wal") / 2));
    log.put('\xa5').put('\x5a');
  }
  expect_refused("two bytes of its log changed");
  begin_again();
  fs::resize_file(path(), 0);
  expect_refused("empty");
  fs::resize_file(path(), 1);
  expect_refused("one byte");
  begin_again();
  for (const char* end : {"", "-wal", "-shm"}) fs::remove(path() + end);
  expect_refused("the file is gone");
  fs::remove(path() + ".changes");
  EXPECT_TRUE(opened()->list("").value().entries.empty()) << "on request, it begins empty";
}

TEST_F(SqliteEngine, TablesOfANewerVersionAreRefused) {
  ASSERT_TRUE(open_sqlite_engine(path()));
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "PRAGMA user_version = 2", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(other);
  EXPECT_EQ(refusal().code, ErrorCode::not_supported);
  EXPECT_NE(refusal().message.find("newer version"), std::string::npos) << refusal().message;
}

TEST_F(SqliteEngine, ADamagedFileIsRefusedWithOneSentence) {
  {
    const auto engine = opened();
    for (int i = 0; i < 200; ++i)
      ASSERT_TRUE(engine->commit({{}, {{"key" + std::to_string(i), std::string(1000, 'v')}}}));
  }
  const auto size = fs::file_size(path());
  ASSERT_GT(size, 100'000U) << "closing the store moves the log into the file";
  std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  file << std::string(size - 8192, '\xaa');
  file.close();
  EXPECT_EQ(refusal().code, ErrorCode::io);
  EXPECT_NE(refusal().message.find("is damaged"), std::string::npos) << refusal().message;
  EXPECT_EQ(refusal().message.find('\n'), std::string::npos);
  EXPECT_NE(refusal().advice.find("backup"), std::string::npos);
}

TEST_F(SqliteEngine, APlaceThatOthersCanWriteToIsRefused) {
  fs::permissions(folder_.path / "data", fs::perms::all);
  EXPECT_EQ(refusal().code, ErrorCode::io);
  EXPECT_NE(refusal().message.find("written to by others"), std::string::npos) << refusal().message;
  for (const char* none : {"sqlite:", "sqlite:/", "sqlite:/tmp/"}) EXPECT_FALSE(open_engine(none)) << none;
  fs::remove(folder_.path / "data");
  fs::create_symlink("/dev/null", folder_.path / "link.db");
  EXPECT_FALSE(open_sqlite_engine((folder_.path / "link.db").native()));
  EXPECT_FALSE(open_sqlite_engine((folder_.path / "no" / "such" / "store.db").native()));
}

TEST_F(SqliteEngine, UnknownKindsNameTheKnownOnes) {
  const auto engine = open_engine("postgres:x");
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(engine.error().advice.find("sqlite:PATH"), std::string::npos);
}

// A small file system if this process may mount one, otherwise a limit on the size of files.
bool limit_the_disk(const std::string& folder) {
  if (::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
      ::mount("none", folder.c_str(), "tmpfs", 0, "size=512k,mode=0700") == 0)
    return true;
  const rlimit size{400'000, 400'000};
  return ::signal(SIGXFSZ, SIG_IGN) != SIG_ERR && ::setrlimit(RLIMIT_FSIZE, &size) == 0;
}

TEST_F(SqliteEngine, AFullDiskIsOneClearErrorAndNothingHalfDone) {
  // Exit codes name the step that went wrong.
  EXPECT_EQ(in_child([&] {
              if (!limit_the_disk((folder_.path / "data").native())) return 10;
              const auto engine = open_sqlite_engine(path());
              if (!engine) return 11;
              std::size_t kept = 0;
              for (;; ++kept) {
                if (kept > 100) return 12;
                const std::string number = std::to_string(kept);
                const auto done =
                    (*engine)->commit({{}, {{"a" + number, std::string(20'000, 'v')}, {"b" + number, "x"}}});
                if (done) continue;
                if (done.error().code != ErrorCode::io) return 13;
                if (done.error().message.find("no room") == std::string::npos) {
                  std::fprintf(stderr, "%s\n", done.error().to_text().c_str());
                  return 14;
                }
                break;
              }
              // It is still readable, and whole.
              const auto listing = (*engine)->list("");
              if (!listing || listing->entries.size() != 2 * kept || listing->change_number != kept) return 15;
              // The engine continues when there is room: with a limit on file sizes by reusing the log, on a disk after
              // a removal.
              for (std::size_t i = 0; i < kept; ++i) {
                const auto removed = (*engine)->commit({{}, {{"a" + std::to_string(i), std::nullopt}}});
                if (!removed && removed.error().code != ErrorCode::io) return 16;
              }
              const auto again = open_sqlite_engine(path());
              return again && (*again)->list("b").value().entries.size() == kept ? 0 : 17;
            }),
            0);
}

// The writer reports acknowledged commits through a pipe and is killed at any moment.
TEST_F(SqliteEngine, NothingAcknowledgedIsLostWhenItsProcessIsKilled) {
  std::uint64_t written = 0;
  for (int round = 0; round < 40; ++round) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto engine = open_sqlite_engine(path());
      if (!engine) ::_exit(1);
      for (std::uint64_t number = written + 1;; ++number) {
        const std::string text = std::to_string(number);
        const auto done =
            (*engine)->commit({{}, {{"last", text}, {"copy", text}, {"n/" + text, std::string(3000, 'x')}}});
        if (!done || !*done) ::_exit(2);
        if (::write(pipe[1], &number, sizeof number) != sizeof number) ::_exit(3);
      }
    }
    ::close(pipe[1]);
    std::uint64_t acknowledged = 0;
    // Each round waits for another number of commits, so that the kill comes at another moment.
    for (int i = 0; i <= round % 7; ++i) ASSERT_EQ(::read(pipe[0], &acknowledged, sizeof acknowledged), 8);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    while (::read(pipe[0], &acknowledged, sizeof acknowledged) == 8) {
    }
    ::close(pipe[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended by itself with " << status;

    const auto engine = open_sqlite_engine(path());
    ASSERT_TRUE(engine) << engine.error().to_text();
    const Listing last = (*engine)->list("last").value();
    const Listing copy = (*engine)->list("copy").value();
    ASSERT_EQ(last.entries.size(), 1U);
    written = std::stoull(last.entries[0].value);
    EXPECT_GE(written, acknowledged) << "round " << round;
    EXPECT_LE(written, acknowledged + 1);
    EXPECT_EQ(copy.entries.at(0).value, last.entries[0].value) << "only half of a transaction is there";
    EXPECT_EQ((*engine)->list("n/").value().entries.size(), written);
  }
}

TEST_F(SqliteEngine, TwoProcessesNeverOverwriteEachOther) {
  ASSERT_TRUE(opened()->commit({{}, {{"sum", "0"}}}));
  constexpr int additions = 50;
  const auto add = [&] {
    const auto engine = open_sqlite_engine(path());
    for (int done = 0; done < additions;) {
      const Entry seen = (*engine)->list("sum").value().entries.at(0);
      const auto committed =
          (*engine)->commit({{{"sum", seen.version}}, {{"sum", std::to_string(std::stoi(seen.value) + 1)}}});
      if (!committed) return 1;
      done += committed->has_value();
    }
    return 0;
  };
  const pid_t other = ::fork();
  if (other == 0) ::_exit(add());
  EXPECT_EQ(in_child(add), 0);
  int status = 0;
  ::waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(opened()->list("sum").value().entries.at(0).value, std::to_string(2 * additions));
}

TEST_F(SqliteEngine, ASecondProcessIsToldWhoLeads) {
  const auto engine = opened();
  ASSERT_TRUE(engine->hold("server-1", 1ms));
  EXPECT_EQ(in_child([&] {
              const auto second = open_sqlite_engine(path());
              const Result<void> held = (*second)->hold("server-2", 1ms);
              return !held && held.error().message.find("server-1 (process " + std::to_string(::getppid())) == 0 ? 0
                                                                                                                 : 1;
            }),
            0);
  engine->release("server-1");
  EXPECT_EQ(in_child([&] { return open_sqlite_engine(path()).value()->hold("server-2", 1ms) ? 0 : 1; }), 0);
  EXPECT_TRUE(engine->hold("server-1", 1ms)) << "a process that ended holds nothing";
}

TEST_F(SqliteEngine, AChildThatOutlivesItsServerDoesNotLead) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  pid_t grandchild = 0;
  EXPECT_EQ(in_child([&] {
              const auto engine = open_sqlite_engine(path());
              if (!(*engine)->hold("server-1", 1h)) return 1;
              const pid_t forked = ::fork();
              if (forked == 0) {
                ::pause();
                ::_exit(0);
              }
              return ::write(pipe[1], &forked, sizeof forked) == sizeof forked ? 0 : 2;
            }),
            0);
  ASSERT_EQ(::read(pipe[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  EXPECT_TRUE(opened()->hold("server-2", 1h));
  ::kill(grandchild, SIGKILL);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

}  // namespace
}  // namespace berth::store
#else
TEST(SqliteEngine, NeedsSqlite) { GTEST_SKIP() << "SQLite is not installed"; }
#endif
