#include "cli/job_access.hpp"

#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>

#include "berth/ledger.hpp"
#include "inventory/short_id.hpp"
#include "machine/job_outcome.hpp"
#include "machine/job_processes.hpp"
#include "world/user_name.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
namespace {

bool is_pattern(const std::string& name) { return name.find_first_of("*?[") != std::string::npos; }

// `berth ps` lists leases by number in the column of the jobs' ids. Absent if the name is not the number of a lease.
std::optional<Error> error_of_lease(const std::string& name) {
  if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return std::nullopt;
  const Result<LedgerSnapshot> snapshot = (*ledger)->snapshot();
  if (!snapshot) return std::nullopt;
  const LedgerEntry* found = nullptr;  // preferably of this user
  for (const LedgerEntry& entry : snapshot->entries)
    if (std::to_string(entry.id()) == name && (!found || entry.user == geteuid())) found = &entry;
  if (!found) return std::nullopt;
  const std::string what = found->kind == EntryKind::waiting ? "request " + name + " is not a job: it waits for devices"
                           : found->kind == EntryKind::pool
                               ? "lease " + name + " is a pool, not a job: it belongs to a running program"
                               : "lease " + name + " is not a job: it belongs to a running command";
  return Error{ErrorCode::invalid_argument, what,
               found->user == geteuid() ? "to end it, end its process: kill " + std::to_string(found->holder.pid)
                                        : "it belongs to " + user_name(found->user)};
}

// For example 'sweep', if --array started sweep-1 and others.
Error no_job_named(const Error& error, const std::string& name, std::span<const Job> jobs) {
  const std::string pattern = name + "-*";
  const auto is_member = [&](const Job& job) { return fnmatch(pattern.c_str(), job.request.name.c_str(), 0) == 0; };
  const bool is_array = std::any_of(jobs.begin(), jobs.end(), is_member);
  if (std::optional<Error> lease = error_of_lease(name)) return *std::move(lease);
  return {ErrorCode::invalid_argument, error.message, is_array ? "did you mean '" + pattern + "'?" : error.advice};
}

Result<std::vector<Job>> jobs_matching(const std::string& jobs, const std::string& pattern, Matching matching) {
  std::vector<Job> found = list_jobs(jobs);
  std::erase_if(found, [&](const Job& job) { return fnmatch(pattern.c_str(), job.request.name.c_str(), 0) != 0; });
  if (found.empty())
    return Error{ErrorCode::invalid_argument, "no job has a name that matches '" + printable(pattern) + "'",
                 "see berth ps -a"};
  if (matching == Matching::unfinished) std::erase_if(found, [](const Job& job) { return job.has_ended(); });
  std::set<std::string> seen;
  std::reverse(found.begin(), found.end());
  if (matching == Matching::newest)
    std::erase_if(found, [&](const Job& job) { return !seen.insert(job.request.name).second; });
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace

Result<Job> job_named(const std::string& name, bool unreadable) {
  const Result<std::string> jobs = jobs_folder(IfMissing::accept);
  if (!jobs) return jobs.error();
  Result<Job> job = find_job(*jobs, name);
  if (job || (job.error().code != ErrorCode::not_found && !unreadable)) return job;
  std::vector<Job> all = list_jobs(*jobs);
  for (Job& listed : all)
    if (unreadable && listed.id == name) return std::move(listed);
  if (job.error().code == ErrorCode::not_found) return no_job_named(job.error(), name, all);
  return job;
}

Result<std::vector<Job>> jobs_named(std::span<const std::string> names, bool all, Matching matching, bool unreadable) {
  const std::string folder = BERTH_TRY(jobs_folder(IfMissing::accept));
  std::vector<Job> jobs;
  if (all) {
    jobs = list_jobs(folder);
    std::erase_if(jobs, [](const Job& job) { return job.is_elsewhere || job.has_ended(); });
  }
  std::set<std::string> listed;
  for (const Job& job : jobs) listed.insert(job.id);
  for (const std::string& name : names) {
    std::vector<Job> found;
    if (is_pattern(name))
      found = BERTH_TRY(jobs_matching(folder, name, matching));
    else
      found.push_back(BERTH_TRY(job_named(name, unreadable)));
    for (Job& job : found)
      if (listed.insert(job.id).second) jobs.push_back(std::move(job));
  }
  if (names.empty() && !all)
    return Error{ErrorCode::invalid_argument, "no job was named",
                 "name one from berth ps -a, or use --all for all unfinished jobs"};
  return jobs;
}

Error without_effect(Error error, std::span<const std::string> names, const std::string& effect) {
  if (names.size() > 1) error.message += ", so " + effect;
  return error;
}

int status_of(const Job& job) {
  switch (job.progress.state) {
    case JobState::done: return done;
    case JobState::refused: return does_not_fit;
    case JobState::failed: return job.progress.status.value_or(0) != 0 ? *job.progress.status : environment_error;
    default: return environment_error;
  }
}

std::string outcome_text(const Job& job) { return label(job) + " " + inventory::with_short_ids(outcome(job)); }

void name_jobs(std::span<inventory::DeviceRow> rows, std::span<const Job> jobs) {
  for (inventory::DeviceRow& row : rows) {
    for (inventory::DeviceLease& lease : row.held_by) {
      lease.pid = command_supervised_by(lease.pid).value_or(lease.pid);
      if (lease.user_id != geteuid()) continue;
      for (const Job& job : jobs) {
        const auto own = parse_lease(job.progress.lease);
        if (job.has_ended() || !own || own->id != lease.lease || own->file != lease.file) continue;
        lease.command = label(job) + ": " + lease.command;
      }
    }
  }
}

void print_note(const std::string& text) { std::fprintf(stderr, "berth: %s\n", printable(text).c_str()); }

}  // namespace berth::cli
