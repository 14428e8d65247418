// Ledger: the device memory reserved by every program of this machine, for all users.
// There is no daemon. Each user has one small file per folder that only this user
// writes; every program reads all files under one lock. A lease counts while a
// process that belongs to it is alive. The kernel's lock on the lease's byte shows
// that; without the lock, the holder process, its environment or its cgroup does.
//
// A change takes effect with one write of a header, so a process killed at any
// instruction leaves all of it or none. Files of other users are only read, with
// pread, and never trusted: a file that is damaged, or that its owner keeps from being
// read, counts as empty and is reported, and what one user can write is limited.
//
// docs/internals/decisions/0007-one-file-per-user.md describes the format.
#pragma once

#include "berth/version.hpp"

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

namespace ledger {
struct State;
}

// A process, distinguished from a later one with the same pid.
struct ProcessIdentity {
  std::uint32_t pid = 0;
  std::uint64_t start_time = 0;     // ticks since the machine started; 0: unknown
  std::uint64_t pid_namespace = 0;  // the namespace `pid` belongs to; 0: unknown
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
ProcessIdentity this_process();
// Returns nullopt if the process does not exist, is a zombie, or is hidden by /proc.
std::optional<ProcessIdentity> find_process(std::uint32_t pid);

enum class EntryKind : std::uint8_t {
  command,  // held by a command and the processes it started
  pool,     // memory that a Pool inside a program gives to its own work
  waiting,  // a request that waits in the queue and holds nothing yet
};
std::string_view to_string(EntryKind kind) noexcept;

// How the ledger knows that an entry is alive.
enum class Liveness : std::uint8_t {
  none,         // no evidence: the entry has ended, unless a process on its device belongs to it
  descriptor,   // a process has the locked descriptor open
  cgroup,       // the cgroup of its scope has processes
  holder,       // the process that took it is alive
  environment,  // a process has this lease in BERTH_LEASE
  device,       // a process that belongs to it holds memory of its device
};
std::string_view to_string(Liveness liveness) noexcept;

// Identifies one lease of this machine: BERTH_LEASE in the environment of a command. Its text omits the user, whose
// number differs inside a user namespace.
struct LeaseReference {
  std::uint64_t file = 0;  // the random number of the file that contains it
  std::uint64_t id = 0;
  std::uint32_t user = 0;  // owner of that file; other users can write the same number into theirs
  friend bool operator==(const LeaseReference&, const LeaseReference&) = default;
};
std::string to_string(const LeaseReference& lease);
std::optional<LeaseReference> parse_lease(std::string_view text);

struct Claim {
  DeviceId device;
  std::string memory_domain;  // the memory that the bytes are in
  std::uint64_t memory_bytes = 0;
  // For a pool: bytes that its process uses in this memory outside of the pool's leases.
  std::uint64_t memory_bytes_outside = 0;
  bool exclusive = false;
  friend bool operator==(const Claim&, const Claim&) = default;
};

struct LedgerEntry {
  LeaseReference reference;
  std::uint32_t user = 0;  // owner of the file
  EntryKind kind = EntryKind::command;
  ProcessIdentity holder;
  std::string name;  // of the program, without its arguments; escape it before printing
  Priority priority = Priority::normal;
  TimePoint since{};
  // Until then, or until this entry ends, requests with a load lock do not get its devices.
  std::optional<TimePoint> loads_until;
  // The lease it is nested in: it was started inside that lease and uses part of it.
  std::optional<LeaseReference> within;
  std::string cgroup;         // of its scope; empty: none
  std::vector<Claim> claims;  // while waiting: devices it could use, with the bytes it needs there

  // While waiting: how many devices it needs, and the time of its last heartbeat.
  std::size_t count = 1;
  TimePoint last_heartbeat{};
  std::size_t heartbeat_slot = 0;  // where its heartbeats are written

  Liveness alive_by = Liveness::none;
  // If alive by its environment or a device: the processes that keep it alive.
  std::vector<std::uint32_t> kept_by;

  std::uint64_t id() const noexcept { return reference.id; }
  const Claim* claim_on(const DeviceId& device) const noexcept;
  bool is_exclusive() const noexcept;
};

// What an operator decided about a device.
struct DeviceIntent {
  DeviceId device;
  Intent intent = Intent::cordoned;
  std::uint32_t user = 0;
  TimePoint since{};
};

// An ignored file or entry of a user in the ledger's folders. It does not affect other users.
struct LedgerProblem {
  std::uint32_t user = 0;
  std::string path;
  std::string text;  // "its user blocks reading with a file lease"
};

// A consistent snapshot of all files. Plain data; the functions are pure.
struct LedgerSnapshot {
  std::vector<LedgerEntry> entries;  // alive, in order of arrival
  std::vector<LedgerEntry> ended;    // no evidence of life; a process on one of its devices may still keep it
  std::vector<DeviceIntent> intents;
  std::map<std::uint32_t, TimePoint> last_grants;  // by user: when its last lease began
  std::uint64_t fingerprint = 0;                   // differs after every write of any file
  std::uint64_t next_id = 1;                       // of the next entry; increases by one with each entry
  std::vector<LedgerProblem> problems;             // files and entries that are ignored

