// `berth run`: a command on devices that have room. They are promised to it in the
// ledger before it starts and until it ends.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "berth/bytes.hpp"
#include "cli/command_line.hpp"
#include "cli/run_context.hpp"
#include "cli/text/terminal.hpp"
#include "device/deadline_call.hpp"
#include "inventory/short_id.hpp"
#include "machine/launch.hpp"
#include "machine/mps.hpp"
#include "machine/restart_limit.hpp"
#include "machine/scope.hpp"

extern char** environ;

namespace berth::cli {
namespace {

constexpr int not_runnable = 126, not_there = 127;

struct RunArguments {
  RequestArguments request;
  std::vector<std::string> command;
  std::optional<std::string> wait;       // for devices; absent: not at all
  std::optional<std::string> load_lock;  // absent: none
  std::string on_fault = "stop";
  std::optional<std::string> limit;  // see Limit
  bool quiet = false;
};

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

// One line per device with the strength of its memory limit.
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

void give_back(Ledger& ledger, LedgerLease lease) {
  // Without the lock the lease ends when its descriptors are closed.
  if (Result<Ledger::Lock> lock = ledger.lock()) lock->give_back(std::move(lease));
}

Launch make_launch(const RunArguments& arguments, const std::string& program, std::span<const Granted> granted,
                   std::span<const DeviceInfo> all, Limit limit, bool mps, Ledger& ledger, const LedgerLease& lease) {
  CommandEnvironment environment = memory_variables(granted, limit, mps, present_environment());
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

// The devices to avoid in the next try. A fault is a crash, or a failure while a driver
// reported an error on one of the devices. Absent: no fault.
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

// After a fault other devices are tried first, then the same ones.
Result<Reservation> reserve_devices(RunContext& context, const std::vector<DeviceId>& failed, Duration wait,
                                    bool quiet) {
  const auto look = [&] { return context.observer.snapshot(); };
  if (!failed.empty()) {
    ReservationRequest elsewhere = context.wanted;
    elsewhere.requirements.avoid.insert(elsewhere.requirements.avoid.end(), failed.begin(), failed.end());
    Result<Reservation> reserved =
        reserve(*context.ledger, elsewhere, look, Deadline::after(real_clock(), Duration::zero()));
    if (!reserved || reserved->lease) return reserved;
  }
  const auto report = [ids = ids_of(context.observer.devices())](const Progress& progress) {
    std::fprintf(stderr, "berth: waiting, place %zu in line: %s\n", progress.place,
                 printable(with_short_ids(progress.reason, ids)).c_str());
  };
  return reserve(*context.ledger, context.wanted, look, Deadline::after(real_clock(), wait),
                 quiet ? std::function<void(const Progress&)>() : report);
}

// exec() waits for every thread to end, which a thread that is stuck in a driver never
// does.
bool is_stuck_in_a_driver() {
  // Threads whose driver call has returned end within microseconds.
  const Deadline deadline = Deadline::after(real_clock(), std::chrono::milliseconds(100));
  while (device::detached_threads() > 0 && !deadline.passed(real_clock().now()))
    real_clock().sleep_for(std::chrono::microseconds(200));
  return device::detached_threads() > 0;
}

int status_of(const Error& error) {
  print_error(error);
  if (error.code == ErrorCode::not_found) return not_there;
  return error.code == ErrorCode::invalid_argument ? not_runnable : environment_error;
}

std::string ending_text(const CommandExit& ended) {
  return ended.signal ? "was ended by signal " + std::to_string(ended.signal) + " (" + strsignal(ended.signal) + ")"
                      : "ended with status " + std::to_string(ended.status) + " while its device reported an error";
}

Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

// Options that are checked before the machine is read.
struct Checked {
  Duration wait{}, load_lock{};
  Limit limit = Limit::automatic;
  bool restarts = false;
  bool mps = false;
};

Result<Checked> check(const RunArguments& arguments) {
  Checked checked;
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
  if (arguments.limit) {
    const std::optional<Limit> limit = limit_named(*arguments.limit);
    if (!limit) return wrong("--limit cannot be '" + *arguments.limit + "'", "use none, framework or mps");
    checked.limit = *limit;
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

// Executes the command in place of this process, so it returns only where that did not
// happen. With --on-fault restart it stays, and ends this process as the command ended.
int run_command(const RunArguments& arguments) {
  const Result<Checked> checked = check(arguments);
  if (!checked) return print_error(checked.error());
  const Result<std::string> program = find_command(arguments.command.front());
  if (!program) return status_of(program.error());
  Result<RunContext> context = open_run_context(arguments.request);
  if (!context) return print_error(context.error());
  context->wanted.name = program->substr(program->rfind('/') + 1);
  if (checked->load_lock > Duration::zero()) context->wanted.load_lock = checked->load_lock;
  if (checked->limit == Limit::mps) context->wanted.requirements.backends = {"cuda"};

  RestartLimit restarts;
  std::vector<DeviceId> failed;
  std::optional<CommandExit> last;
  for (;;) {
    const TimePoint asked = real_clock().now();
    Result<Reservation> reserved = reserve_devices(*context, failed, checked->wait, arguments.quiet);
    if (!reserved) return print_error(reserved.error());
    record_decision("run", *program, *reserved);
    if (!reserved->lease) {
      const int status =
          print_refusal(*reserved, context->observer.devices(),
                        checked->wait > Duration::zero()
                            ? "gave up after waiting " + duration_text(real_clock().now() - asked) + "; see berth why"
                            : "see berth why, or wait with --wait");
      if (last) exit_like(*last);
      return status;
    }
    const std::vector<Granted> granted = granted_by(context->wanted, *reserved);
    if (!arguments.quiet) announce(context->wanted, granted, context->observer.devices(), checked->limit, checked->mps);
    const Launch command = make_launch(arguments, *program, granted, context->observer.devices(), checked->limit,
                                       checked->mps, *context->ledger, reserved->lease);
    // The command inherits the descriptor of the lease either way.
    if (!checked->restarts && !is_stuck_in_a_driver()) {
      const Error error = exec_command(command);
      give_back(*context->ledger, std::move(reserved->lease));
      return status_of(error);
    }

    const TimePoint began = real_clock().now();
    const Result<CommandExit> ended = launch(command);
    give_back(*context->ledger, std::move(reserved->lease));
    if (!ended) return status_of(ended.error());
    std::optional<std::vector<DeviceId>> fault;
    if (checked->restarts) fault = find_fault(*ended, context->observer, granted, began);
    if (!fault) exit_like(*ended);
    const std::optional<Duration> delay = restarts.next_delay(real_clock().now());
    if (!delay) {
      std::fprintf(stderr, "berth: the command %s; it is not started again, after %zu restarts within a minute\n",
                   ending_text(*ended).c_str(), RestartLimit::restarts_max);
      exit_like(*ended);
    }
    std::fprintf(stderr, "berth: the command %s; it is started again in %s\n", ending_text(*ended).c_str(),
                 duration_text(*delay).c_str());
    real_clock().sleep_for(*delay);
    failed = *std::move(fault);
    last = *ended;
  }
}

}  // namespace

void add_run(const Verb& command) {
  const auto arguments = std::make_shared<RunArguments>();
  Verb verb = command.add("run", "a command on devices that have room, which it holds until it ends");
  add_request_options(verb, arguments->request);
  verb.option("--wait", "TIME", &arguments->wait,
              "wait for devices, at most this long (90s, 5m, 2h, 1d); without it they must be there now");
  verb.option("--priority", "NAME", &arguments->request.priority, "priority while waiting: low, normal or high");
  verb.option("--load-lock", "TIME", &arguments->load_lock,
              "for this long (60s, 5m) no other command with a load lock starts on the same device");
  verb.option(
      "--limit", "HOW", &arguments->limit,
      "how the command is kept within --mem: none; framework (set for PyTorch, JAX and CuPy); mps (by the "
      "driver, per process; needs a running MPS daemon). Without it the limit is set for JAX and CuPy, and MPS is used "
      "where it runs");
  verb.option("--on-fault", "WHAT", &arguments->on_fault,
              "when the command crashes, or fails while its device reports an error: stop, or restart it, on another "
              "device where one has room, at most 3 times in a minute");
  verb.flag("-q,--quiet", arguments->quiet, "print nothing on success");
  verb.argument("COMMAND", &arguments->command, "the command and its arguments, after --", false);
  verb.footer({"The command replaces berth: it has the same process id, and signals and exit status are its own. With "
               "--on-fault restart it is a child of berth, which forwards signals and ends as the command ended.",
               "Environment of the command: CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES (UUIDs), "
               "BERTH_VISIBLE_DEVICES, BERTH_MEMORY_BYTES and BERTH_MEMORY_FRACTION (of each device), BERTH_LEASE. "
               "Unless they are set already: XLA_PYTHON_CLIENT_MEM_FRACTION, CUPY_GPU_MEMORY_LIMIT; with --limit "
               "framework PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF; with MPS CUDA_MPS_PINNED_DEVICE_MEM_LIMIT.",
               "Exit status: that of the command; 127 command not found; 126 it cannot be executed; before it starts: "
               "1 environment error; 2 wrong input or usage; 3 it does not fit."},
              false);
  verb.run([arguments] { return run_command(*arguments); });
}

}  // namespace berth::cli
