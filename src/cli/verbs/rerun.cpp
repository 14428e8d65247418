// `berth rerun`: restarts jobs that have ended.

#include "cli/command_line.hpp"
#include "cli/detach.hpp"
#include "cli/job_access.hpp"
#include "machine/job_control.hpp"
#include "machine/job_outcome.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
namespace {

struct RerunArguments {
  std::vector<std::string> names;
  bool json = false;
};

int run_rerun(const RerunArguments& arguments) {
  const Result<std::vector<Job>> jobs = jobs_named(arguments.names, false, Matching::newest);
  if (!jobs) return print_error(without_effect(jobs.error(), arguments.names, "nothing was started"));
  std::vector<JobOrder> orders;
  for (const Job& job : *jobs) {
    if (!job.has_ended())
      return print_error(
          {ErrorCode::invalid_argument, label(job) + " has not ended", "stop it first: berth stop " + job.id});
    Result<JobOrder> order = order_to_repeat(job);
    if (!order) return print_error(order.error());
    orders.push_back(*std::move(order));
  }
  const Result<std::string> folder = jobs_folder();
  if (!folder) return print_error(folder.error());
  if (const auto room = check_waiting_limit(*folder, orders.size()); !room) return print_error(room.error());
  std::vector<Job> started;
  int status = done;
  for (const JobOrder& order : orders) {
    Result<Job> job = start_job(*folder, order);
    if (job) started.push_back(*std::move(job));
    if (!job) status = print_error(job.error());
    if (status != done) break;
  }
  const int printed = started.empty() ? done : print_started(started, arguments.json, true);
  return status != done ? status : printed;
}

}  // namespace

void add_rerun(const Verb& command) {
  const auto arguments = std::make_shared<RerunArguments>();
  Verb verb = command.add("rerun", "run finished jobs again");
  verb.argument("JOB", &arguments->names, "ids or names of jobs, or a pattern such as 'sweep-*'");
  verb.offer("JOB", {Names::ended_jobs});
  verb.flag("--json", arguments->json, "print the ids and folders of the new jobs as one JSON object");
  verb.footer(
      {"For each of these jobs, starts a new job with the same command, options, name and folder, and prints its id. "
       "The new job gets the environment of berth rerun. --after, --after-any and --begin are not repeated: it "
       "starts as soon as there is room."});
  verb.run([arguments] { return run_rerun(*arguments); });
}

}  // namespace berth::cli
