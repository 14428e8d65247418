#include "ledger/process.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "ledger/user_file.hpp"

namespace berth {
namespace {

std::uint64_t pid_namespace() {
  struct stat found{};
  return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

struct Status {
  bool ended = false;  // is a zombie
  std::uint32_t parent = 0;
  std::uint64_t start_time = 0;
};

std::string folder_of(std::uint32_t pid) { return "/proc/" + std::to_string(pid); }

std::optional<Status> read_status(std::uint32_t pid) {
  std::ifstream file(folder_of(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  // The name, in parentheses, may contain anything.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  Status status;
  std::string state, skipped;
  fields >> state >> status.parent;
  constexpr int threads_field = 20;
  for (int field = 5; field < threads_field; ++field) fields >> skipped;
  std::uint64_t threads = 0;
  fields >> threads >> skipped >> status.start_time;
  if (!fields) return std::nullopt;
  // The main thread may be a zombie while other threads are still running.
  status.ended = (state == "Z" || state == "X") && threads < 2;
  return status;
}

std::string name_of(std::uint32_t pid) {
  std::ifstream comm(folder_of(pid) + "/comm");
  std::string name;
  std::getline(comm, name);
  return name;
}

bool is_shortage(int error) { return error == EMFILE || error == ENFILE; }

// What a search of /proc may have missed.
struct Missed {
  bool no_descriptor = false;  // there was no free descriptor
  bool vanished = false;       // a process ended during the search, and may have started another one
};

std::optional<LeaseReference> lease_in_environment(std::uint32_t pid, Missed& missed) {
  errno = 0;
  std::ifstream file(folder_of(pid) + "/environ", std::ios::binary);
  missed.no_descriptor = missed.no_descriptor || (!file && is_shortage(errno));
  missed.vanished = missed.vanished || (!file && errno == ENOENT);
  constexpr std::string_view name = "BERTH_LEASE=";
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.starts_with(name)) return parse_lease(std::string_view(entry).substr(name.size()));
  }
  return std::nullopt;
}

}  // namespace

std::optional<ProcessIdentity> find_process(std::uint32_t pid) {
  const std::optional<Status> status = read_status(pid);
  if (!status || status->ended) return std::nullopt;
  return ProcessIdentity{pid, status->start_time, pid_namespace()};
}

ProcessIdentity this_process() {
  const auto pid = static_cast<std::uint32_t>(getpid());
  return find_process(pid).value_or(ProcessIdentity{pid, 0, pid_namespace()});
}

}  // namespace berth

namespace berth::ledger {
namespace {

constexpr std::uint64_t first_namespace = 0xEFFFFFFC;  // fixed in Linux
// The unified hierarchy, and the mount points of mixed setups.
const std::array<std::string, 3> cgroup_roots{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"};

// Processes whose environment and descriptors this user may read, with their users.
std::vector<std::pair<std::uint32_t, std::uint32_t>> readable_processes(Missed& missed) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> found;
  std::error_code failed;
  const std::uint32_t user = geteuid();
  for (std::filesystem::directory_iterator at("/proc", failed), end; !failed && at != end; at.increment(failed)) {
    const auto number_of = number(at->path().filename().native(), ~std::uint32_t{0});
    if (!number_of) continue;
    const auto pid = static_cast<std::uint32_t>(*number_of);
    const std::optional<std::uint32_t> owner = user_of_process(pid);
    if (owner && (user == 0 || *owner == user)) found.emplace_back(pid, *owner);
  }
  missed.no_descriptor = missed.no_descriptor || is_shortage(failed.value());
  return found;
}

// The real, effective and saved user of a process. The owner of its folder in /proc does not show them, because that is
// root for every process that cannot be traced. Empty if there is no such process or it is hidden.
std::vector<std::uint32_t> users_of(std::uint32_t pid) {
  std::ifstream file(folder_of(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("Uid:")) continue;
    std::istringstream numbers(line.substr(4));
    std::vector<std::uint32_t> users(3);
    for (std::uint32_t& user : users) numbers >> user;
    return users;
  }
  return {};
}

// A process of root counts as the user's if the user started it, for example with sudo: if it is in the user's login
// session or has an ancestor that belongs to the user. Only a forged line can name any other process of root, such as
// init.
bool is_of_another_user(std::uint32_t pid, std::uint32_t user) {
  const std::vector<std::uint32_t> users = users_of(pid);
  if (users.empty() || std::find(users.begin(), users.end(), user) != users.end()) return false;
  if (users.front() != 0) return true;
  std::ifstream login(folder_of(pid) + "/loginuid");
  if (std::uint32_t logged_in = 0; login >> logged_in && logged_in == user) return false;
  constexpr int ancestors_max = 64;
  for (int depth = 0; depth < ancestors_max; ++depth) {
    const std::optional<Status> status = read_status(pid);
    if (!status || status->parent <= 1) return true;
    pid = status->parent;
    const std::vector<std::uint32_t> of_parent = users_of(pid);
    if (std::find(of_parent.begin(), of_parent.end(), user) != of_parent.end()) return false;
  }
  return true;
}

// The process that took the lock, if the line of /proc/locks or /proc/PID/fdinfo (from the lock's number on) shows a
// flock on this file.
std::optional<std::uint32_t> flock_holder(const std::string& line, const std::string& file) {
  // "1: FLOCK  ADVISORY  WRITE 4711 00:19:1 0 EOF"; the line of a waiting process has an arrow in front.
  std::istringstream words(line);
  std::string number, kind, mode, access, where;
  std::uint32_t pid = 0;
  words >> number >> kind >> mode >> access >> pid >> where;
  return words && kind == "FLOCK" && where == file ? std::optional(pid) : std::nullopt;
}

// The process that holds the lock after the process that took it has ended. Absent if it is hidden.
std::optional<std::uint32_t> heir_of_lock(const std::string& file) {
  Missed missed;
  for (const auto& [pid, user] : readable_processes(missed)) {
    std::error_code failed;
    for (std::filesystem::directory_iterator at(folder_of(pid) + "/fdinfo", failed), end; !failed && at != end;
         at.increment(failed)) {
      std::ifstream info(at->path());
      for (std::string line; std::getline(info, line);) {
        if (line.starts_with("lock:") && flock_holder(line.substr(5), file)) return pid;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

ProcessState process_state(const ProcessIdentity& holder, std::uint32_t user) {
  // In another PID namespace, this pid means another process.
  if (holder.pid == 0 || holder.pid_namespace == 0 || holder.pid_namespace != pid_namespace())
    return ProcessState::unknown;
  // For root, the owner of the process is not checked, because a command of root may switch to another user.
  if (user != 0 && is_of_another_user(holder.pid, user)) return ProcessState::gone;
  if (const std::optional<Status> status = read_status(holder.pid))
    return !status->ended && status->start_time == holder.start_time ? ProcessState::alive : ProcessState::gone;
  if (kill(static_cast<pid_t>(holder.pid), 0) != 0 && errno == ESRCH) return ProcessState::gone;
  // The process is hidden from this user. It may be another process with the same pid, but freeing the memory of a
  // living process would be worse than keeping it reserved.
  return ProcessState::alive;
}

std::optional<std::uint32_t> user_of_process(std::uint32_t pid) {
  struct stat found{};
  if (stat(folder_of(pid).c_str(), &found) != 0) return std::nullopt;
  return found.st_uid;
}

std::vector<LeaseReference> locked_leases(std::uint32_t pid) {
  std::vector<LeaseReference> found;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(folder_of(pid) + "/fd", failed), end; !failed && at != end;
       at.increment(failed)) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(at->path(), gone).native();
    if (gone || target.find(std::string("/") + std::string(file_prefix)) == std::string::npos) continue;
    const Result<UserFile> file = UserFile::open_link(at->path().native());
    const auto header = file ? file->read_header() : std::nullopt;
    if (!header) continue;
    std::ifstream info(folder_of(pid) + "/fdinfo/" + at->path().filename().native());
    for (std::string line; std::getline(info, line);) {
      if (!line.starts_with("lock:")) continue;
      // "lock:	1: OFDLCK  ADVISORY  WRITE -1 00:19:9 1099511627777 1099511627777"
      std::istringstream words(line.substr(5));
      std::string number, kind, mode, access, pid_text, where;
      std::uint64_t first = 0;
      words >> number >> kind >> mode >> access >> pid_text >> where >> first;
      if (words && access == "WRITE" && first > locks_begin)
        found.push_back({header->file, first - locks_begin, file->user()});
    }
  }
  return found;
}

bool is_in_first_namespace() { return pid_namespace() == first_namespace; }

bool shows_children_of(const ProcessIdentity& holder) {
  return is_in_first_namespace() || (holder.pid_namespace != 0 && holder.pid_namespace == pid_namespace());
}

bool can_see_processes_of(const LedgerEntry& entry) {
  return (geteuid() == 0 || entry.user == geteuid()) && shows_children_of(entry.holder);
}

ProcessTrace trace_process(std::uint32_t pid) {
  ProcessTrace trace;
  trace.user = user_of_process(pid);
  Missed missed;  // ignored: the process then counts as having no lease
  trace.lease = lease_in_environment(pid, missed);
  trace.cgroup = cgroup_of(pid);
  trace.descriptors = locked_leases(pid);
  trace.hidden = !trace.user && is_in_first_namespace() && (kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM);
  const std::uint64_t space = pid_namespace();
  // The limit is higher than the depth of real process trees.
  for (int depth = 0; pid > 1 && depth < 64; ++depth) {
    const std::optional<Status> status = read_status(pid);
    if (!status || status->ended) break;
    trace.lineage.push_back({pid, status->start_time, space});
    if (depth == 0) trace.orphan = status->parent <= 1 || name_of(status->parent) == "systemd";
    pid = status->parent;
  }
  return trace;
}

BootTime boot_time(TimePoint now) {
  timespec boot{};
  if (clock_gettime(CLOCK_BOOTTIME, &boot) != 0) return {now, 0, 100};
  const auto ticks = static_cast<std::uint64_t>(std::max(1L, sysconf(_SC_CLK_TCK)));
  return {now, static_cast<std::uint64_t>(boot.tv_sec) * ticks, ticks};
}

std::optional<std::vector<LeasedProcess>> processes_with_leases() {
  // On a busy machine some process ends during every search, so the number of searches is limited.
  constexpr int searches_max = 3;
  std::map<std::uint32_t, LeasedProcess> found;  // by process
  Missed missed;
  for (int search = 0; search < searches_max && (search == 0 || missed.vanished); ++search) {
    missed.vanished = false;
    // A zombie has no environment, so every process found is alive.
    for (const auto& [pid, user] : readable_processes(missed)) {
      if (const std::optional<LeaseReference> lease = lease_in_environment(pid, missed))
        found.insert_or_assign(pid, LeasedProcess{*lease, pid, user});
    }
  }
  if (missed.no_descriptor) return std::nullopt;
  std::vector<LeasedProcess> processes;
  for (const auto& [pid, process] : found) processes.push_back(process);
  return processes;
}

LeaseProcesses::LeaseProcesses() {
  Missed missed;  // ignored: some processes may then be missing
  for (const auto& [pid, user] : readable_processes(missed)) {
    Found process{pid, user, lease_in_environment(pid, missed), locked_leases(pid)};
    if (process.lease || !process.locked.empty()) found_.push_back(std::move(process));
  }
}

std::vector<std::uint32_t> LeaseProcesses::of(const LedgerEntry& entry) const {
  std::vector<std::uint32_t> pids;
  if (!entry.cgroup.empty()) pids = processes_in(entry.cgroup);
  for (const Found& process : found_) {
    if ((process.lease && LeasedProcess{*process.lease, process.pid, process.user}.has_lease(entry.reference)) ||
        std::find(process.locked.begin(), process.locked.end(), entry.reference) != process.locked.end())
      pids.push_back(process.pid);
  }
  return pids;
}

std::string cgroup_of(std::uint32_t pid) {
  std::ifstream file(folder_of(pid) + "/cgroup");
  std::string unified, systemd;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) unified = line.substr(3);
    constexpr std::string_view name = ":name=systemd:";
    if (const std::size_t at = line.find(name); at != std::string::npos) systemd = line.substr(at + name.size());
  }
  return unified.size() > 1 || systemd.empty() ? unified : systemd;
}

std::string scope_name(const LeaseReference& lease) {
  // The name includes the user, because another user can write the same number into its file.
  std::string name = "berth-" + std::to_string(lease.user) + "-" + to_string(lease) + ".scope";
  std::replace(name.begin(), name.end(), ':', '-');
  return name;
}

bool is_scope_of(const LeaseReference& lease, std::string_view cgroup) {
  return cgroup.starts_with('/') && cgroup.find("..") == std::string_view::npos &&
         cgroup.find('\0') == std::string_view::npos && cgroup.ends_with("/" + scope_name(lease));
}

bool cgroup_is_populated(const std::string& cgroup) {
  if (cgroup.empty()) return false;
  for (const std::string& root : cgroup_roots) {
    errno = 0;
    std::ifstream events(root + cgroup + "/cgroup.events");
    if (!events && is_shortage(errno)) return true;
    std::string key;
    for (int value = 0; events >> key >> value;) {
      if (key == "populated") return value == 1;
    }
    std::ifstream processes(root + cgroup + "/cgroup.procs");
    if (std::string line; std::getline(processes, line)) return true;
  }
  return false;
}

std::vector<std::uint32_t> processes_in(const std::string& cgroup) {
  std::vector<std::uint32_t> found;
  for (const std::string& root : cgroup_roots) {
    std::ifstream processes(root + cgroup + "/cgroup.procs");
    for (std::uint32_t pid = 0; processes >> pid;) {
      // 0 stands for a process of another PID namespace.
      if (pid != 0) found.push_back(pid);
    }
    if (!found.empty()) break;
  }
  return found;
}

std::string lock_holder(const FileIdentity& file) {
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, "%02x:%02x:%llu", gnu_dev_major(file.device), gnu_dev_minor(file.device),
                static_cast<unsigned long long>(file.inode));
  // A user can have a million locks, and finding the name of a holder must not take long.
  const TimePoint give_up = real_clock().now() + std::chrono::milliseconds(300);
  std::ifstream locks("/proc/locks");
  for (std::string line; real_clock().now() < give_up && std::getline(locks, line);) {
    if (line.find(wanted) == std::string::npos) continue;
    const std::optional<std::uint32_t> taken_by = flock_holder(line, wanted);
    if (taken_by.value_or(0) == 0) continue;
    std::uint32_t pid = *taken_by;
    if (users_of(pid).empty() && kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) {
      const std::optional<std::uint32_t> heir = heir_of_lock(wanted);
      if (!heir) return "a process that was started by process " + std::to_string(pid) + ", which has ended,";
      pid = *heir;
    }
    const std::string name = name_of(pid);
    std::string text = name.empty() ? "process" : name;
    text += " (pid " + std::to_string(pid);
    if (const auto users = users_of(pid); !users.empty()) text += ", user " + std::to_string(users.front());
    return text + ")";
  }
  return {};
}

}  // namespace berth::ledger
