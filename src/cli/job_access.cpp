#include "cli/job_access.hpp"

#include <algorithm>

namespace berth::cli {

using namespace machine;
using namespace world;

Result<Job> job_named(const std::string& name, bool unreadable) {
  const Result<std::string> jobs = jobs_folder(IfMissing::accept);
  if (!jobs) return jobs.error();
  Result<Job> job = find_job(*jobs, name);
  if (!job && unreadable) {
    for (Job& listed : list_jobs(*jobs))
      if (listed.id == name) return std::move(listed);
  }
  if (!job && job.error().code == ErrorCode::not_found)
    return Error{ErrorCode::invalid_argument, job.error().message, job.error().advice};
  return job;
}

Result<std::vector<Job>> jobs_named(std::span<const std::string> names, bool all, bool unreadable) {
  std::vector<Job> jobs;
  if (all) {
    const Result<std::string> folder = jobs_folder(IfMissing::accept);
    if (!folder) return folder.error();
    jobs = list_jobs(*folder);
    std::erase_if(jobs, [](const Job& job) { return job.is_elsewhere || job.has_ended(); });
  }
  for (const std::string& name : names) {
    Result<Job> job = job_named(name, unreadable);
    if (!job) return std::move(job).error();
    if (std::none_of(jobs.begin(), jobs.end(), [&](const Job& other) { return other.id == job->id; }))
      jobs.push_back(*std::move(job));
  }
  if (names.empty() && !all)
    return Error{ErrorCode::invalid_argument, "no job was named",
                 "berth ps -a lists them; --all means all that have not ended"};
  return jobs;
}

int status_of(const Job& job) {
  switch (job.progress.state) {
    case JobState::done: return done;
    case JobState::refused: return does_not_fit;
    case JobState::failed: return job.progress.status.value_or(0) != 0 ? *job.progress.status : environment_error;
    default: return environment_error;
  }
}

}  // namespace berth::cli
