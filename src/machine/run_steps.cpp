#include "machine/run_steps.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "berth/bytes.hpp"
#include "inventory/short_id.hpp"
#include "world/printable.hpp"

extern char** environ;

namespace berth::machine {
namespace {

using inventory::short_id;
using world::printable;

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

std::string announcement(const ReservationRequest& wanted, std::span<const Granted> granted,
                         std::span<const DeviceInfo> all, Limit limit, bool mps) {
  const std::vector<DeviceId> ids = ids_of(all);
  std::string text;
  std::size_t slices = 0;
  for (std::size_t i = 0; i < granted.size(); ++i) {
    const std::string strength = strength_of(granted[i], limit, mps);
    const bool repeated = i + 1 < granted.size() && strength_of(granted[i + 1], limit, mps) == strength;
    text +=
        "berth: " + describe(wanted, granted[i], ids) + (repeated || strength.empty() ? "" : "; " + strength) + "\n";
    slices += granted[i].device.id.text().starts_with("MIG-");
  }
  if (slices > 1)
    text +=
        "berth: CUDA shows only one MIG slice to a process; start one process per slice, each with "
        "CUDA_VISIBLE_DEVICES "
        "set to its slice\n";
  return text;
}

Launch make_launch(const Program& program, std::span<const Granted> granted, std::span<const DeviceInfo> all,
                   Limit limit, bool mps, const BackendOptions& backends) {
  CommandEnvironment environment = memory_variables(granted, limit, mps, present_environment());
  environment.variables.merge(visible_to(granted, all));
  if (!backends.simulated_file.empty()) environment.variables["BERTH_SIMULATED"] = backends.simulated_file;
  Launch launch;
  launch.program = program.path;
  launch.arguments = program.arguments;
  launch.environment = std::move(environment.variables);
  launch.removed = std::move(environment.removed);
  launch.cores = cores_of(granted);
  return launch;
}

void put_in_lease(Launch& launch, Ledger& ledger, const LedgerLease& lease, const ScopeLimits& limits) {
  launch.environment["BERTH_LEASE"] = to_string(lease.reference());
  launch.inherited.push_back(lease.descriptor());
  launch.before_start = [&ledger, &lease, limits](pid_t process) {
    const std::optional<std::string> cgroup = open_scope(
        ledger::scope_name(lease.reference()), "Berth lease " + std::to_string(lease.reference().id), process, limits);
    if (!cgroup) return;
    // Without the lock, the cgroup is not recorded, and other signs show whether the lease is alive.
    if (Result<Ledger::Lock> lock = ledger.lock(std::chrono::seconds(1)))
      static_cast<void>(lock->set_cgroup(lease, *cgroup));
  };
}

void give_back(Ledger& ledger, LedgerLease lease) {
  // If the lock is not available, the lease ends when its descriptors are closed.
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

std::string ending_text(const CommandExit& ended) {
  return ended.signal ? "was ended by signal " + std::to_string(ended.signal) + " (" + strsignal(ended.signal) + ")"
                      : "ended with status " + std::to_string(ended.status);
}

}  // namespace berth::machine
