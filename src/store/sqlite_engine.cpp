#include "store/sqlite_engine.hpp"

#ifndef BERTH_HAS_SQLITE

namespace berth::store {
Result<std::shared_ptr<Engine>> open_sqlite_engine(const std::string&) {
  return Error{ErrorCode::not_supported, "this berth was built without SQLite",
               "use --store memory, which is lost when the server stops, or install libsqlite3-dev and build again"};
}
}  // namespace berth::store

#else

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "world/descriptor.hpp"
#include "world/files.hpp"
#include "world/process_lock.hpp"
#include "world/runtime_folder.hpp"

namespace berth::store {
namespace {

constexpr int application = 0x42727468;  // "Brth", at a fixed offset, so that other programs' files are recognised
constexpr int layout = 1;                // of the tables below
// Another process may lock the file during a commit or a backup.
constexpr int busy_timeout_ms = 5000;

// Tables of the file. The single row of `revision` has the change number, which is thus part of each transaction.
constexpr const char* tables = R"(
  CREATE TABLE entries(key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL, version INTEGER NOT NULL);
  CREATE TABLE revision(one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL);
  INSERT INTO revision VALUES (1, 0);
)";

// A prepared statement; Row::next() steps it, and leaving the scope of the Row resets it.
class Statement {
 public:
  class Row {
   public:
    explicit Row(sqlite3_stmt* statement) : statement_(statement) {}
    Row(const Row&) = delete;
    Row& operator=(const Row&) = delete;
    ~Row() {
      sqlite3_reset(statement_);
      sqlite3_clear_bindings(statement_);
    }
    Row& bind(int at, std::string_view text) {
      sqlite3_bind_text64(statement_, at, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
      return *this;
    }
    Row& bind(int at, std::uint64_t number) {
      sqlite3_bind_int64(statement_, at, static_cast<sqlite3_int64>(number));
      return *this;
    }
    int next() {
      errno = 0;  // SQLite does not keep the reason for a failed write in a commit, but errno does
      return sqlite3_step(statement_);
    }
    std::string text(int column) const {
      const void* const data = sqlite3_column_blob(statement_, column);
      const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
      return size == 0 ? std::string() : std::string(static_cast<const char*>(data), size);
    }
    std::uint64_t number(int column) const {
      return static_cast<std::uint64_t>(sqlite3_column_int64(statement_, column));
    }

   private:
    sqlite3_stmt* statement_;
  };

  Statement() = default;
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement() { sqlite3_finalize(statement_); }
  int prepare(sqlite3* database, const char* sql) {
    return sqlite3_prepare_v3(database, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement_, nullptr);
  }
  Row row() { return Row(statement_); }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

class SqliteEngine final : public Engine {
 public:
  explicit SqliteEngine(std::string path) : path_(std::move(path)) {}
  ~SqliteEngine() override {
    // Statements are finalized by their destructors, after this: close_v2 waits for them.
    sqlite3_close_v2(database_);
  }

