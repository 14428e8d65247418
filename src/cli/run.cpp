#include "cli/run.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "berth/bytes.hpp"
#include "cli/terminal.hpp"
#include "inventory/short_id.hpp"
#include "machine/command_environment.hpp"
#include "machine/launch.hpp"
#include "machine/mps.hpp"
#include "machine/record_store.hpp"
#include "machine/restart_limit.hpp"
#include "machine/scope.hpp"

extern char** environ;

namespace berth::cli {
namespace {

namespace json = boost::json;

constexpr int not_runnable = 126, not_there = 127;

Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice), {}, {}};
}

// Everything a decision needs, opened in the order in which things can be wrong.
struct Inputs {
  ReservationRequest wanted;
  MachineObserver observer;
  std::shared_ptr<Ledger> ledger;
};

// Of devices, as they stand in the arguments.
std::vector<std::string> names_in(const RequestArguments& arguments) {
  std::vector<std::string> names = arguments.only;
  names.insert(names.end(), arguments.avoid.begin(), arguments.avoid.end());
  names.insert(names.end(), arguments.prefer.begin(), arguments.prefer.end());
  if (!arguments.near.empty()) names.push_back(arguments.near);
  return names;
}

Result<Inputs> open_inputs(const RequestArguments& arguments) {
  Result<ReservationRequest> wanted = read_request(arguments);
  if (!wanted) return std::move(wanted).error();
  Result<MachineObserver> observer =
      MachineObserver::open({arguments.backend, arguments.backends, false, names_in(arguments),
                             arguments.count > 1 || !arguments.near.empty()});
  if (!observer) return std::move(observer).error();
  const bool named = arguments.backend || !arguments.only.empty();
  if (!named && observer->accelerator_error()) return *observer->accelerator_error();
  for (const Machine::Problem& problem : observer->problems()) {
    if (problem.named) return problem.error;
    complain(problem.error);
  }
  observer->include_fallback(named);
  const MachineSnapshot observed = observer->listed();
  if (Result<void> resolved = resolve_devices(arguments, observed, wanted->hints); !resolved)
    return std::move(resolved).error();
  if (Result<void> kept = keep_to_whole_gpus(observed, *wanted); !kept) return std::move(kept).error();
  Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return std::move(ledger).error();
  return Inputs{*std::move(wanted), *std::move(observer), *std::move(ledger)};
}

// A record is a convenience: without it the decision is carried out all the same.
void keep_record(std::string_view verb, const std::string& program, const Reservation& decided) {
  const Result<std::string> folder = decisions_folder();
  if (!folder) return;
  static_cast<void>(
      store_record(*folder, make_record(verb, program, decided.explanation, decided.views, decided.observed.topology)));
}

std::vector<DeviceId> ids_of(std::span<const DeviceInfo> devices) {
  std::vector<DeviceId> ids;
  for (const DeviceInfo& device : devices) ids.push_back(device.id);
  return ids;
}

int refuse(const Reservation& decided, std::span<const DeviceInfo> all, std::string advice) {
  const std::vector<DeviceId> ids = ids_of(all);
  if (decided.never) advice = "this machine cannot serve it even when idle";
  if (decided.within) {
    advice = "this runs inside lease " + std::to_string(decided.within->id) + ", which " +
             (decided.never ? "is smaller than that" : "has no more left") +
             "; env -u BERTH_LEASE berth ... asks the machine instead";
  }
  std::fprintf(stderr, "berth: %s; %s\n  %s\n", printable(with_short_ids(decided.explanation.reason(), ids)).c_str(),
               advice.c_str(), printable(with_short_ids(decided.explanation.funnel_text(), ids)).c_str());
  return does_not_fit;
}

std::vector<Granted> granted_by(const ReservationRequest& wanted, const Reservation& decided) {
  std::vector<Granted> granted;
  for (const std::size_t winner : decided.winners) {
    const DeviceInfo& device = decided.observed.devices[winner].info;
    granted.push_back({device, wanted.hints.memory_bytes_needed(device).value_or(0)});
  }
  return granted;
}

std::string describe(const ReservationRequest& wanted, const Granted& granted, std::span<const DeviceId> all) {
  const DeviceInfo& device = granted.device;
  std::string text = printable(short_id(device.id, all));
  if (!device.name.empty()) text += " (" + printable(device.name) + ")";
  if (granted.memory_bytes) {
    text += ", " + bytes_text(granted.memory_bytes);
    if (device.memory_bytes_total) text += " of " + bytes_text(*device.memory_bytes_total);
  }
  if (wanted.hints.exclusive) text += granted.memory_bytes ? ", alone" : ", all of it";
  return text;
}

// Where the command runs, a line per device, and how strong the limits are.
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
  // Without the lock the lease ends with its descriptors.
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
    // Where the lock is not to be had the other signs of life have to do.
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

// The devices to avoid next time, where the command died of something that another
// try may survive: it crashed, or it failed and a driver reported an error on one of
// its devices meanwhile. Absent: it was no fault.
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

// After a fault first elsewhere; the same device again only where no other has room.
Result<Reservation> reserve_devices(Inputs& inputs, const std::vector<DeviceId>& failed, Duration wait, bool quiet) {
  const auto look = [&] { return inputs.observer.snapshot(); };
  if (!failed.empty()) {
    ReservationRequest elsewhere = inputs.wanted;
    elsewhere.hints.avoid.insert(elsewhere.hints.avoid.end(), failed.begin(), failed.end());
    Result<Reservation> reserved =
        reserve(*inputs.ledger, elsewhere, look, Deadline::after(real_clock(), Duration::zero()));
    if (!reserved || reserved->lease) return reserved;
  }
  const auto told = [ids = ids_of(inputs.observer.devices())](const Progress& progress) {
    std::fprintf(stderr, "berth: waiting, place %zu in line: %s\n", progress.place,
                 printable(with_short_ids(progress.reason, ids)).c_str());
  };
  return reserve(*inputs.ledger, inputs.wanted, look, Deadline::after(real_clock(), wait),
                 quiet ? std::function<void(const Progress&)>() : told);
}

