// Ledger: what every program of this machine was promised, for all of its users.
// There is no daemon. Each user has one small file per folder that only this user
// writes; every program reads all files under one lock. A lease counts while a
// process that belongs to it lives: the kernel's lock on the lease's byte says
// so, and where that is gone the process itself, its environment or its cgroup.
//
// A change is one write of a header, so a process killed at any instruction leaves
// all of it or nothing. Foreign files are only read, with pread, and never trusted:
// what is damaged counts as empty and is reported.
//
// The format is described in docs/decisions/0007-one-file-per-user.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "berth/device_view.hpp"
#include "berth/result.hpp"

namespace berth {

// A process, told apart from a later one with the same number.
struct ProcessIdentity {
  std::uint32_t pid = 0;
  std::uint64_t start_time = 0;     // ticks since the machine started; 0: unknown
  std::uint64_t pid_namespace = 0;  // what `pid` means; 0: unknown
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
ProcessIdentity this_process();
// Absent: there is no such process, or it is hidden. A zombie is none.
std::optional<ProcessIdentity> find_process(std::uint32_t pid);

enum class EntryKind : std::uint8_t {
  command,  // held by a command and the processes it started
  pool,     // what a Pool inside a program may promise to its own work
  waiting,  // holds nothing, stands in line
};
std::string_view to_string(EntryKind kind) noexcept;

// How the ledger knows that an entry is alive.
enum class Liveness : std::uint8_t {
  none,         // nothing says so: it has ended, unless a process on its device belongs to it
  descriptor,   // a process has the locked descriptor
  cgroup,       // the cgroup of its scope has processes
  holder,       // the process that took it lives
  environment,  // a process carries it in BERTH_LEASE
  device,       // a process that belongs to it holds memory of its device
};
std::string_view to_string(Liveness liveness) noexcept;

// Names one lease of this machine: BERTH_LEASE in the environment of a command.
// Its text lacks the user: in a user namespace the same user has another number.
struct LeaseReference {
  std::uint64_t file = 0;  // the random number of the file it stands in
  std::uint64_t id = 0;
  std::uint32_t user = 0;  // owner of that file: others can write the same number into theirs
  friend bool operator==(const LeaseReference&, const LeaseReference&) = default;
};
std::string to_string(const LeaseReference& lease);
std::optional<LeaseReference> parse_lease(std::string_view text);

struct Claim {
  DeviceId device;
  std::string memory_domain;  // whose memory the bytes are of
  std::uint64_t memory_bytes = 0;
  // Of a pool: bytes its process uses there that no lease of the pool covers.
  std::uint64_t memory_bytes_outside = 0;
  bool exclusive = false;
  friend bool operator==(const Claim&, const Claim&) = default;
};

struct LedgerEntry {
  LeaseReference reference;
  std::uint32_t user = 0;  // owner of the file
  EntryKind kind = EntryKind::command;
  ProcessIdentity holder;
  std::string name;  // of the program, without its arguments; not to be printed raw
  Priority priority = Priority::normal;
  TimePoint since{};
  // Loads on its devices wait until then, or until it ends.
  std::optional<TimePoint> loads_until;
  // The lease it draws on: it was started inside it.
  std::optional<LeaseReference> within;
  std::string cgroup;         // of its scope; empty: none
  std::vector<Claim> claims;  // while waiting: what it could use, with the bytes it needs there

  // While waiting: how many devices it wants, and when it was last heard of.
  std::size_t count = 1;
  TimePoint last_heartbeat{};

  Liveness alive_by = Liveness::none;
  // Alive by its environment or a device: the processes that keep it.
  std::vector<std::uint32_t> kept_by;

  std::uint64_t id() const noexcept { return reference.id; }
  const Claim* claim_on(const DeviceId& device) const noexcept;
  bool is_exclusive() const noexcept;
};

// What an operator wants of a device.
struct DeviceIntent {
  DeviceId device;
  Intent intent = Intent::cordoned;
  std::uint32_t user = 0;
  TimePoint since{};
};

// One consistent copy of all files. Plain data; the functions are pure.
struct LedgerSnapshot {
  std::vector<LedgerEntry> entries;  // alive, in order of arrival
  std::vector<LedgerEntry> ended;    // no sign of life; a process on one of its devices may keep it
  std::vector<DeviceIntent> intents;
  std::map<std::uint32_t, TimePoint> last_grants;  // by user: when its last lease began
  std::uint64_t changes = 0;                       // differs after every write of any file

