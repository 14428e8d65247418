// `berth rm`: removes jobs that have ended, with their output.

#include <algorithm>

#include "cli/command_line.hpp"
#include "cli/job_access.hpp"

namespace berth::cli {
namespace {

int run_rm(const std::vector<std::string>& names, bool ended) {
  std::vector<Job> jobs;
  if (ended) {
    const Result<std::string> folder = jobs_folder(IfMissing::accept);
    if (!folder) return print_error(folder.error());
    jobs = list_jobs(*folder);
    std::erase_if(jobs, [](const Job& job) { return !has_ended(job.progress.state); });
  }
  if (!ended || !names.empty()) {
    Result<std::vector<Job>> named = jobs_named(names, false);
    if (!named) return print_error(named.error());
    jobs.insert(jobs.end(), named->begin(), named->end());
  }
  int status = done;
  for (const Job& job : jobs)
    if (const Result<void> removed = remove_job(job); !removed) status = std::max(status, print_error(removed.error()));
  return status;
}

}  // namespace

void add_rm(const Verb& command) {
  const auto names = std::make_shared<std::vector<std::string>>();
  const auto ended = std::make_shared<bool>(false);
  Verb verb = command.add("rm", "remove jobs that have ended, with their output");
  verb.flag("--ended", *ended, "all jobs that have ended");
  verb.argument("JOB", names.get(), "ids or names of jobs", false);
  verb.run([names, ended] { return run_rm(*names, *ended); });
}

}  // namespace berth::cli
