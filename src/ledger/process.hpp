// What /proc says about a process: whether it lives, and which leases it belongs
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
// Of a process of `user`, or of root.
ProcessState process_state(const ProcessIdentity& holder, std::uint32_t user);

// Whether /proc shows what the process started: it is of the same pid namespace, or
// this one is the machine's first, which sees all others.
bool shows_children_of(const ProcessIdentity& holder);
// Whether this process sees what keeps the entry: its user's processes are there to be
// seen, and their environments can be read.
bool can_see_processes_of(const LedgerEntry& entry);
// This process is in the machine's first pid namespace: the numbers of processes
// that drivers tell are those of its own.
bool is_in_first_namespace();

// A file's device and inode, which name it in /proc/PID/fdinfo.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

struct ProcessTrace {
  std::vector<ProcessIdentity> lineage;     // itself, then its ancestors
  bool orphan = false;                      // its parent has ended before it; it is below init or a user's systemd
  bool hidden = false;                      // it lives, and /proc does not show it to this user
  std::optional<std::uint32_t> user;        // absent: hidden
  std::optional<LeaseReference> lease;      // BERTH_LEASE in its environment
  std::vector<LeaseReference> descriptors;  // leases whose locked descriptor it has
  std::string cgroup;
};
ProcessTrace trace_process(std::uint32_t pid);

// A moment, in ledger time and in ticks since the machine started, as the start of
// a process is told.
struct BootTime {
  TimePoint now{};
  std::uint64_t ticks_now = 0;  // 0: unknown
  std::uint64_t ticks_per_second = 100;
};
BootTime boot_time(TimePoint now);

// A process that carries a lease in BERTH_LEASE.
struct LeasedProcess {
  LeaseReference lease;  // whose it is, the text does not say
  std::uint32_t pid = 0;
  std::uint32_t user = 0;

  // Believed of the lease's user and of root.
  bool has_lease(const LeaseReference& other) const {
    return lease.file == other.file && lease.id == other.id && (user == other.user || user == 0);
  }
};
// As far as this user may look: its own processes, for root all. Absent: this process
// has no descriptor left to look with.
std::optional<std::vector<LeasedProcess>> processes_with_leases();
// Processes in the lease's scope, and likewise those that carry it or have its
// locked descriptor. Reads every descriptor of every process: for people who want to
// know, not for decisions.
std::vector<std::uint32_t> processes_of(const LedgerEntry& entry);

// Where the process is in the unified hierarchy; outside of it, in systemd's own.
// Empty: unknown.
std::string cgroup_of(std::uint32_t pid);
// The systemd scope of a lease, and whether the cgroup is that of this scope. No
// other one says anything about a lease: its user writes the line, and could name
// one that never ends or that processes of others are in.
std::string scope_name(const LeaseReference& lease);
bool is_scope_of(const LeaseReference& lease, std::string_view cgroup);
// Whether a cgroup, or one below it, has processes.
bool cgroup_is_populated(const std::string& cgroup);
// Those of the cgroup itself, as far as this pid namespace shows them.
std::vector<std::uint32_t> processes_in(const std::string& cgroup);

// "python3 (pid 4711, user 1000)" of the process with a flock on the file; empty:
// unknown.
std::string lock_holder(const FileIdentity& file);

}  // namespace berth::ledger
