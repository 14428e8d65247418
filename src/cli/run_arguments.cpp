#include "cli/run_arguments.hpp"

#include "cli/options.hpp"
#include "machine/job_store.hpp"
#include "machine/mps.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
Result<CheckedOptions> check(const RunArguments& arguments) {
  CheckedOptions checked;
  if (arguments.command.empty())
    return wrong("no command was given", "write it after two dashes: berth run --mem 20G -- COMMAND");
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
  if (!arguments.detach && (!arguments.name.empty() || !arguments.after.empty() || arguments.time ||
                            arguments.retries > 0 || arguments.json))
    return wrong("--name, --after, --time, --retries and --json are for jobs", "add -d");
  if (!arguments.name.empty() && !is_job_name(arguments.name))
    return wrong("\"" + printable(arguments.name) + "\" is not a valid job name",
                 "begin with a letter; use letters, digits, dots, dashes and underscores; j17 is an id");
  if (arguments.time) {
    const Result<Duration> read = parse_duration(*arguments.time);
    if (!read) return read.error();
    if (*read <= Duration::zero()) return wrong("--time is zero", "give the time that the command may run, as 8h");
    checked.time = *read;
  }
  if (arguments.limit) {
    const std::optional<Limit> limit = limit_named(*arguments.limit);
    if (!limit) return wrong("--limit cannot be '" + *arguments.limit + "'", "use none, watch, framework or mps");
    checked.limit = *limit;
    if (*limit == Limit::watch && !arguments.detach) return wrong("--limit watch works for jobs only", "add -d");
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
                 "--limit mps needs CUDA's MPS control daemon, and none of root's or yours is running",
                 "start it: nvidia-cuda-mps-control -d"};
  return checked;
}

int print_start_error(const Error& error) {
  print_error(error);
  return start_status(error);
}

}  // namespace berth::cli
