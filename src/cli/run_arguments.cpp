#include "cli/run_arguments.hpp"

#include <charconv>
#include <set>

#include "cli/options.hpp"
#include "machine/job_store.hpp"
#include "machine/mps.hpp"
#include "world/time_to_come.hpp"
#include "world/wall_time.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
namespace {

constexpr std::size_t array_jobs_max = 1000;
constexpr std::uint32_t array_index_max = 1'000'000;

// "1-8", "3", "0-3,7".
Result<std::vector<std::uint32_t>> indices_of(const std::string& text) {
  std::set<std::uint32_t> indices;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](std::uint32_t& into) {
    const auto [rest, error] = std::from_chars(at, end, into);
    at = rest;
    return error == std::errc() && into <= array_index_max;
  };
  for (bool more = true; more;) {
    std::uint32_t first = 0, last = 0;
    bool read = number(first);
    last = first;
    if (read && at != end && *at == '-') read = (++at, number(last));
    more = read && at != end && *at == ',';
    if (!read || last < first || (at != end && !more))
      return wrong("--array cannot be '" + printable(text) + "'",
                   "write it like 1-8, or like 0-3,7 for indices 0 to 3 and 7");
    if (last - first >= array_jobs_max || indices.size() > array_jobs_max) break;
    for (std::uint32_t index = first; index <= last; ++index) indices.insert(index);
    if (more) ++at;
    if (!more && indices.size() <= array_jobs_max) return std::vector(indices.begin(), indices.end());
  }
  return wrong("--array " + printable(text) + " is more than " + std::to_string(array_jobs_max) + " jobs",
               "start several smaller arrays");
}

Result<void> check_array(const RunArguments& arguments, CheckedOptions& checked) {
  checked.array = BERTH_TRY(indices_of(*arguments.array));
  if (arguments.name.empty())
    return wrong("the jobs of an array need a name", "add --name sweep for jobs sweep-1, sweep-2 and so on");
  if (arguments.output && arguments.output->find("{}") == std::string::npos && checked.array.size() > 1)
    return wrong("the jobs of the array would all write to " + printable(*arguments.output),
                 "put the index into its name: --output log-{}.txt");
  return {};
}

// Checks the options that are valid only for jobs.
Result<void> check_job_options(const RunArguments& arguments, CheckedOptions& checked) {
  for (const auto& [option, given] : {std::pair("--name", !arguments.name.empty()),
                                      {"--after", !arguments.after.empty()},
                                      {"--after-any", !arguments.after_any.empty()},
                                      {"--begin", arguments.begin.has_value()},
                                      {"--array", arguments.array.has_value()},
                                      {"--retries", arguments.retries > 0},
                                      {"--output", arguments.output.has_value()},
                                      {"--notify", arguments.notify.has_value()},
                                      {"--json", arguments.json}})
    if (given && !arguments.detach) return wrong(std::string(option) + " works only for jobs", "add -d");
  if (arguments.array) BERTH_TRY(check_array(arguments, checked));
  const std::string longest =
      arguments.name + (checked.array.empty() ? "" : "-" + std::to_string(checked.array.back()));
  if (!arguments.name.empty() && !is_job_name(longest))
    return wrong(
        "\"" + printable(arguments.name) + "\" is not a valid job name",
        "begin with a letter; use letters, digits, dots, dashes and underscores; names like j17 are reserved for ids");
  if (arguments.begin) checked.begin_us = BERTH_TRY(parse_time_to_come(*arguments.begin, wall_time_us()));
  if (arguments.output && printable(*arguments.output) != *arguments.output)
    return wrong("--output is not a valid file name", "give a path without control characters, such as train.log");
  return {};
}

}  // namespace

Result<CheckedOptions> check(const RunArguments& arguments) {
  CheckedOptions checked;
  if (arguments.command.empty())
    return wrong("no command was given", "put it after two dashes: berth run --mem 20G -- COMMAND");
  if (arguments.on_fault != "stop" && arguments.on_fault != "restart")
    return wrong("--on-fault cannot be '" + arguments.on_fault + "'", "use stop or restart");
  checked.restarts = arguments.on_fault == "restart";
  Duration load_lock{};
  for (const auto& [text, into] :
       {std::pair(&arguments.wait, &checked.wait), std::pair(&arguments.load_lock, &load_lock)}) {
    if (!*text) continue;
    const Result<Duration> read = parse_duration(**text);
    if (!read) return read.error();
    *into = *read;
  }
  if (Result<void> wrong_for_job = check_job_options(arguments, checked); !wrong_for_job)
    return std::move(wrong_for_job).error();
  if (arguments.time) {
    const Result<Duration> read = parse_duration(*arguments.time);
    if (!read) return read.error();
    if (*read <= Duration::zero()) return wrong("--time is zero", "give the time that the command may run, such as 8h");
    checked.time = *read;
  }
  if (arguments.limit) {
    const std::optional<Limit> limit = limit_named(*arguments.limit);
    if (!limit) return wrong("--limit cannot be '" + *arguments.limit + "'", "use none, watch, framework or mps");
    checked.limit = *limit;
    if (*limit == Limit::watch && !arguments.detach) return wrong("--limit watch works only for jobs", "add -d");
  }
  Result<DeviceRequest> devices = read_request(arguments.request);
  if (!devices) return std::move(devices).error();
  checked.devices = *std::move(devices);
  if (load_lock > Duration::zero()) checked.devices.load_lock = load_lock;
  if (checked.limit != Limit::mps) return checked;
  if (arguments.request.backend && *arguments.request.backend != "cuda")
    return wrong("MPS cannot limit " + *arguments.request.backend + " devices", "use --backend cuda with --limit mps");
  checked.devices.requirements.backends = {"cuda"};
  if (!mps_control_socket())
    return Error{ErrorCode::unavailable,
                 "--limit mps needs CUDA's MPS control daemon, and neither root nor you are running one",
                 "start it: nvidia-cuda-mps-control -d"};
  return checked;
}

int print_start_error(const Error& error) {
  print_error(error);
  return start_status(error);
}

}  // namespace berth::cli
