// `berth stop`: ends jobs, those that wait and those that run.

#include <csignal>
#include <cstdio>

#include "cli/command_line.hpp"
#include "cli/job_access.hpp"
#include "ledger/process.hpp"

namespace berth::cli {
namespace {

constexpr Duration grace = std::chrono::seconds(10), look_again = std::chrono::milliseconds(20);

bool is_alive(const ProcessIdentity& process) {
  return process.pid > 1 && ledger::process_state(process, geteuid()) == ledger::ProcessState::alive;
}

// The supervisor ends the command in order; without one, the command itself is asked. A stopped process
// must go on to hear of it.
void ask_to_end(const Job& job, int signal) {
  const JobProgress& progress = job.progress;
  pid_t whom = 0;
  if (job.is_supervised && is_alive(progress.supervisor))
    whom = static_cast<pid_t>(progress.supervisor.pid);
  else if (!job.is_supervised && progress.command && is_alive(*progress.command))
    whom = -static_cast<pid_t>(progress.command->pid);
  if (whom == 0) return;
  kill(whom, signal);
  kill(whom, SIGCONT);
}

// False: it still runs.
bool wait_for_end(const Job& job) {
  if (job.is_supervised) wait_for_supervisor(job.folder);
  const auto runs = [&] { return job.progress.command && is_alive(*job.progress.command); };
  if (job.is_supervised) return true;
  for (const int signal : {SIGKILL, 0}) {
    const Deadline deadline = Deadline::after(real_clock(), grace);
    while (runs() && !deadline.passed(real_clock().now())) real_clock().sleep_for(look_again);
    if (signal != 0 && runs()) ask_to_end(job, signal);
  }
  return !runs();
}

int run_stop(const std::vector<std::string>& names, bool all) {
  const Result<std::vector<Job>> jobs = jobs_named(names, all);
  if (!jobs) return print_error(jobs.error());
  std::vector<const Job*> asked;
  int status = done;
  // Those that wait first: they would take the devices of those that end.
  for (const JobState state : {JobState::waiting, JobState::running}) {
    for (const Job& job : *jobs) {
      if (job.progress.state != state) continue;
      if (job.is_elsewhere) {
        status =
            print_error({ErrorCode::unavailable, "job " + job.id + " runs on " + job.request.machine, "stop it there"});
        continue;
      }
      ask_to_end(job, SIGTERM);
      asked.push_back(&job);
    }
  }
  for (const Job& job : *jobs)
    if (has_ended(job.progress.state)) std::fprintf(stderr, "berth: job %s has ended already\n", job.id.c_str());
  for (const Job* job : asked)
    if (!wait_for_end(*job))
      status = print_error({ErrorCode::unavailable, "job " + job->id + " was killed and does not end",
                            "look at its driver's messages in the kernel's log"});
  return status;
}

}  // namespace

void add_stop(const Verb& command) {
  const auto names = std::make_shared<std::vector<std::string>>();
  const auto all = std::make_shared<bool>(false);
  Verb verb = command.add("stop", "end jobs, those that wait and those that run");
  verb.flag("--all", *all, "all jobs that have not ended");
  verb.argument("JOB", names.get(), "ids or names of jobs", false);
  verb.footer({"The command gets SIGTERM, and SIGKILL ten seconds later. Returns when it has ended."});
  verb.run([names, all] { return run_stop(*names, *all); });
}

}  // namespace berth::cli
