// `berth rm`: removes ended jobs with their output.

#include <algorithm>

#include "cli/command_line.hpp"
#include "cli/job_access.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
namespace {

struct RmArguments {
  std::vector<std::string> names;
  bool ended = false;
  bool force = false;
};

int run_rm(const RmArguments& arguments) {
  if (!arguments.ended && arguments.names.empty())
    return print_error({ErrorCode::invalid_argument, "no job was named",
                        "name one from berth ps -a, or use --ended for all finished jobs"});
  std::vector<Job> jobs;
  if (arguments.ended) {
    const Result<std::string> folder = jobs_folder(IfMissing::accept);
    if (!folder) return print_error(folder.error());
    jobs = list_jobs(*folder);
    std::erase_if(jobs, [&](const Job& job) {
      return !job.has_ended() || (job.progress.state == JobState::unreadable && !arguments.force);
    });
  }
  if (!arguments.names.empty()) {
    Result<std::vector<Job>> named = jobs_named(arguments.names, false, Matching::all, arguments.force);
    if (!named) return print_error(without_effect(named.error(), arguments.names, "nothing was removed"));
    jobs.insert(jobs.end(), named->begin(), named->end());
  }
  int status = done;
  for (const Job& job : jobs)
    if (const Result<void> removed = remove_job(job, arguments.force); !removed)
      status = std::max(status, print_error(removed.error()));
  return status;
}

}  // namespace

void add_rm(const Verb& command) {
  const auto arguments = std::make_shared<RmArguments>();
  Verb verb = command.add("rm", "remove finished jobs and their output");
  verb.flag("--ended", arguments->ended, "remove all finished jobs");
  verb.flag("--force", arguments->force, "also remove unreadable jobs, and jobs of machines that no longer exist");
  verb.argument("JOB", &arguments->names, "ids or names of jobs, or a pattern such as 'sweep-*'", false);
  verb.offer("JOB", {Names::ended_jobs});
  verb.run([arguments] { return run_rm(*arguments); });
}

}  // namespace berth::cli
