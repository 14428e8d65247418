// `berth wait`: waits for jobs to finish.

#include <algorithm>

#include "cli/command_line.hpp"
#include "cli/job_access.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
namespace {

constexpr Duration look_again = std::chrono::milliseconds(200);

Result<Job> wait_for(Job job) {
  while (!job.has_ended()) {
    if (job.is_supervised)
      wait_for_supervisor(job.folder);
    else
      real_clock().sleep_for(look_again);
    Result<Job> again = job_named(job.id);
    if (!again) return again;
    job = *std::move(again);
  }
  return job;
}

int run_wait(const std::vector<std::string>& names, bool all) {
  Result<std::vector<Job>> jobs = jobs_named(names, all);
  if (!jobs) return print_error(jobs.error());
  int status = done;
  for (Job& job : *jobs) {
    const Result<Job> ended = wait_for(std::move(job));
    if (!ended) return print_error(ended.error());
    if (const int of_job = status_of(*ended); of_job != 0) {
      std::fprintf(stderr, "berth: %s: %s%s\n", ended->id.c_str(),
                   std::string(to_string(ended->progress.state)).c_str(),
                   ended->progress.reason.empty() ? "" : (", " + printable(ended->progress.reason)).c_str());
      status = std::max(status, of_job);
    }
  }
  return status;
}

}  // namespace

void add_wait(const Verb& command) {
  const auto names = std::make_shared<std::vector<std::string>>();
  const auto all = std::make_shared<bool>(false);
  Verb verb = command.add("wait", "wait for jobs to finish");
  verb.flag("--all", *all, "wait for all unfinished jobs on this machine, but not for jobs that start later");
  verb.argument("JOB", names.get(), "ids or names of jobs", false);
  verb.footer(
      {"Exit status: 0 when all of them are done; else the largest of theirs: that of the command, 3 for a job that "
       "did not fit, 1 for one that was stopped, timed out, skipped or lost its supervisor."},
      false);
  verb.run([names, all] { return run_wait(*names, *all); });
}

}  // namespace berth::cli
