#include "cli/run_steps.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "berth/bytes.hpp"
#include "cli/text/terminal.hpp"
#include "inventory/short_id.hpp"
#include "machine/job_store.hpp"
#include "machine/mps.hpp"
#include "machine/scope.hpp"

extern char** environ;

namespace berth::cli {
namespace {

constexpr int not_runnable = 126, not_there = 127;

Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

std::string describe(const ReservationRequest& wanted, const Granted& granted, std::span<const DeviceId> all) {
  const DeviceInfo& device = granted.device;
  std::string text = printable(short_id(device.id, all));
  if (!device.name.empty()) text += " (" + printable(device.name) + ")";
  if (granted.memory_bytes) {
    text += ", " + bytes_text(granted.memory_bytes);
    if (device.memory_bytes_total) text += " of " + bytes_text(*device.memory_bytes_total);
  }
  if (wanted.requirements.exclusive) text += granted.memory_bytes ? ", exclusive" : ", whole device";
  return text;
}

std::map<std::string, std::string> present_environment() {
  std::map<std::string, std::string> present;
  for (char** at = environ; *at; ++at) {
    const std::string entry = *at;
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) present.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return present;
}

std::vector<unsigned> cores_of(std::span<const Granted> granted) {
  std::vector<unsigned> cores;
  for (const Granted& grant : granted) {
    const auto label = grant.device.labels.find("cores");
    if (grant.device.backend != "host" || label == grant.device.labels.end()) return {};
    std::istringstream numbers(label->second);
    for (std::string number; std::getline(numbers, number, ',');)
      cores.push_back(static_cast<unsigned>(std::strtoul(number.c_str(), nullptr, 10)));
  }
  return cores;
}

}  // namespace

Result<CheckedOptions> check(const RunArguments& arguments) {
  CheckedOptions checked;
  if (arguments.command.empty())
    return wrong("no command was given", "write it after two dashes: berth run --mem 20G -- COMMAND");
  if (arguments.on_fault != "stop" && arguments.on_fault != "restart")
    return wrong("--on-fault cannot be '" + arguments.on_fault + "'", "use stop or restart");
  checked.restarts = arguments.on_fault == "restart";
  for (const auto& [text, into] :
       {std::pair(&arguments.wait, &checked.wait), std::pair(&arguments.load_lock, &checked.load_lock)}) {
    if (!*text) continue;
    const Result<Duration> read = parse_duration(**text);
    if (!read) return read.error();
    *into = *read;
  }
  if (!arguments.detach && (!arguments.name.empty() || !arguments.after.empty() || arguments.time ||
                            arguments.retries > 0 || arguments.json))
    return wrong("--name, --after, --time, --retries and --json are for jobs", "add -d");
  if (!arguments.name.empty() && !is_job_name(arguments.name))
    return wrong("\"" + printable(arguments.name) + "\" is no name for a job",
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
    if (*limit == Limit::watch && !arguments.detach)
      return wrong("--limit watch needs a supervisor, which a command in place of berth has not", "add -d");
  }
  checked.mps = mps_control_socket().has_value();
  if (checked.limit != Limit::mps) return checked;
  if (arguments.request.backend && *arguments.request.backend != "cuda")
    return wrong("MPS cannot limit " + *arguments.request.backend + " devices", "use --backend cuda with --limit mps");
  if (!checked.mps)
    return Error{ErrorCode::unavailable,
                 "--limit mps needs CUDA's MPS control daemon, and none of root's or yours is running",
                 "start it: nvidia-cuda-mps-control -d"};
  return checked;
}

Result<RunContext> open_run_context(const RunArguments& arguments, const CheckedOptions& checked,
                                    const std::string& program) {
  Result<RunContext> context = open_run_context(arguments.request);
  if (!context) return context;
  context->wanted.name = program.substr(program.rfind('/') + 1);
  if (checked.load_lock > Duration::zero()) context->wanted.load_lock = checked.load_lock;
  if (checked.limit == Limit::mps) context->wanted.requirements.backends = {"cuda"};
  return context;
}

Result<Reservation> reserve_devices(RunContext& context, const std::vector<DeviceId>& failed, Deadline deadline,
                                    const std::function<void(const Progress&)>& waiting) {
  const auto look = [&] { return context.observer.snapshot(); };
  if (!failed.empty()) {
    ReservationRequest elsewhere = context.wanted;
    elsewhere.requirements.avoid.insert(elsewhere.requirements.avoid.end(), failed.begin(), failed.end());
    Result<Reservation> reserved =
        reserve(*context.ledger, elsewhere, look, Deadline::after(real_clock(), Duration::zero()));
    if (!reserved || reserved->lease) return reserved;
  }
  return reserve(*context.ledger, context.wanted, look, deadline, waiting);
}

void announce(const ReservationRequest& wanted, std::span<const Granted> granted, std::span<const DeviceInfo> all,
              Limit limit, bool mps) {
  const std::vector<DeviceId> ids = ids_of(all);
  std::size_t slices = 0;
  for (std::size_t i = 0; i < granted.size(); ++i) {
    const std::string strength = strength_of(granted[i], limit, mps);
    const bool repeated = i + 1 < granted.size() && strength_of(granted[i + 1], limit, mps) == strength;
    std::fprintf(stderr, "berth: %s%s\n", describe(wanted, granted[i], ids).c_str(),
                 repeated ? "" : ("; " + strength).c_str());
    slices += granted[i].device.id.text().starts_with("MIG-");
  }
  if (slices > 1) {
    std::fprintf(
        stderr,
        "berth: CUDA shows one MIG slice to a process; start a process for each, with CUDA_VISIBLE_DEVICES set "
        "to one of them\n");
  }
}

Launch make_launch(const RunArguments& arguments, const std::string& program, std::span<const Granted> granted,
                   std::span<const DeviceInfo> all, const CheckedOptions& checked, Ledger& ledger,
                   const LedgerLease& lease) {
  CommandEnvironment environment = memory_variables(granted, checked.limit, checked.mps, present_environment());
  environment.variables.merge(visible_to(granted, all));
  if (!arguments.request.backends.simulated_file.empty())
    environment.variables["BERTH_SIMULATED"] = arguments.request.backends.simulated_file;
  environment.variables["BERTH_LEASE"] = to_string(lease.reference());
  const auto open_its_scope = [&ledger, &lease](pid_t process) {
    const std::optional<std::string> cgroup = open_scope(
        ledger::scope_name(lease.reference()), "Berth lease " + std::to_string(lease.reference().id), process);
    if (!cgroup) return;
    // Without the lock the lease is known by its other signs of life.
    if (Result<Ledger::Lock> lock = ledger.lock(std::chrono::seconds(1)))
      static_cast<void>(lock->set_cgroup(lease, *cgroup));
  };
  return {program,
          arguments.command,
          std::move(environment.variables),
          std::move(environment.removed),
          cores_of(granted),
          {lease.descriptor()},
          open_its_scope};
}

void give_back(Ledger& ledger, LedgerLease lease) {
  // Without the lock the lease ends when its descriptors are closed.
  if (Result<Ledger::Lock> lock = ledger.lock()) lock->give_back(std::move(lease));
}

std::optional<std::vector<DeviceId>> find_fault(const CommandExit& ended, MachineObserver& observer,
                                                std::span<const Granted> granted, TimePoint began) {
  if (ended.was_signalled || ended.status == 0) return std::nullopt;
  for (const int request : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (ended.signal == request) return std::nullopt;
  }
  const MachineSnapshot observed = observer.snapshot();
  const auto shares_fault = [](const DeviceInfo& a, const DeviceInfo& b) {
    return a.id == b.id || (!a.fault_domain.empty() && a.fault_domain == b.fault_domain);
  };
  std::vector<DeviceId> used, reported;
  for (const ObservedDevice& seen : observed.devices) {
    if (std::none_of(granted.begin(), granted.end(),
                     [&](const Granted& grant) { return shares_fault(grant.device, seen.info); }))
      continue;
    used.push_back(seen.info.id);
    if (seen.telemetry && std::any_of(seen.telemetry->load.events.begin(), seen.telemetry->load.events.end(),
                                      [&](const DeviceEvent& event) { return event.at >= began; }))
      reported.push_back(seen.info.id);
  }
  if (!reported.empty()) return reported;
  return ended.signal ? std::optional(used) : std::nullopt;
}

int print_start_error(const Error& error) {
  print_error(error);
  if (error.code == ErrorCode::not_found) return not_there;
  return error.code == ErrorCode::invalid_argument ? not_runnable : environment_error;
}

std::string ending_text(const CommandExit& ended) {
  return ended.signal ? "was ended by signal " + std::to_string(ended.signal) + " (" + strsignal(ended.signal) + ")"
                      : "ended with status " + std::to_string(ended.status) + " while its device reported an error";
}

}  // namespace berth::cli
