// Ledger: who holds what on this machine, shared by every process that uses
// Berth. One file of shared memory, no daemon: two programs that start in the
// same instant see each other's promises. Every entry belongs to a process (pid
// and start time) and returns when that process is gone; a reservation nobody
// takes up expires; memory that is in use is never taken away by time.
//
// An entry counts from one store on and until one store, so a process killed at
// any instruction leaves either the whole of it or nothing. Whoever promises
// announces first and looks at the sum afterwards, so two can refuse each other
// for a moment, but never promise the same bytes.
//
// The file is never trusted: what does not look like a ledger of this version is
// refused at open, and every number read later is checked before it is used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "berth/device_view.hpp"
#include "berth/result.hpp"

namespace berth {

// A process, told apart from a later one with the same number.
struct Holder {
  std::uint32_t pid = 0;
  std::uint64_t start_time = 0;     // ticks since the machine started
  std::uint64_t pid_namespace = 0;  // what `pid` means
  friend bool operator==(const Holder&, const Holder&) = default;
};
Holder this_process();
// Absent: there is no such process (a zombie is none).
std::optional<Holder> find_process(std::uint32_t pid);
// Proven dead. A process of another PID namespace cannot be judged: false.
bool is_gone(const Holder& holder);

enum class EntryState : std::uint8_t {
  reserved = 1,  // promised, not yet taken up; expires
  taken = 2,     // held by a command
  pool = 3,      // the promises of a Pool inside a program, all requests together
  waiting = 4,   // holds nothing, stands in line
};
std::string_view to_string(EntryState state) noexcept;

struct Claim {
  DeviceId device;
  std::string memory_domain;  // whose memory the bytes are of
  std::uint64_t memory_bytes = 0;
  friend bool operator==(const Claim&, const Claim&) = default;
};

struct LedgerEntry {
  std::uint64_t id = 0;  // never used twice in one ledger
  EntryState state = EntryState::reserved;
  Holder holder;
  std::uint32_t user = 0;
  std::string name;  // of the program, without its arguments
  Priority priority = Priority::normal;
  bool exclusive = false;
  TimePoint since{};
  std::optional<TimePoint> expires;  // of a reservation
  // Loads on its devices wait until then, or until it ends.
  std::optional<TimePoint> loads_until;
  // While waiting: the state of the ledger it last tried on, and when.
  std::uint64_t tried = 0;
  TimePoint tried_at{};
  std::vector<Claim> claims;  // while waiting: what it could use
};

// One consistent copy of the ledger. Plain data; everything below is pure.
struct Book {
  std::vector<LedgerEntry> entries;    // by id
  std::map<DeviceId, Intent> intents;  // other than in service
  std::uint64_t changes = 0;           // grows with every change of what is held
  std::uint64_t ended = 0;             // grows whenever somebody gives back
  std::uint64_t next_id = 0;           // of the next entry

  const LedgerEntry* find(std::uint64_t id) const noexcept;
  // Bytes promised in a memory domain.
  std::uint64_t promised(const std::string& memory_domain) const noexcept;
  // Entries that hold the device, and whether one holds it alone.
  std::uint32_t holders(const DeviceId& device) const noexcept;
  bool held_exclusively(const DeviceId& device) const noexcept;
  bool is_loading(const DeviceId& device, TimePoint now) const noexcept;
  Intent intent(const DeviceId& device) const noexcept;

  // Standing in line. Is there somebody ahead of `me` (0: not in line, behind all)
  // who has not tried on the present state, or not since `my_last` try? One who
  // has not tried for `silence` is stopped or stuck, and waited for by nobody.
  bool others_first(std::uint64_t me, Priority priority, TimePoint my_last, TimePoint now,
                    Duration silence) const noexcept;
  // Devices that somebody ahead has waited for longer than `patience`: kept
  // free, so that small requests cannot starve a large one for ever.
  std::vector<DeviceId> kept_for_others(std::uint64_t me, Priority priority, TimePoint now, Duration patience) const;
};

struct LedgerOptions {
  std::filesystem::path folder;  // empty: runtime_folder()
  Clock* clock = nullptr;        // null: the real clock, which all processes share
};

class Ledger {
 public:
  // Creates the file where there is none. What is there and is no ledger of this
  // version, belongs to somebody else or was cut short is refused, never mended.
  static Result<std::shared_ptr<Ledger>> open(const LedgerOptions& options = {});
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  Clock& clock() const noexcept { return *clock_; }

  // What a new entry says. `limit` is for each claim the sum of promises its
  // memory domain can bear: bytes free plus promised bytes already in use.
  struct Request {
    EntryState state = EntryState::reserved;
    Holder holder;
    std::string name;
    Priority priority = Priority::normal;
    bool exclusive = false;
    std::optional<TimePoint> expires;
    std::optional<TimePoint> loads_until;
    std::vector<Claim> claims;
    std::vector<std::uint64_t> limits;  // one per claim; empty: not judged
  };

  // The lock of the machine. The kernel gives it back when its holder dies.
  class Lock {
   public:
    Lock(Lock&& other) noexcept : ledger_(other.ledger_) { other.ledger_ = nullptr; }
    Lock& operator=(Lock&&) = delete;
    ~Lock();

    // Gives back what the dead held and what expired, then copies.
    Book book();
    // All claims or none. unavailable: another process promised the bytes in the
    // same instant. queue_full: the ledger has no room for another entry.
    Result<std::uint64_t> add(const Request& request);
    // A reservation is taken up by the process that uses it.
    Result<void> take(std::uint64_t id, const Holder& holder);
    Result<void> release(std::uint64_t id);
    // It stood in line and got nothing from the present state.
    Result<void> note_tried(std::uint64_t id);
    Result<void> set_intent(const DeviceId& device, Intent intent);

   private:
    friend class Ledger;
    explicit Lock(Ledger& ledger) : ledger_(&ledger) {}
    Ledger* ledger_;
  };
  // timeout: somebody holds it and does not let go (a stopped process).
  Result<Lock> lock(Duration patience = std::chrono::seconds(5));

  // Sleeps until something in the ledger changes, or until `until`.
  void wait_for_change(std::uint64_t seen, TimePoint until);
  std::uint64_t changes() const noexcept;
  std::uint64_t ended() const noexcept;  // see Book

  // The promises of a Pool: an entry whose bytes change without the lock
  // (pool/ledger_row.hpp). With no claim yet.
  class Row;
  static Result<std::unique_ptr<Row>> open_row(const std::shared_ptr<Ledger>& ledger, std::string name);

 private:
  struct Mapping;
  Ledger(std::filesystem::path path, Clock& clock, std::unique_ptr<Mapping> mapping);
  void unlock() noexcept;

  const std::filesystem::path path_;
  Clock* const clock_;
  std::mutex mutex_;  // the lock of this process, taken before the file's
  const std::unique_ptr<Mapping> mapping_;
};

}  // namespace berth
