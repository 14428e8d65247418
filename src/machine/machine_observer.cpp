#include "machine/machine_observer.hpp"

#include <unistd.h>

#include <algorithm>

#include "device/query.hpp"
#include "inventory/listed_topology.hpp"
#include "ledger/nesting.hpp"
#include "machine/this_node.hpp"
#include "machine/wait_queue.hpp"
#include "world/user_name.hpp"

namespace berth::machine {

namespace {

ObservedDevice observed_device(inventory::DeviceRow row) {
  ObservedDevice device;
  device.health = health_of(row);
  device.info = std::move(row.info);
  if (!row.error) device.telemetry = std::move(row.seen);
  if (device.telemetry && device.telemetry->processes) {
    for (const DeviceProcess& process : *device.telemetry->processes)
      device.processes.push_back({process.pid, process.memory_bytes.value_or(0), ledger::trace_process(process.pid)});
  }
  return device;
}

// The entries that hold the device, and their processes on it.
std::vector<inventory::DeviceLease> leases_on(const ObservedDevice& device, const LedgerSnapshot& snapshot,
                                              TimePoint now) {
  std::vector<inventory::DeviceLease> leases;
  ledger::Nesting nesting(snapshot);
  const ledger::ProcessOwners owners(snapshot, device.processes);
  for (const LedgerEntry& entry : snapshot.entries) {
    const Claim* const claim = entry.claim_on(device.info.id);
    if (!claim || entry.kind == EntryKind::waiting) continue;
    const bool whole = claim->exclusive && claim->memory_bytes == device.info.memory_bytes_total.value_or(0);
    inventory::DeviceLease lease{
        entry.id(),       world::user_name(entry.user),    entry.name, entry.holder.pid, now - entry.since,
        claim->exclusive, whole ? 0 : claim->memory_bytes, {}};
    if (const LedgerEntry* const outer = nesting.outer_of(entry))
      lease.within = inventory::LeaseKey{outer->user, outer->id()};
    lease.user_id = entry.user;
    lease.file = entry.reference.file;
    for (std::size_t p = 0; p < device.processes.size(); ++p) {
      if (owners.owner(p) == &entry) lease.processes.push_back(device.processes[p].pid);
    }
    leases.push_back(std::move(lease));
  }
  return leases;
}

void attribute_processes(inventory::DeviceRow& row, const ObservedDevice& device, const LedgerSnapshot& snapshot) {
  if (!row.seen || !row.seen->processes) return;
  std::vector<DeviceProcess>& processes = *row.seen->processes;
  for (std::size_t p = 0; p < processes.size() && p < device.processes.size(); ++p) {
    if (processes[p].kind == ProcessKind::foreign && ledger::owner_of(device.processes[p].trace, snapshot))
      processes[p].kind = ProcessKind::berth;
  }
  const LoadSample& load = row.seen->load;
  if (load.memory_bytes_total && load.memory_bytes_free && row.seen->memory_use.foreign)
    row.seen->memory_use = attribute_memory(*load.memory_bytes_total - *load.memory_bytes_free, processes);
}

std::vector<WaitingLease> waiting_in(const LedgerSnapshot& snapshot, const MachineSnapshot& observed, TimePoint now) {
  const std::vector<WaitingRequest> line = wait_queue(snapshot, now);
  const auto is_whole = [&](const Claim& claim) {
    return claim.exclusive && std::any_of(observed.devices.begin(), observed.devices.end(), [&](const auto& device) {
             return device.info.id == claim.device && device.info.memory_bytes_total.value_or(0) == claim.memory_bytes;
           });
  };
  std::vector<WaitingLease> out;
  for (const LedgerEntry& entry : snapshot.entries) {
    if (entry.kind != EntryKind::waiting) continue;
    WaitingLease waiting{entry.id(), world::user_name(entry.user), entry.name, entry.holder.pid, now - entry.since, {},
                         entry.count};
    const auto me = std::find_if(line.begin(), line.end(),
                                 [&](const WaitingRequest& other) { return other.reference == entry.reference; });
    if (me != line.end()) waiting.place = static_cast<std::size_t>(me - line.begin()) + 1;
    if (!entry.claims.empty() && !std::all_of(entry.claims.begin(), entry.claims.end(), is_whole))
      waiting.memory_bytes = entry.claims.front().memory_bytes;
    waiting.exclusive = entry.is_exclusive();
    waiting.user_id = entry.user;
    out.push_back(std::move(waiting));
  }
  std::stable_sort(out.begin(), out.end(), [](const WaitingLease& a, const WaitingLease& b) {
    return a.place.value_or(~std::size_t{0}) < b.place.value_or(~std::size_t{0});
  });
  return out;
}

}  // namespace

Result<void> add_ledger(std::vector<inventory::DeviceRow>& rows, std::vector<WaitingLease>* waiting,
                        std::optional<LedgerSnapshot>* last) {
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return ledger.error();
  Result<LedgerSnapshot> snapshot = (*ledger)->snapshot();
  if (!snapshot && last && *last && snapshot.error().code == ErrorCode::timeout) snapshot = **last;
  if (!snapshot) return std::move(snapshot).error();
  if (last) *last = *snapshot;
  const TimePoint now = (*ledger)->clock().now();
  MachineSnapshot observed;
  for (const inventory::DeviceRow& row : rows) observed.devices.push_back(observed_device(row));
  keep_alive(*snapshot, observed, now);
  const std::vector<DeviceView> views = views_of(observed, *snapshot);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].memory_bytes_promised = views[i].memory_bytes_promised;
    rows[i].holders = views[i].holders;
    rows[i].held_exclusively = views[i].held_exclusively;
    rows[i].held_by = leases_on(observed.devices[i], *snapshot, now);
    rows[i].intent = views[i].intent;
    rows[i].fleet_intent = fleet_intent(*snapshot, rows[i].info, geteuid());
    const DeviceIntent* intent = snapshot->intent(rows[i].info.id);
    if (!intent && rows[i].info.parent) intent = snapshot->intent(*rows[i].info.parent);
    if (intent) {
      rows[i].intent_by = world::user_name(intent->user);
      rows[i].intent_age = std::max(Duration::zero(), now - intent->since);
    }
    attribute_processes(rows[i], observed.devices[i], *snapshot);
  }
  if (waiting) *waiting = waiting_in(*snapshot, observed, now);
  return {};
}