  Result<void> open() {
    BERTH_TRY(make_file());
    if (const int code =
            sqlite3_open_v2(path_.c_str(), &database_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
        code != SQLITE_OK)
      return failed(code);
    sqlite3_extended_result_codes(database_, 1);
    sqlite3_busy_timeout(database_, busy_timeout_ms);
    BERTH_TRY(check_layout());
    BERTH_TRY(run("PRAGMA journal_mode = WAL"));
    BERTH_TRY(run("PRAGMA synchronous = FULL"));
    const std::string journal = BERTH_TRY(answer("PRAGMA journal_mode"));
    const std::string synchronous = BERTH_TRY(answer("PRAGMA synchronous"));
    if (journal != "wal" || synchronous != "2") {
      return Error{ErrorCode::io, "the file system of the store " + path_ + " does not allow a write-ahead log",
                   "put the store on a local disk"};
    }
    // The store has only a few megabytes, and damage should be found before a server begins to act on it.
    const std::string found = BERTH_TRY(answer("PRAGMA quick_check(1)"));
    if (found != "ok") return damaged(found.substr(found.rfind('\n') + 1));  // its first line is a heading
    for (const auto& [statement, sql] :
         {std::pair(&begin_, "BEGIN IMMEDIATE"),
          {&begin_reading_, "BEGIN"},
          {&end_, "COMMIT"},
          {&find_, "SELECT version FROM entries WHERE key = ?1"},
          {&list_, "SELECT key, value, version FROM entries WHERE key >= ?1 ORDER BY key"},
          {&put_, "INSERT OR REPLACE INTO entries VALUES (?1, ?2, ?3)"},
          {&remove_, "DELETE FROM entries WHERE key = ?1"},
          {&change_number_, "SELECT number FROM revision"},
          {&set_change_number_, "UPDATE revision SET number = ?1"}}) {
      if (const int code = statement->prepare(database_, sql); code != SQLITE_OK) return failed(code);
    }
    return check_nothing_lost();
  }

  std::string name() const override { return "sqlite:" + path_; }

  Result<Listing> list(std::string_view prefix, std::string_view after, std::size_t limit) override {
    const std::lock_guard lock(mutex_);
    BERTH_TRY(step(begin_reading_));
    Result<Listing> listing = list_within(prefix, after, limit);
    leave_transaction();
    return listing;
  }

  Result<std::optional<std::uint64_t>> commit(const Transaction& transaction) override {
    BERTH_TRY(check_bounds(transaction));
    const std::lock_guard lock(mutex_);
    BERTH_TRY(step(begin_));
    Result<std::optional<std::uint64_t>> change_number = commit_within(transaction);
    leave_transaction();
    if (change_number && *change_number && **change_number > known_change_number_) {
      known_change_number_ = **change_number;
      note_change(known_change_number_);
      changed_.notify_all();
    }
    return change_number;
  }

  void wait_for_change(std::uint64_t change_number, Duration timeout) override {
    const Deadline deadline = Deadline::after(real_clock(), timeout);
    std::unique_lock lock(mutex_);
    while (known_change_number_ <= change_number && real_clock().wait_until(changed_, lock, deadline.at)) {
    }
  }

  Result<void> hold(const std::string& owner, Duration) override {
    const std::lock_guard lock(mutex_);
    if (lock_) return owner_ == owner ? Result<void>() : Result<void>(led_by(owner_));
    std::string other;
    Result<std::optional<world::ProcessLock>> taken = world::ProcessLock::take(path_ + ".leader", owner, other);
    if (!taken) return std::move(taken).error();
    if (!*taken) return led_by(other);
    lock_ = std::move(*taken);
    owner_ = owner;
    return {};
  }

  void release(const std::string& owner) override {
    const std::lock_guard lock(mutex_);
    if (owner_ != owner) return;
    lock_.reset();
    owner_.clear();
  }

 private:
  Error led_by(const std::string& other) const {
    return {ErrorCode::unavailable, other + " uses the store " + path_, "stop it first, or name another --store"};
  }

  Error damaged(const std::string& how) const {
    return {ErrorCode::io, "the store " + path_ + " is damaged (" + how + ")",
            "move the file away and restore the last backup into a new one"};
  }

  // SQLite's last error, as an Error with advice.
  Error failed(int code) const {
    const std::string text = database_ != nullptr ? sqlite3_errmsg(database_) : sqlite3_errstr(code);
    const int kind = code & 0xff;
    int system_error = database_ != nullptr ? sqlite3_system_errno(database_) : 0;
    if (system_error == 0 && kind == SQLITE_IOERR) system_error = errno;
    if (kind == SQLITE_FULL ||
        (kind == SQLITE_IOERR && (system_error == ENOSPC || system_error == EDQUOT || system_error == EFBIG))) {
      return {ErrorCode::io, "there is no room for the store " + path_ + "; nothing was changed",
              "free some space on its disk; a running server then continues automatically"};
    }
    if (kind == SQLITE_NOTADB) {
      return {ErrorCode::io, path_ + " is not a Berth store, or is damaged",
              "give another path, or move the file away and restore the last backup into a new one"};
    }
    if (kind == SQLITE_CORRUPT) return damaged(text);
    if (kind == SQLITE_BUSY || kind == SQLITE_LOCKED) {
      return {ErrorCode::timeout,
              "another process kept the store " + path_ + " busy for " + std::to_string(busy_timeout_ms / 1000) + " s",
              "end the other process that has it open, and try again"};
    }
    return {ErrorCode::io,
            "cannot use the store " + path_ + ": " + text +
                (system_error != 0 ? std::string(" (") + std::strerror(system_error) + ")" : ""),
            "check the file, its folder and their permissions"};
  }

  // Opens the file, or creates it if there is none. A file that is not a store is left as it is: nothing is
  // changed before the file is known to be a store.
  Result<void> make_file() const {
    if (path_.empty() || path_.back() == '/' || path_.find('\0') != std::string::npos) {
      return Error{ErrorCode::invalid_argument, "the store sqlite:" + path_ + " names no file",
                   "write it as sqlite:/var/lib/berth/store.db"};
    }
    const std::size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path_.substr(0, slash);
    if (::access(folder.c_str(), F_OK) != 0) {
      return Error{ErrorCode::invalid_argument,
                   "the store " + path_ + " cannot be created: there is no folder " + folder,
                   "correct the path, or create the folder: mkdir -m 700 " + folder};
    }
    if (Result<std::string> own = world::private_folder(folder, world::IfMissing::accept); !own) {
      Error error = std::move(own).error();
      error.message = "the store " + path_ + " cannot be used: " + error.message;
      error.advice = "give the path of a file in a folder that only this user can write to";
      return error;
    }
    world::Descriptor file(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!file && errno == ENOENT) {
      BERTH_TRY(create_database(folder));
      file = world::Descriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    }
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) {
      return Error{ErrorCode::io, "cannot open the store " + path_ + ": " + std::strerror(errno),
                   "check the file, its folder and their permissions"};
    }
    if (!S_ISREG(status.st_mode))
      return Error{ErrorCode::io, "the store " + path_ + " is not a file", "give the path of a file"};
    if (status.st_uid != ::geteuid())
      return Error{ErrorCode::io, "the store " + path_ + " belongs to another user",
                   "give another path, or take ownership of the file if you know what is in it"};
    BERTH_TRY(check_header(file.get()));
    if ((status.st_mode & 0022) != 0)
      return Error{ErrorCode::io, "other users may have changed the store " + path_ + ": they can write to it",
                   "restore a backup, or run chmod 600 on the file if you know what is in it"};
    if ((status.st_mode & 0077) != 0) ::fchmod(file.get(), 0600);
    return {};
  }