  const LedgerEntry* find(const LeaseReference& lease) const noexcept;
  // The lease that `entry` draws on; null: none, or one it may not draw on.
  const LedgerEntry* outer_of(const LedgerEntry& entry) const noexcept;
  // The outermost lease that `entry` draws on; itself where it draws on none.
  const LedgerEntry& outermost(const LedgerEntry& entry) const noexcept;
  // Commands and pools that hold the device, those that draw on another's lease
  // not counted again; `except` and what draws on it are left out.
  std::uint32_t holders(const DeviceId& device, std::optional<LeaseReference> except = {}) const noexcept;
  bool held_exclusively(const DeviceId& device, std::optional<LeaseReference> except = {}) const noexcept;
  bool is_loading(const DeviceId& device, TimePoint now) const noexcept;
  // The strictest of all authors; null: in service.
  const DeviceIntent* intent(const DeviceId& device) const noexcept;
  bool has_waiting() const noexcept;
};

// A lease of this process: an open descriptor with the kernel's lock on it. The
// lease counts until every copy of the descriptor, here and in the processes that
// inherited it, is closed. After a fork both processes have it.
class LedgerLease {
 public:
  LedgerLease() = default;
  LedgerLease(LeaseReference reference, int descriptor, std::size_t heartbeat_slot) noexcept
      : reference_(reference), descriptor_(descriptor), heartbeat_slot_(heartbeat_slot) {}
  LedgerLease(LedgerLease&& other) noexcept { *this = std::move(other); }
  LedgerLease& operator=(LedgerLease&& other) noexcept;
  ~LedgerLease();
  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  const LeaseReference& reference() const noexcept { return reference_; }
  int descriptor() const noexcept { return descriptor_; }

 private:
  friend class Ledger;
  LeaseReference reference_;
  int descriptor_ = -1;
  std::size_t heartbeat_slot_ = 0;  // while waiting: where it says that it is still there
};

struct LedgerOptions {
  std::filesystem::path folder;  // empty: BERTH_RUNTIME_DIR, else all folders for everybody
  Clock* clock = nullptr;        // null: the real clock, which all processes share
  // Instead of the machine's folders for everybody, where no folder is given.
  std::vector<std::string> candidates = {};
};

// What doctor tells about one folder.
struct LedgerFolder {
  struct File {
    std::string path;
    std::uint32_t user = 0;
    std::size_t entries = 0;
    std::string problem;  // empty: none
  };
  std::string path;
  std::string problem;   // why it is not used; empty: it is
  bool written = false;  // this process writes its leases there
  std::vector<File> files;
};

class Ledger {
 public:
  // Creates nothing yet. io: no folder can be used.
  static Result<std::shared_ptr<Ledger>> open(const LedgerOptions& options = {});
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  Clock& clock() const noexcept;
  // Where this process writes, or would.
  std::string folder() const;
  // Every candidate, with what is in it.
  std::vector<LedgerFolder> folders();

  struct Request {
    EntryKind kind = EntryKind::command;
    std::string name;
    Priority priority = Priority::normal;
    std::optional<TimePoint> loads_until;
    std::optional<LeaseReference> within;
    std::size_t count = 1;
    std::vector<Claim> claims;
  };

  // The lock of the machine; its holder reads all files and may write its own. The
  // kernel gives it back when its holder dies.
  class Lock {
   public:
    Lock(Lock&& other) noexcept : ledger_(other.ledger_) { other.ledger_ = nullptr; }
    Lock& operator=(Lock&&) = delete;
    ~Lock();

    LedgerSnapshot snapshot();
    // For this process. queue_full: this user's file has no room for another
    // entry; io: no folder can be written to.
    Result<LedgerLease> add(const Request& request);
    // not_found: it was released.
    Result<void> set_claims(const LedgerLease& lease, const std::vector<Claim>& claims);
    Result<void> set_cgroup(const LedgerLease& lease, const std::string& cgroup);
    // Removes this user's lines of entries that have ended, and of requests whose
    // process is gone.
    void forget(const std::vector<LedgerEntry>& ended);
    // A lease this process took and has done with: it ends now, unless processes it
    // started belong to it.
    void give_back(LedgerLease lease);
    // Of this user, or of anybody for root. The processes run on, without it.
    Result<void> release(const LeaseReference& lease);
    // In service: lifts what this user wanted; for root, what anybody wanted.
    // unavailable: another user wants it otherwise, and only that user or root can lift it.
    Result<void> set_intent(const DeviceId& device, Intent intent);

   private:
    friend class Ledger;
    explicit Lock(Ledger& ledger) : ledger_(&ledger) {}
    Ledger* ledger_;
  };
  // timeout names the process that holds it.
  Result<Lock> lock(Duration patience = std::chrono::seconds(5));
  Result<LedgerSnapshot> snapshot(Duration patience = std::chrono::seconds(5));

  // Without the lock: differs after every write of any file.
  std::uint64_t changes();
  // Sleeps until something is written, or until `until`. The end of a command
  // writes nothing.
  void wait_for_change(std::uint64_t seen, TimePoint until);
  // A waiting request is still there; without the lock.
  void heartbeat(const LedgerLease& lease);

  // The lease this process was started in, by BERTH_LEASE, if it is alive and this
  // user's, or for root another's, where only one user has a lease of that name.
  static std::optional<LeaseReference> current_lease(const LedgerSnapshot& snapshot);

 private:
  struct State;
  explicit Ledger(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace berth