  const LedgerEntry* find(const LeaseReference& lease) const noexcept;
  // The lease that `entry` is nested in; null if it is not nested or may not be.
  const LedgerEntry* outer_of(const LedgerEntry& entry) const noexcept;
  // The outermost lease that `entry` is nested in; `entry` itself if it is not nested.
  const LedgerEntry& outermost(const LedgerEntry& entry) const noexcept;
  // Commands and pools that hold the device. Nested leases are not counted again;
  // `except` and the leases nested in it are left out.
  std::uint32_t holders(const DeviceId& device, std::optional<LeaseReference> except = {}) const noexcept;
  bool held_exclusively(const DeviceId& device, std::optional<LeaseReference> except = {}) const noexcept;
  bool is_loading(const DeviceId& device, TimePoint now) const noexcept;
  // The strictest intent that any user has set; null: in service.
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
  std::size_t heartbeat_slot_ = 0;  // while waiting: the slot of its heartbeat
};

struct LedgerOptions {
  std::filesystem::path folder = {};  // empty: BERTH_RUNTIME_DIR, or else the folders shared by all users
  Clock* clock = nullptr;             // null: the real clock, which all processes share
  // Replaces the machine's shared folders when no folder is given.
  std::vector<std::string> candidates = {};
};

// What berth doctor reports about one folder.
struct LedgerFolder {
  struct File {
    std::string path;
    std::uint32_t user = 0;
    std::size_t entries = 0;
    std::string problem;  // empty: none
  };
  std::string path;
  std::string problem;   // why it is not used; empty: it is used
  bool written = false;  // this process writes its leases there
  std::vector<File> files;
};

class Ledger {
 public:
  // Does not create any file yet. Returns io if no folder can be used.
  static Result<std::shared_ptr<Ledger>> open(const LedgerOptions& options = {});
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  Clock& clock() const noexcept;
  // The folder that this process writes to.
  std::string folder() const;
  // All candidate folders, with their files.
  std::vector<LedgerFolder> folders();

  struct Request {
    EntryKind kind = EntryKind::command;
    std::string name;
    Priority priority = Priority::normal;
    std::optional<TimePoint> loads_until;
    std::optional<LeaseReference> within;
    std::size_t count = 1;
    std::vector<Claim> claims;
    std::optional<TimePoint> since = {};  // absent: now
  };

  // The machine-wide lock: its holder may read all files and write its own. The kernel releases the lock when the
  // process ends.
  class Lock {
   public:
    Lock(Lock&& other) noexcept : ledger_(other.ledger_) { other.ledger_ = nullptr; }
    Lock& operator=(Lock&&) = delete;
    ~Lock();

    LedgerSnapshot snapshot();
    // Adds a lease of this process. Returns queue_full if this user's file has no room for another entry, io if no
    // folder can be written to.
    Result<LedgerLease> add(const Request& request);
    // Both return not_found if the lease was released.
    Result<void> set_claims(const LedgerLease& lease, const std::vector<Claim>& claims);
    Result<void> set_cgroup(const LedgerLease& lease, const std::string& cgroup);
    // Removes entries that have ended, and waiting requests whose process has ended, from this user's file.
    void forget(const std::vector<LedgerEntry>& ended);
    // Ends a lease of this process now, unless processes that it started still belong
    // to the lease.
    void give_back(LedgerLease lease);
    // Ends a lease of this user; root may end the leases of all users. The processes of the lease keep running.
    Result<void> release(const LeaseReference& lease);
    // `in_service` removes this user's intent; for root, the intents of all users. Returns unavailable if another
    // user's intent remains, which only that user or root can remove.
    Result<void> set_intent(const DeviceId& device, Intent intent);

   private:
    friend class Ledger;
    explicit Lock(Ledger& ledger) : ledger_(&ledger) {}
    Ledger* ledger_;
  };
  // Longer than all well-behaved holders need together; short enough that a command that cannot get the lock names
  // its holder within two seconds.
  static constexpr Duration lock_timeout = std::chrono::milliseconds(1500);
  // Both block until they have the lock. After `timeout` the error names the process that holds the lock, and its
  // user.
  Result<Lock> lock(Duration timeout = lock_timeout);
  Result<LedgerSnapshot> snapshot(Duration timeout = lock_timeout);

  // A number that differs after every write of any file. Needs no lock.
  std::uint64_t changes();
  // Blocks until changes() differs from `seen`, or until `until`. A command writes nothing when it ends.
  void wait_for_change(std::uint64_t seen, TimePoint until);
  // Whether an entry is still alive for the reason recorded in its snapshot, and the last heartbeat of a waiting
  // request. Both need no lock and cost much less than a new snapshot.
  bool is_still_alive(const LedgerEntry& entry);
  TimePoint last_heartbeat(const LedgerEntry& entry);
  // Records that a waiting request is still alive. Needs no lock.
  void heartbeat(const LedgerLease& lease);

  // The lease that this process was started in (BERTH_LEASE), if it is alive and
  // belongs to this user. Root may be in another user's lease, if only one user has a
  // lease with that reference.
  static std::optional<LeaseReference> current_lease(const LedgerSnapshot& snapshot);

 private:
  explicit Ledger(std::unique_ptr<ledger::State> state);
  const std::unique_ptr<ledger::State> state_;
};

}  // namespace berth
