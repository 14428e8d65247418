// What /proc shows about a process: whether it is alive, and which leases it belongs
// to. Every answer may be "unknown": another user's environment is hidden, and in
// some containers /proc shows little or nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/ledger.hpp"

namespace berth::ledger {

enum class ProcessState : std::uint8_t { alive, gone, unknown };
// `gone` also if it is a process of another user: the pid was reused, or the line is forged. A process that the
// user started as root (sudo) counts.
ProcessState process_state(const ProcessIdentity& holder, std::uint32_t user);

// The user of the process; nullopt if it does not exist or /proc hides it.
std::optional<std::uint32_t> user_of_process(std::uint32_t pid);
// Leases whose locked descriptor the process has open; visible for this user's processes, and for root for all.
std::vector<LeaseReference> locked_leases(std::uint32_t pid);

// Whether /proc shows the children of the process: it is in the same pid namespace,
// or this process is in the machine's first one, which sees all others.
bool shows_children_of(const ProcessIdentity& holder);
// Whether this process can see the processes of the entry and read their environments.
bool can_see_processes_of(const LedgerEntry& entry);
// Whether this process is in the first pid namespace of the machine, whose pids drivers report.
bool is_in_first_namespace();

// The device and inode of a file, which identify it in /proc/PID/fdinfo.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

struct ProcessTrace {
  std::vector<ProcessIdentity> lineage;     // itself, then its ancestors
  bool orphan = false;                      // its parent has ended; it was adopted by init or a user's systemd
  bool hidden = false;                      // it is alive, but /proc does not show it to this user
  std::optional<std::uint32_t> user;        // absent: hidden
  std::optional<LeaseReference> lease;      // BERTH_LEASE in its environment
  std::vector<LeaseReference> descriptors;  // leases whose locked descriptor it has open
  std::string cgroup;
};
ProcessTrace trace_process(std::uint32_t pid);

// A moment, in ledger time and in ticks since the machine started, the unit of
// process start times.
struct BootTime {
  TimePoint now{};
  std::uint64_t ticks_now = 0;  // 0: unknown
  std::uint64_t ticks_per_second = 100;
};
BootTime boot_time(TimePoint now);

// A process that has a lease in BERTH_LEASE.
struct LeasedProcess {
  LeaseReference lease;  // without the user, which the text does not contain
  std::uint32_t pid = 0;
  std::uint32_t user = 0;

  // Accepted only from processes of the lease's user and of root.
  bool has_lease(const LeaseReference& other) const {
    return lease.file == other.file && lease.id == other.id && (user == other.user || user == 0);
  }
};
// This user's own processes; for root, all processes. Absent: this process has no free descriptor
// to search with.
std::optional<std::vector<LeasedProcess>> processes_with_leases();
// Processes in a lease's scope, and those that have it in BERTH_LEASE or have its
// locked descriptor. Reads every descriptor of every process once, so it is for display and
// not for decisions.
class LeaseProcesses {
 public:
  LeaseProcesses();
  std::vector<std::uint32_t> of(const LedgerEntry& entry) const;

 private:
  struct Found {
    std::uint32_t pid = 0, user = 0;
    std::optional<LeaseReference> lease;
    std::vector<LeaseReference> locked;
  };
  std::vector<Found> found_;
};

// The cgroup of the process in the unified hierarchy, or else in systemd's own. Empty: unknown.
std::string cgroup_of(std::uint32_t pid);
// The systemd scope of a lease, and whether a cgroup is that scope. No other cgroup is
// accepted: the user writes the line and could name one that never ends, or one with
// other users' processes.
std::string scope_name(const LeaseReference& lease);
bool is_scope_of(const LeaseReference& lease, std::string_view cgroup);
// Whether a cgroup, or one below it, has processes.
bool cgroup_is_populated(const std::string& cgroup);
// Processes of the cgroup itself, as far as this pid namespace shows them.
std::vector<std::uint32_t> processes_in(const std::string& cgroup);

// "python3 (pid 4711, user 1000)" of the process with a flock on the file, or the process that left it to another one;
// empty: unknown.
std::string lock_holder(const FileIdentity& file);

}  // namespace berth::ledger
