#include "agent/node_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>

#include "agent/agent.hpp"
#include "berth/ledger.hpp"
#include "device/query.hpp"
#include "fleet_format/report_json.hpp"
#include "format/device_json.hpp"
#include "format/json_reading.hpp"
#include "inventory/listed_topology.hpp"
#include "machine/device_request.hpp"
#include "machine/job_store.hpp"
#include "machine/this_node.hpp"
#include "world/printable.hpp"
#include "world/user_name.hpp"

namespace berth::agent {

namespace json = boost::json;

namespace {

constexpr Duration read_every = std::chrono::seconds(1);
// Longer than the age of the rows, even with a slow driver.
constexpr Duration recent = std::chrono::seconds(5);

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Who uses a device, for display. `name_of` returns the kind and name of a lease.
template <class NameOf>
json::array holders_of(const inventory::DeviceRow& row, const NameOf& name_of) {
  json::array out;
  for (const inventory::DeviceLease& lease : row.held_by) {
    if (lease.within) continue;  // part of another lease
    const auto [kind, name] = name_of(lease);
    json::object holder{{"kind", kind}, {"name", name}, {"user", lease.user}};
    if (const std::uint64_t bytes = lease.memory_bytes ? lease.memory_bytes : row.info.memory_bytes_total.value_or(0))
      holder["memory_bytes"] = bytes;
    out.push_back(std::move(holder));
  }
  if (row.seen && row.seen->processes) {
    for (const DeviceProcess& process : *row.seen->processes) {
      if (process.kind != ProcessKind::foreign) continue;
      json::object holder{{"kind", "foreign"},
                          {"name", process.name ? world::printable(*process.name) : std::to_string(process.pid)}};
      if (const auto user = world::user_of_process(process.pid)) holder["user"] = world::user_name(*user);
      if (process.memory_bytes) holder["memory_bytes"] = *process.memory_bytes;
      out.push_back(std::move(holder));
    }
  }
  return out;
}

}  // namespace

NodeWatch::NodeWatch(const NodeId& name, const AgentFile& file, machine::Machine machine)
    : machine_(std::move(machine)), node_(machine::this_node()) {
  node_.id = name;
  node_.labels = file.labels;
  node_.taints = file.taints;
  node_.egress = file.egress;
  std::vector<machine::ObservedDevice> devices;
  std::vector<DeviceId> ids;
  for (const DeviceInfo& info : machine_.devices) {
    devices.emplace_back().info = info;
    ids.push_back(info.id);
  }
  if (file.devices) {
    allowed_.emplace();
    for (const std::string& wanted : *file.devices) {
      const Result<DeviceId> id = machine::find_device(devices, wanted);
      if (id)
        allowed_->insert(*id);
      else
        unknown_.push_back(wanted);
    }
    // A server that does not know the new ids yet sends orders with the former ones.
    for (const DeviceInfo& info : machine_.devices) {
      if (info.former_id && allowed_->contains(info.id)) allowed_->insert(*info.former_id);
    }
  }
  node_.links = inventory::listed_topology(std::move(ids), device::query_links(machine_.backends)).links;
}

Result<std::unique_ptr<NodeWatch>> NodeWatch::open(const NodeId& name, const AgentFile& file,
                                                   const BackendOptions& backends) {
  Result<machine::Machine> machine = machine::find_machine(std::nullopt, backends);
  if (!machine) return std::move(machine).error();
  std::unique_ptr<NodeWatch> watch(new NodeWatch(name, file, *std::move(machine)));
  // Reads everything once, so that the first report is complete.
  machine::TelemetryPoller poller(watch->machine_.backends, watch->machine_.devices);
  watch->seen_ = watch->look(poller);
  watch->find_jobs();
  try {
    watch->thread_ = std::thread([raw = watch.get()] { raw->run(); });
  } catch (const std::system_error& shortage) {
    return no_thread(shortage);
  }
  return watch;
}

NodeWatch::~NodeWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    condition_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

NodeWatch::Look NodeWatch::look(machine::TelemetryPoller& poller) {
  Look seen;
  seen.rows = poller.poll();
  const Result<void> added = machine::add_ledger(seen.rows, &seen.waiting, &ledger_);
  // Without a ledger the rows show what the drivers report. If the ledger is locked and has never been read, no
  // device counts as free.
  if (!added && added.error().code == ErrorCode::timeout) {
    for (inventory::DeviceRow& row : seen.rows) {
      row.intent = row.fleet_intent = Intent::cordoned;
      row.intent_by = "its agent, while the ledger is locked";
    }
  }
  return seen;
}

// Reads the job files only if there is a lease that has not been looked up before, or one so new that its job may
// not have recorded it.
void NodeWatch::find_jobs() {
  std::map<inventory::LeaseKey, std::uint32_t> open;  // lease and process
  std::set<inventory::LeaseKey> all;
  const auto consider = [&](const auto& lease) {
    all.insert(lease.key());
    const auto known = jobs_.find(lease.key());
    const bool is_known = known != jobs_.end() && (!known->second.id.empty() || lease.age > recent);
    if (lease.user_id == geteuid() && !is_known) open.emplace(lease.key(), lease.pid);
  };
  for (const inventory::DeviceRow& row : seen_.rows) std::for_each(row.held_by.begin(), row.held_by.end(), consider);
  std::for_each(seen_.waiting.begin(), seen_.waiting.end(), consider);
  std::erase_if(jobs_, [&](const auto& entry) { return !all.contains(entry.first); });
  if (open.empty()) return;
  for (const auto& [lease, pid] : open) jobs_.try_emplace(lease);
  const Result<std::string> folder = machine::jobs_folder(world::IfMissing::accept);
  if (!folder) return;
  for (const machine::Job& job : machine::list_jobs(*folder)) {
    if (!job.is_supervised) continue;
    const auto own = parse_lease(job.progress.lease);
    for (const auto& [lease, pid] : open) {
      if (pid == job.progress.supervisor.pid || (own && own->id == lease.number))
        jobs_[lease] = {job.id, job.request.name.empty() ? job.id : job.request.name};
    }
  }
}

void NodeWatch::run() {
  machine::TelemetryPoller poller(machine_.backends, machine_.devices);
  std::unique_lock lock(mutex_);
  while (!ends_) {
    lock.unlock();
    Look seen = look(poller);
    lock.lock();
    seen_ = std::move(seen);
    find_jobs();
    if (!ends_) real_clock().wait_until(condition_, lock, real_clock().now() + read_every);
  }
}

// The rows are older than the list of replicas, so they may still contain the lease of a replica that has just ended.
// It must not be taken for another program's lease, which would keep the fleet from using the device. The same applies
// to a lease taken just now.
std::map<inventory::LeaseKey, std::string> NodeWatch::with_recent(const ReplicaLeases& replicas) const {
  const TimePoint now = real_clock().now();
  for (const auto& [lease, name] : replicas.by_lease) known_[lease] = {name, now};
  for (const inventory::DeviceRow& row : seen_.rows) {
    for (const inventory::DeviceLease& lease : row.held_by) {
      const auto holder = replicas.by_holder.find({lease.user_id, lease.pid});
      if (holder != replicas.by_holder.end()) known_[lease.key()] = {holder->second, now};
    }
  }
  std::erase_if(known_, [&](const auto& entry) { return entry.second.seen + recent < now; });
  std::map<inventory::LeaseKey, std::string> all;
  for (const auto& [lease, record] : known_) all.emplace(lease, record.name);
  return all;
}

NodeObservation NodeWatch::observe(const ReplicaLeases& current) const {
  Look seen;
  std::map<inventory::LeaseKey, std::string> replicas;
  std::map<inventory::LeaseKey, JobName> own_jobs;
  {
    const std::lock_guard lock(mutex_);
    seen = seen_;
    replicas = with_recent(current);
    own_jobs = jobs_;
  }
  std::set<inventory::LeaseKey> own;
  for (const auto& [lease, name] : replicas) own.insert(lease);
  NodeObservation out;
  out.node = node_;
  std::map<inventory::LeaseKey, fleet::ReportedLease> jobs;
  const TimePoint now = real_clock().now();
  const auto name_of = [&](const inventory::DeviceLease& lease) -> std::pair<const char*, std::string> {
    if (const auto replica = replicas.find(lease.key()); replica != replicas.end()) return {"replica", replica->second};
    const auto job = own_jobs.find(lease.key());
    if (job == own_jobs.end() || job->second.id.empty()) return {"lease", lease.command};
    return {"job", job->second.name};
  };
  // The fields common to running and waiting leases.
  const auto job_of = [&](const auto& lease, fleet::LeaseState state) {
    fleet::ReportedLease job;
    job.name = std::to_string(lease.lease);
    job.user = lease.user;
    job.command = lease.command;
    job.state = state;
    job.exclusive = lease.exclusive;
    job.age_s = seconds(lease.age);
    if (lease.memory_bytes) job.memory_bytes = lease.memory_bytes;
    if (const auto own = own_jobs.find(lease.key()); own != own_jobs.end() && !own->second.id.empty()) {
      job.kind = fleet::LeaseKind::job;
      job.name = own->second.name;
      job.id = own->second.id;
    }
    return job;
  };
  for (const inventory::DeviceRow& row : seen.rows) {
    NodeDevice device = machine::node_device_without(row, own);
    device.intent = row.fleet_intent;
    const bool is_allowed = !allowed_ || allowed_->contains(row.info.id);
    // A fallback device counts as an accelerator if the owner lists it.
    if (allowed_ && is_allowed) device.info.is_fallback = false;
    json::object shown = format::device_to_json(row, now);
    shown.erase("held_by");
    shown["holders"] = holders_of(row, name_of);
    shown["is_fallback"] = device.info.is_fallback;
    if (shown.contains("intent")) shown["intent"] = to_string(device.intent);
    try {
      out.devices.push_back(format::reported_device_of(shown, row.info.id.text()));
    } catch (const format::JsonError&) {  // the driver reported impossible values; leave the device out
    }
    if (is_allowed) out.node.devices.push_back(std::move(device));
    for (const inventory::DeviceLease& lease : row.held_by) {
      if (lease.within || replicas.contains(lease.key())) continue;
      fleet::ReportedLease& job =
          jobs.try_emplace(lease.key(), job_of(lease, fleet::LeaseState::running)).first->second;
      job.devices.push_back(row.info.id.text());
    }
  }
  for (auto& [id, job] : jobs) out.leases.push_back(std::move(job));
  for (const machine::WaitingLease& lease : seen.waiting) {
    if (replicas.contains(lease.key()) || current.by_holder.contains({lease.user_id, lease.pid})) continue;
    fleet::ReportedLease& job = out.leases.emplace_back(job_of(lease, fleet::LeaseState::waiting));
    if (lease.place) job.place = *lease.place;
    job.devices_wanted = lease.count;
  }
  std::erase_if(out.node.links, [&](const Link& link) {
    const auto is_there = [&](const DeviceId& id) {
      return std::any_of(out.node.devices.begin(), out.node.devices.end(),
                         [&](const NodeDevice& device) { return device.info.id == id; });
    };
    return !is_there(link.a) || !is_there(link.b);
  });
  return out;
}

}  // namespace berth::agent
