#include "cli/detach.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "machine/job_control.hpp"

namespace berth::cli {

using namespace machine;
namespace {

// The ids of the jobs to wait for; those that have ended well are left out.
Result<std::vector<std::string>> ids_after(const std::vector<std::string>& lists, const std::string& jobs) {
  std::vector<std::string> ids;
  for (const std::string& names : lists) {
    for (std::size_t at = 0; at <= names.size();) {
      const std::size_t comma = std::min(names.find(',', at), names.size());
      const Result<Job> job = find_job(jobs, names.substr(at, comma - at));
      if (!job) return Error{ErrorCode::invalid_argument, job.error().message, job.error().advice};
      if (job->progress.state != JobState::done) ids.push_back(job->id);
      at = comma + 1;
    }
  }
  return ids;
}

}  // namespace

int run_detached(const RunArguments& arguments, const CheckedOptions& checked) {
  const Result<std::string> jobs = jobs_folder();
  if (!jobs) return print_error(jobs.error());
  Result<std::vector<std::string>> after = ids_after(arguments.after, *jobs);
  if (!after) return print_error(after.error());
  JobOrder order;
  order.name = arguments.name;
  order.command = arguments.command;
  order.devices = checked.devices;
  if (arguments.wait) order.wait = checked.wait;
  order.limit = checked.limit;
  order.after = *std::move(after);
  order.time = checked.time;
  order.retries = arguments.retries;
  order.restarts_on_fault = checked.restarts;
  order.quiet = arguments.quiet;
  if (!arguments.request.memory.empty()) order.options = {"--mem", arguments.request.memory};
  if (arguments.request.count > 1) {
    order.options.emplace_back("-n");
    order.options.push_back(std::to_string(arguments.request.count));
  }
  const Result<Job> job = start_job(*jobs, order);
  if (!job) return print_error(job.error());
  if (arguments.json)
    return print(boost::json::serialize(boost::json::object{{"job", job->id}, {"folder", job->folder}}) + "\n");
  return print(job->id + "\n");
}

}  // namespace berth::cli
