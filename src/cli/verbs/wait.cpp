// `berth wait`: waits for jobs to finish.

#include <algorithm>
#include <boost/json.hpp>

#include "cli/command_line.hpp"
#include "cli/job_access.hpp"
#include "cli/text/jobs_text.hpp"
#include "format/json_text.hpp"
#include "machine/job_outcome.hpp"
#include "machine/launch.hpp"
#include "world/duration.hpp"

namespace berth::cli {

using namespace format;
using namespace machine;
using namespace world;
namespace {

constexpr Duration look_again = std::chrono::milliseconds(200);

struct WaitArguments {
  std::vector<std::string> names;
  bool all = false;
  std::optional<std::string> timeout;
  bool json = false;
};

// Returns the job once it has ended, or at the deadline. The job is read again even after the deadline, because it may
// have ended while this command waited for other jobs.
Result<Job> wait_for(Job job, Deadline deadline) {
  for (bool is_last = false; !job.has_ended() && !is_last;) {
    is_last = deadline.passed(real_clock().now());
    if (!is_last && job.is_supervised)
      wait_for_supervisor(job.folder, deadline);
    else if (!is_last)
      real_clock().sleep_for(look_again);
    Result<Job> again = job_named(job.id);
    if (!again) return again;
    job = *std::move(again);
  }
  return job;
}

int print_timeout(Duration timeout, const std::vector<Job>& unfinished) {
  std::string text =
      "gave up after waiting " + duration_text(timeout) + ": " + label(unfinished.front()) + " has not finished";
  if (const std::size_t others = unfinished.size() - 1; others > 0)
    text += ", nor " + (others == 1 ? "has 1 other job" : "have " + std::to_string(others) + " other jobs");
  print_note(text + "; berth ps lists unfinished jobs");
  return timed_out_status;
}

int run_wait(const WaitArguments& arguments) {
  Result<Duration> timeout = parse_duration(arguments.timeout.value_or("0"));
  if (!timeout) return print_error(timeout.error());
  const Deadline deadline = arguments.timeout ? Deadline::after(real_clock(), *timeout) : Deadline();
  Result<std::vector<Job>> jobs = jobs_named(arguments.names, arguments.all, Matching::newest);
  if (!jobs) return print_error(without_effect(jobs.error(), arguments.names, "no job was waited for"));
  int status = done;
  std::vector<Job> unfinished;
  boost::json::array list;
  for (Job& job : *jobs) {
    Result<Job> ended = wait_for(std::move(job), deadline);
    if (!ended) return print_error(ended.error());
    list.push_back(job_to_json(*ended));
    if (!ended->has_ended()) {
      unfinished.push_back(*std::move(ended));
      continue;
    }
    if (const int of_job = status_of(*ended); of_job != 0) {
      print_note(outcome_text(*ended));
      status = std::max(status, of_job);
    } else if (used_little_memory(ended->progress)) {
      print_note(label(*ended) + " " + peak_memory_text(ended->progress));
    }
  }
  if (!unfinished.empty()) status = print_timeout(*timeout, unfinished);
  if (!arguments.json) return status;
  const int printed = print(json_text(boost::json::object{{"jobs", std::move(list)}}) + "\n");
  return printed == done ? status : printed;
}

}  // namespace

void add_wait(const Verb& command) {
  const auto arguments = std::make_shared<WaitArguments>();
  Verb verb = command.add("wait", "wait for jobs to finish");
  verb.flag("--all", arguments->all, "wait for all unfinished jobs on this machine, but not for jobs that start later");
  verb.option("--timeout", "TIME", &arguments->timeout, "give up after this time (90s, 5m), with exit status 124");
  verb.flag("--json", arguments->json, "print the jobs as one JSON object, with the fields of berth ps --json");
  verb.argument("JOB", &arguments->names, "ids or names of jobs, or a pattern such as 'sweep-*'", false);
  verb.offer("JOB", {Names::jobs});
  verb.footer(
      {"Exit status: 0 if all jobs are done; otherwise the largest status: the command's, 3 if a job did not fit, 1 if "
       "a job was stopped or skipped, timed out, or lost its supervisor; 124 if some have not finished within "
       "--timeout."},
      false);
  verb.run([arguments] { return run_wait(*arguments); });
}

}  // namespace berth::cli
