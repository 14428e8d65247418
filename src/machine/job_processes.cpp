#include "machine/job_processes.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "ledger/process.hpp"
#include "machine/job_supervisor.hpp"
#include "machine/supervise.hpp"
#include "world/descriptor.hpp"

namespace berth::machine {
namespace {

bool may_be_of(const Job& job, std::uint32_t owner) {
  if (owner == job.user || job.user == 0) return true;  // a command of root may switch to another user
  return geteuid() != 0 && owner == 0;                  // a setuid program, which only root can signal
}

}  // namespace

std::string job_mark(const Job& job) {
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::canonical(job.folder, failed);
  return (failed ? job.folder : real.string()) + ":" + job.request.mark;
}

bool is_process_of(const Job& job, const ProcessIdentity& process) {
  // Any owner is accepted here, because may_be_of() checks the owner.
  constexpr std::uint32_t any_owner = 0;
  if (process.pid < 2 || ledger::process_state(process, any_owner) != ledger::ProcessState::alive) return false;
  // Root recorded the supervisor itself, which still belongs to root when it starts.
  if (job.request.user && process == job.progress.supervisor) return true;
  const std::optional<std::uint32_t> owner = ledger::user_of_process(process.pid);
  return owner ? may_be_of(job, *owner) : geteuid() != 0;
}

std::optional<Job> job_supervised_by(const ProcessIdentity& process) {
  std::ifstream file("/proc/" + std::to_string(process.pid) + "/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(std::move(word));
  if (words.size() != 3 || words[1] != supervisor_verb) return std::nullopt;
  const std::filesystem::path folder = words[2];
  const Result<Job> job = find_job(folder.parent_path(), folder.filename());
  if (!job || job->progress.supervisor != process) return std::nullopt;
  return *job;
}

std::optional<std::uint32_t> command_supervised_by(std::uint32_t supervisor) {
  const std::filesystem::path about = "/proc/" + std::to_string(supervisor);
  std::ifstream file(about / "comm");
  std::string name;
  std::getline(file, name);
  if (name != supervisor_name) return std::nullopt;
  std::vector<std::uint32_t> children;
  std::error_code failed;
  for (std::filesystem::directory_iterator thread(about / "task", failed), end; !failed && thread != end;
       thread.increment(failed)) {
    std::ifstream list(thread->path() / "children");
    for (std::uint32_t pid = 0; list >> pid;) children.push_back(pid);
  }
  return children.size() == 1 ? std::optional(children.front()) : std::nullopt;
}

void signal_process(const Job& job, const ProcessIdentity& process, int signal) {
  const world::Descriptor file(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process.pid), 0)));
  if (!file || !is_process_of(job, process)) return;
  syscall(SYS_pidfd_send_signal, file.get(), signal, nullptr, 0);
  syscall(SYS_pidfd_send_signal, file.get(), SIGCONT, nullptr,
          0);  // a stopped process handles the signal only when it continues
}

void JobProcesses::search() {
  found_.emplace();
  std::error_code failed;
  for (std::filesystem::directory_iterator entry("/proc", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename();
    std::uint32_t pid = 0;
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || rest != name.data() + name.size()) continue;
    const std::optional<std::uint32_t> user = ledger::user_of_process(pid);
    if (!user || (geteuid() != 0 && *user != geteuid())) continue;
    Found found;
    found.user = *user;
    std::ifstream file(entry->path() / "environ");
    constexpr std::string_view lease = "BERTH_LEASE=";
    const std::string folder = std::string(job_folder_variable) + "=";
    for (std::string variable; std::getline(file, variable, '\0');) {
      if (variable.starts_with(folder) && found.mark.empty()) found.mark = variable.substr(folder.size());
      if (variable.starts_with(lease)) found.named = parse_lease(std::string_view(variable).substr(lease.size()));
    }
    found.locked = ledger::locked_leases(pid);
    if (found.mark.empty() && !found.named && found.locked.empty()) continue;
    if (const auto process = find_process(pid)) {
      found.process = *process;
      found_->push_back(std::move(found));
    }
  }
}

std::vector<ProcessIdentity> JobProcesses::of(const Job& job) {
  if (!found_) search();
  const std::string mark = job_mark(job);
  const std::optional<LeaseReference> lease = parse_lease(job.progress.lease);
  const auto is_lease = [&](const LeaseReference& other) { return other.file == lease->file && other.id == lease->id; };
  std::vector<ProcessIdentity> processes;
  for (const Found& found : *found_) {
    if (!may_be_of(job, found.user)) continue;
    const bool has_lease =
        lease && ((found.named && is_lease(*found.named) && found.user == job.user) ||
                  std::any_of(found.locked.begin(), found.locked.end(), [&](const LeaseReference& locked) {
                    return locked.user == job.user && is_lease(locked);
                  }));
    if (has_lease || (!job.request.mark.empty() && found.mark == mark)) processes.push_back(found.process);
  }
  std::stable_sort(processes.begin(), processes.end(),
                   [](const ProcessIdentity& a, const ProcessIdentity& b) { return a.start_time < b.start_time; });
  return processes;
}

}  // namespace berth::machine