  // The first 100 bytes of a database (https://www.sqlite.org/fileformat.html).
  Result<void> check_header(int file) const {
    unsigned char header[100] = {};
    const ssize_t size = ::pread(file, header, sizeof header, 0);
    if (size == 0)
      return Error{ErrorCode::io, path_ + " is empty: it is not a Berth store, or it has lost its contents",
                   "restore the last backup into a new store, or remove the file to begin with an empty one"};
    if (size != sizeof header || std::memcmp(header, "SQLite format 3", 16) != 0) return failed(SQLITE_NOTADB);
    const std::uint32_t program = std::uint32_t{header[68]} << 24 | std::uint32_t{header[69]} << 16 |
                                  std::uint32_t{header[70]} << 8 | std::uint32_t{header[71]};
    if (program != application) return Error{ErrorCode::io, path_ + " belongs to another program", "give another path"};
    return {};
  }

  // Writes the file completely under another name first, so that the file is always a valid store. If another
  // process does the same at this moment, both files are valid.
  Result<void> create_database(const std::string& folder) const {
    if (::access(changes_path().c_str(), F_OK) == 0) {
      return Error{ErrorCode::io, "the store " + path_ + " is gone, and " + changes_path() + " shows that it existed",
                   "restore the last backup into another path, or remove that file to begin with an empty store"};
    }
    std::string name = path_ + ".new.XXXXXX";
    const world::Descriptor made(
        ::mkostemp(name.data(), O_CLOEXEC));  // with mode 0600; the log gets the mode of the file
    if (!made)
      return Error{ErrorCode::io, "cannot make the store " + path_ + ": " + std::strerror(errno),
                   "check its folder and the permissions"};
    sqlite3* database = nullptr;
    int code = sqlite3_open_v2(name.c_str(), &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    const std::string sql = "BEGIN;" + std::string(tables) + "PRAGMA application_id = " + std::to_string(application) +
                            "; PRAGMA user_version = " + std::to_string(layout) + "; COMMIT;";
    if (code == SQLITE_OK) code = sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr);
    const int system_error = database != nullptr ? sqlite3_system_errno(database) : 0;
    sqlite3_close_v2(database);
    if (code == SQLITE_OK && ::link(name.c_str(), path_.c_str()) != 0 && errno != EEXIST)
      code = ::rename(name.c_str(), path_.c_str()) == 0 ? SQLITE_OK : SQLITE_CANTOPEN;  // no hard links there
    ::unlink(name.c_str());
    if (code != SQLITE_OK) {
      errno = system_error;
      return failed(code);
    }
    // The new directory entry must survive a power cut, too.
    const world::Descriptor parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (parent) ::fsync(parent.get());
    return {};
  }

  Result<void> check_layout() {
    if (BERTH_TRY(answer("PRAGMA user_version")) == std::to_string(layout)) return {};
    return Error{ErrorCode::not_supported, "the store " + path_ + " was written by a newer version of Berth",
                 "use that version, or restore a backup that this one has made"};
  }