MachineObserver::MachineObserver(Machine machine, bool links_wanted) : machine_(std::move(machine)) {
  poller_ = std::make_unique<TelemetryPoller>(machine_.backends, machine_.devices);
  std::vector<DeviceId> ids;
  for (const DeviceInfo& info : machine_.devices) ids.push_back(info.id);
  topology_ = inventory::listed_topology(std::move(ids),
                                         links_wanted ? device::query_links(machine_.backends) : std::vector<Link>());
}

Result<MachineObserver> MachineObserver::open(const std::optional<std::string>& backend,
                                              const BackendOptions& options) {
  return open(MachineRequest{backend, options});
}

Result<MachineObserver> MachineObserver::open(const MachineRequest& request) {
  Result<Machine> machine = find_machine(request);
  if (!machine) return std::move(machine).error();
  if (machine->devices.empty())
    return Error{ErrorCode::no_device, "this machine has no devices", "run berth doctor to see why"};
  return MachineObserver(*std::move(machine), request.links);
}

MachineSnapshot MachineObserver::snapshot() {
  MachineSnapshot observed;
  observed.topology = topology_;
  for (inventory::DeviceRow& row : poller_->poll()) {
    if (!is_left_out(row.info)) observed.devices.push_back(observed_device(std::move(row)));
  }
  return observed;
}

MachineSnapshot MachineObserver::listed() const {
  MachineSnapshot observed;
  observed.topology = topology_;
  for (const DeviceInfo& info : machine_.devices) {
    if (is_left_out(info)) continue;
    observed.devices.emplace_back();
    observed.devices.back().info = info;
  }
  return observed;
}

bool MachineObserver::is_left_out(const DeviceInfo& info) const {
  const bool accelerated = std::any_of(machine_.devices.begin(), machine_.devices.end(),
                                       [](const DeviceInfo& other) { return !other.is_fallback; });
  return accelerated && info.is_fallback && !fallback_;
}

}  // namespace berth::machine
