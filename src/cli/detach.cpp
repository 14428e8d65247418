#include "cli/detach.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "cli/job_access.hpp"
#include "machine/job_control.hpp"

namespace berth::cli {

using namespace machine;
namespace {

// The ids of the jobs to wait for; those that have already ended are left out.
Result<std::vector<std::string>> ids_after(const std::vector<std::string>& lists, bool any_end) {
  std::vector<std::string> names, ids;
  for (const std::string& list : lists) {
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t comma = std::min(list.find(',', at), list.size());
      names.push_back(list.substr(at, comma - at));
      at = comma + 1;
    }
  }
  if (names.empty()) return ids;
  const std::vector<Job> jobs = BERTH_TRY(jobs_named(names, false, Matching::newest));
  for (const Job& job : jobs)
    if (job.progress.state != JobState::done && !(any_end && job.has_ended())) ids.push_back(job.id);
  return ids;
}

Result<JobOrder> order_of(const RunArguments& arguments, const CheckedOptions& checked) {
  JobOrder order;
  order.name = arguments.name;
  order.command = arguments.command;
  order.devices = checked.devices;
  if (arguments.wait) order.wait = checked.wait;
  order.limit = checked.limit;
  order.after = BERTH_TRY(ids_after(arguments.after, false));
  order.after_any = BERTH_TRY(ids_after(arguments.after_any, true));
  order.begin_us = checked.begin_us;
  order.time = checked.time;
  order.retries = arguments.retries;
  order.restarts_on_fault = checked.restarts;
  order.quiet = arguments.quiet;
  order.output = arguments.output.value_or("");
  order.notify = arguments.notify.value_or("");
  order.by_hand = true;
  order.options = arguments.options;
  return order;
}

boost::json::object to_json(const Job& job) { return {{"job", job.id}, {"folder", job.folder}}; }

}  // namespace

std::string with_index(std::string text, std::uint32_t index) {
  const std::string number = std::to_string(index);
  for (std::size_t at = 0; (at = text.find("{}", at)) != std::string::npos; at += number.size())
    text.replace(at, 2, number);
  return text;
}

int print_started(std::span<const Job> jobs, bool json, bool is_list) {
  std::string text;
  boost::json::array list;
  for (const Job& job : jobs) {
    text += job.id + "\n";
    list.push_back(to_json(job));
  }
  if (!json) return print(text);
  if (!is_list && jobs.size() == 1) return print(boost::json::serialize(list.front()) + "\n");
  return print(boost::json::serialize(boost::json::object{{"jobs", std::move(list)}}) + "\n");
}

int run_detached(const RunArguments& arguments, const CheckedOptions& checked) {
  const Result<std::string> folder = jobs_folder();
  if (!folder) return print_error(folder.error());
  const Result<JobOrder> order = order_of(arguments, checked);
  if (!order) return print_error(order.error());
  if (const auto room = check_waiting_limit(*folder, std::max<std::size_t>(1, checked.array.size())); !room)
    return print_error(room.error());
  const std::size_t count = checked.array.size();
  const auto has_braces = [](const std::string& word) { return word.find("{}") != std::string::npos; };
  if (count > 1 && !arguments.quiet && std::none_of(order->command.begin(), order->command.end(), has_braces))
    print_note("the command does not contain {}; all " + std::to_string(count) + " jobs run the same command");
  std::vector<Job> jobs;
  const auto start = [&](const JobOrder& job_order) -> Result<void> {
    jobs.push_back(BERTH_TRY(start_job(*folder, job_order)));
    return {};
  };
  Result<void> started;
  if (checked.array.empty()) started = start(*order);
  for (std::size_t i = 0; i < checked.array.size() && started; ++i) {
    const std::uint32_t index = checked.array[i];
    JobOrder member = *order;
    member.name += "-" + std::to_string(index);
    for (std::string& word : member.command) word = with_index(std::move(word), index);
    member.output = with_index(std::move(member.output), index);
    started = start(member);
  }
  const int printed = jobs.empty() ? 0 : print_started(jobs, arguments.json, !checked.array.empty());
  return started ? printed : print_error(started.error());
}

}  // namespace berth::cli