  // The number of the last change is also in a separate file, written after each commit. If that number is higher, the
  // store has lost changes that were acknowledged: SQLite silently ignores a missing log, and what follows damage in
  // the middle of a log.
  std::string changes_path() const { return path_ + ".changes"; }
  Result<void> check_nothing_lost() {
    const Result<std::string> text =
        world::read_plain_text(changes_path(), 64);  // before the number in the store is read
    std::uint64_t noted = 0;
    if (!text || std::from_chars(text->data(), text->data() + text->size(), noted).ec != std::errc()) return {};
    BERTH_TRY(step(begin_reading_));
    const Result<std::uint64_t> number = present_change_number();
    leave_transaction();
    if (!number) return number.error();
    if (*number >= noted) return {};
    return Error{ErrorCode::io,
                 "the store " + path_ + " has lost changes: it is at change " + std::to_string(*number) + " of " +
                     std::to_string(noted) + "; its log " + path_ +
                     "-wal is missing or damaged, or the file was replaced by an older one",
                 "restore the last backup into a new store, or remove " + changes_path() +
                     " to continue with its current contents"};
  }
  void note_change(std::uint64_t number) {
    if (!changes_)
      changes_ = world::Descriptor(::open(changes_path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    char text[22];
    const int size = std::snprintf(text, sizeof text, "%020" PRIu64 "\n", number);
    // If this write fails, the number is lower than the store's, which is harmless.
    if (changes_) static_cast<void>(::pwrite(changes_.get(), text, static_cast<std::size_t>(size), 0) < 0);
  }

  Result<Listing> list_within(std::string_view prefix, std::string_view after, std::size_t limit) {
    Listing listing{{}, BERTH_TRY(present_change_number())};
    // The smallest text after `after` is `after` with a zero byte.
    const std::string first = after < prefix ? std::string(prefix) : std::string(after) + '\0';
    Statement::Row row = list_.row();
    row.bind(1, first);
    while (listing.entries.size() < limit) {
      const int code = row.next();
      if (code == SQLITE_DONE) break;
      if (code != SQLITE_ROW) return failed(code);
      Entry entry{row.text(0), {}, row.number(2)};
      if (!entry.key.starts_with(prefix)) break;
      entry.value = row.text(1);
      listing.entries.push_back(std::move(entry));
    }
    return listing;
  }

  Result<std::optional<std::uint64_t>> commit_within(const Transaction& transaction) {
    for (const Condition& condition : transaction.conditions) {
      Statement::Row row = find_.row();
      const int code = row.bind(1, condition.key).next();
      if (code != SQLITE_ROW && code != SQLITE_DONE) return failed(code);
      if ((code == SQLITE_ROW ? row.number(0) : 0) != condition.version) return std::optional<std::uint64_t>();
    }
    const std::uint64_t before = BERTH_TRY(present_change_number());
    bool is_changed = false;
    for (const Write& write : transaction.writes) {
      Statement::Row row = write.value ? put_.row() : remove_.row();
      row.bind(1, write.key);
      if (write.value) row.bind(2, *write.value).bind(3, before + 1);
      if (const int code = row.next(); code != SQLITE_DONE) return failed(code);
      if (write.value || sqlite3_changes(database_) > 0) is_changed = true;
    }
    if (!is_changed) return std::optional(before);
    {
      Statement::Row row = set_change_number_.row();
      if (const int code = row.bind(1, before + 1).next(); code != SQLITE_DONE) return failed(code);
    }
    BERTH_TRY(step(end_));
    return std::optional(before + 1);
  }

  Result<std::uint64_t> present_change_number() {
    Statement::Row row = change_number_.row();
    if (const int code = row.next(); code != SQLITE_ROW)
      return code == SQLITE_DONE ? damaged("no revision") : failed(code);
    return row.number(0);
  }

  // Ends the transaction in any state, so that none stays open after an error.
  void leave_transaction() {
    if (sqlite3_get_autocommit(database_) == 0) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  }

  Result<void> step(Statement& statement) {
    Statement::Row row = statement.row();
    if (const int code = row.next(); code != SQLITE_DONE) return failed(code);
    return {};
  }
  Result<void> run(const std::string& sql) {
    if (const int code = sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr); code != SQLITE_OK)
      return failed(code);
    return {};
  }
  // The first column of the first row.
  Result<std::string> answer(const char* sql) {
    Statement statement;
    if (const int code = statement.prepare(database_, sql); code != SQLITE_OK) return failed(code);
    Statement::Row row = statement.row();
    if (const int code = row.next(); code != SQLITE_ROW) return failed(code);
    return row.text(0);
  }

  const std::string path_;
  std::mutex mutex_;  // guards all below: one connection, one user at a time
  sqlite3* database_ = nullptr;
  Statement begin_, begin_reading_, end_, find_, list_, put_, remove_, change_number_, set_change_number_;
  std::condition_variable changed_;
  std::uint64_t known_change_number_ = 0;
  world::Descriptor changes_;  // opened with the first change
  std::optional<world::ProcessLock> lock_;
  std::string owner_;
};

}  // namespace

Result<std::shared_ptr<Engine>> open_sqlite_engine(const std::string& path) {
  auto engine = std::make_shared<SqliteEngine>(path);
  BERTH_TRY(engine->open());
  return std::shared_ptr<Engine>(std::move(engine));
}

}  // namespace berth::store

#endif
