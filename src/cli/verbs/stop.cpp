// `berth stop`: ends waiting and running jobs.

#include "cli/command_line.hpp"
#include "cli/job_access.hpp"
#include "machine/job_control.hpp"
#include "machine/job_outcome.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
namespace {

// A name means the newest job with it; the older ones are listed, so that they are not forgotten.
void note_others(const std::vector<std::string>& names) {
  const Result<std::string> folder = jobs_folder(IfMissing::accept);
  if (!folder) return;
  const std::vector<Job> all = list_jobs(*folder);
  for (const std::string& name : names) {
    std::string ids;
    for (const Job& job : all)
      if (job.request.name == name && !job.has_ended() && !job.is_elsewhere) ids += " " + job.id;
    if (!ids.empty()) print_note("other jobs named " + printable(name) + " continue; to stop them: berth stop" + ids);
  }
}

int run_stop(const std::vector<std::string>& names, bool all) {
  const Result<std::vector<Job>> jobs = jobs_named(names, all, Matching::unfinished);
  if (!jobs) return print_error(without_effect(jobs.error(), names, "nothing was stopped"));
  if (jobs->empty() && !all) print_note("all of these jobs have already ended");
  int status = done;
  // Waiting jobs first, because they would take the devices of those that end.
  for (const bool waits : {true, false})
    for (const Job& job : *jobs)
      if (!job.has_ended() && (job.progress.state == JobState::waiting) == waits) request_stop(job);
  for (const Job& job : *jobs) {
    if (job.has_ended())
      print_note(label(job) + " has already ended");
    else if (const Result<void> stopped = wait_for_stop(job); !stopped)
      status = print_error(stopped.error());
  }
  if (!all) note_others(names);
  return status;
}

}  // namespace

void add_stop(const Verb& command) {
  const auto names = std::make_shared<std::vector<std::string>>();
  const auto all = std::make_shared<bool>(false);
  Verb verb = command.add("stop", "stop waiting and running jobs");
  verb.flag("--all", *all, "stop all unfinished jobs on this machine");
  verb.argument("JOB", names.get(), "ids or names of jobs, or a pattern such as 'sweep-*'", false);
  verb.offer("JOB", {Names::unfinished_jobs});
  verb.footer({"The command gets SIGTERM, and SIGKILL ten seconds later. Returns when it has ended."});
  verb.run([names, all] { return run_stop(*names, *all); });
}

}  // namespace berth::cli