// exec() waits for every thread to end, and one that is stuck in a driver does not.
bool is_stuck_in_a_driver() {
  // Threads that have answered end within microseconds.
  const Deadline deadline = Deadline::after(real_clock(), std::chrono::milliseconds(100));
  while (threads_under_way() > 0 && !deadline.passed(real_clock().now()))
    real_clock().sleep_for(std::chrono::microseconds(200));
  return threads_under_way() > 0;
}

int status_of(const Error& error) {
  complain(error);
  if (error.code == ErrorCode::not_found) return not_there;
  return error.code == ErrorCode::invalid_argument ? not_runnable : world_failed;
}

std::string ending_text(const CommandExit& ended) {
  return ended.signal ? "was ended by signal " + std::to_string(ended.signal) + " (" + strsignal(ended.signal) + ")"
                      : "ended with status " + std::to_string(ended.status) + " while its device reported an error";
}

// Options that are checked before anything is promised or waited for.
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
                 "start it: nvidia-cuda-mps-control -d",
                 {},
                 {}};
  return checked;
}

}  // namespace

int run_run(const RunArguments& arguments) {
  const Result<Checked> checked = check(arguments);
  if (!checked) return complain(checked.error());
  const Result<std::string> program = find_command(arguments.command.front());
  if (!program) return status_of(program.error());
  Result<Inputs> inputs = open_inputs(arguments.request);
  if (!inputs) return complain(inputs.error());
  inputs->wanted.name = program->substr(program->rfind('/') + 1);
  if (checked->load_lock > Duration::zero()) inputs->wanted.load_lock = checked->load_lock;
  if (checked->limit == Limit::mps) inputs->wanted.hints.backend = "cuda";

  RestartLimit restarts;
  std::vector<DeviceId> failed;
  std::optional<CommandExit> last;
  for (;;) {
    const TimePoint asked = real_clock().now();
    Result<Reservation> reserved = reserve_devices(*inputs, failed, checked->wait, arguments.quiet);
    if (!reserved) return complain(reserved.error());
    keep_record("run", *program, *reserved);
    if (!reserved->lease) {
      const int status =
          refuse(*reserved, inputs->observer.devices(),
                 checked->wait > Duration::zero()
                     ? "gave up after waiting " + duration_text(real_clock().now() - asked) + "; berth why says more"
                     : "berth why says more, --wait waits for room");
      if (last) exit_like(*last);
      return status;
    }
    const std::vector<Granted> granted = granted_by(inputs->wanted, *reserved);
    if (!arguments.quiet) announce(inputs->wanted, granted, inputs->observer.devices(), checked->limit, checked->mps);
    const Launch command = make_launch(arguments, *program, granted, inputs->observer.devices(), checked->limit,
                                       checked->mps, *inputs->ledger, reserved->lease);
    // The command inherits the lease's descriptor, in this process or below it.
    if (!checked->restarts && !is_stuck_in_a_driver()) {
      const Error error = exec_command(command);
      give_back(*inputs->ledger, std::move(reserved->lease));
      return status_of(error);
    }

    const TimePoint began = real_clock().now();
    const Result<CommandExit> ended = launch(command);
    give_back(*inputs->ledger, std::move(reserved->lease));
    if (!ended) return status_of(ended.error());
    std::optional<std::vector<DeviceId>> fault;
    if (checked->restarts) fault = find_fault(*ended, inputs->observer, granted, began);
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

int run_pick(const PickArguments& arguments) {
  Result<Inputs> inputs = open_inputs(arguments.request);
  if (!inputs) return complain(inputs.error());
  const Result<Reservation> decided =
      decide_once(*inputs->ledger, inputs->wanted, [&] { return inputs->observer.snapshot(); });
  if (!decided) return complain(decided.error());
  keep_record("pick", {}, *decided);
  const std::vector<Granted> granted = granted_by(inputs->wanted, *decided);
  if (granted.empty() && !arguments.json) return refuse(*decided, inputs->observer.devices(), "berth why says more");
  std::string text;
  if (arguments.json) {
    json::object out{{"policy", decided->explanation.policy}};
    json::array picked;
    for (const std::size_t winner : decided->winners) {
      const DeviceView& view = decided->views[winner];
      json::object entry{{"id", view.info->id.text()}, {"backend", view.info->backend}, {"name", view.info->name}};
      if (const Maybe available = view.memory_bytes_available()) entry["memory_bytes_available"] = *available;
      picked.push_back(std::move(entry));
    }
    out["devices"] = std::move(picked);
    if (granted.empty()) out["reason"] = decided->explanation.reason();
    text = json::serialize(out) + "\n";
  } else if (arguments.environment) {
    text = "CUDA_VISIBLE_DEVICES=" + visible_to(granted, inputs->observer.devices())["CUDA_VISIBLE_DEVICES"] + "\n";
  } else {
    for (const Granted& grant : granted) text += grant.device.id.text() + "\n";
  }
  const int printed = print(text);
  return printed != done ? printed : granted.empty() ? does_not_fit : done;
}

}  // namespace berth::cli
