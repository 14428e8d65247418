#include "agent/node_watch.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "device/query.hpp"
#include "format/device_json.hpp"
#include "format/json_text.hpp"
#include "inventory/listed_topology.hpp"
#include "machine/device_request.hpp"
#include "machine/machine_observer.hpp"
#include "machine/this_node.hpp"
#include "world/printable.hpp"
#include "world/user_name.hpp"

namespace berth::agent {

namespace json = boost::json;

namespace {

constexpr Duration read_every = std::chrono::seconds(1);
// Longer than the rows are old, also where a driver is slow.
constexpr Duration recent = std::chrono::seconds(5);

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Who uses a device, for display.
json::array holders_of(const inventory::DeviceRow& row, const std::map<std::uint64_t, std::string>& replicas) {
  json::array out;
  for (const inventory::DeviceLease& lease : row.held_by) {
    if (lease.within) continue;  // part of another one
    const auto replica = replicas.find(lease.lease);
    json::object holder{{"kind", replica == replicas.end() ? "lease" : "replica"},
                        {"name", replica == replicas.end() ? lease.command : replica->second},
                        {"user", lease.user}};
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
  }
  node_.links = inventory::listed_topology(std::move(ids), device::query_links(machine_.backends)).links;
}

Result<std::unique_ptr<NodeWatch>> NodeWatch::open(const NodeId& name, const AgentFile& file,
                                                   const BackendOptions& backends) {
  Result<machine::Machine> machine = machine::find_machine(std::nullopt, backends);
  if (!machine) return std::move(machine).error();
  std::unique_ptr<NodeWatch> watch(new NodeWatch(name, file, *std::move(machine)));
  // The first look, so that the first report is complete.
  machine::TelemetryPoller poller(watch->machine_.backends, watch->machine_.devices);
  watch->rows_ = poller.poll();
  static_cast<void>(machine::add_ledger(watch->rows_));
  watch->thread_ = std::thread([raw = watch.get()] { raw->run(); });
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

void NodeWatch::run() {
  machine::TelemetryPoller poller(machine_.backends, machine_.devices);
  std::unique_lock lock(mutex_);
  while (!ends_) {
    lock.unlock();
    std::vector<inventory::DeviceRow> rows = poller.poll();
    static_cast<void>(machine::add_ledger(rows));  // without it the rows say what the drivers say
    lock.lock();
    rows_ = std::move(rows);
    if (!ends_) real_clock().wait_until(condition_, lock, real_clock().now() + read_every);
  }
}

// The rows are older than the list of replicas. The lease of one that ended just now is still in them, and taken for
// that of another program it would keep the fleet from using the device; so would one that was taken just now.
std::map<std::uint64_t, std::string> NodeWatch::with_recent(const ReplicaLeases& replicas) const {
  const TimePoint now = real_clock().now();
  for (const auto& [lease, name] : replicas.by_number) known_[lease] = {name, now};
  for (const inventory::DeviceRow& row : rows_) {
    for (const inventory::DeviceLease& lease : row.held_by) {
      const auto holder = replicas.by_holder.find(lease.pid);
      if (holder != replicas.by_holder.end()) known_[lease.lease] = {holder->second, now};
    }
  }
  std::erase_if(known_, [&](const auto& one) { return one.second.seen + recent < now; });
  std::map<std::uint64_t, std::string> all;
  for (const auto& [lease, one] : known_) all.emplace(lease, one.name);
  return all;
}

NodeObservation NodeWatch::observe(const ReplicaLeases& current) const {
  std::vector<inventory::DeviceRow> rows;
  std::map<std::uint64_t, std::string> replicas;
  {
    const std::lock_guard lock(mutex_);
    rows = rows_;
    replicas = with_recent(current);
  }
  std::set<std::uint64_t> own;
  for (const auto& [lease, name] : replicas) own.insert(lease);
  NodeObservation out;
  out.node = node_;
  json::array devices, leases;
  std::map<std::uint64_t, json::object> jobs;
  const TimePoint now = real_clock().now();
  for (const inventory::DeviceRow& row : rows) {
    NodeDevice device = machine::node_device_without(row, own);
    const bool is_allowed = !allowed_ || allowed_->contains(row.info.id);
    // What stands in for an accelerator is one where the owner says so.
    if (allowed_ && is_allowed) device.info.is_fallback = false;
    json::object shown = format::device_to_json(row, now);
    shown.erase("held_by");
    shown["holders"] = holders_of(row, replicas);
    shown["is_fallback"] = device.info.is_fallback;
    devices.push_back(std::move(shown));
    if (is_allowed) out.node.devices.push_back(std::move(device));
    for (const inventory::DeviceLease& lease : row.held_by) {
      if (lease.within || replicas.contains(lease.lease)) continue;
      json::object& job = jobs[lease.lease];
      if (job.empty())
        job = {{"kind", "lease"},
               {"name", std::to_string(lease.lease)},
               {"user", lease.user},
               {"command", lease.command},
               {"state", "running"},
               {"devices", json::array()},
               {"exclusive", lease.exclusive},
               {"age_s", seconds(lease.age)}};
      job["devices"].as_array().emplace_back(row.info.id.text());
      if (lease.memory_bytes) job["memory_bytes"] = lease.memory_bytes;
    }
  }
  for (auto& [id, job] : jobs) leases.push_back(std::move(job));
  std::erase_if(out.node.links, [&](const Link& link) {
    const auto is_there = [&](const DeviceId& id) {
      return std::any_of(out.node.devices.begin(), out.node.devices.end(),
                         [&](const NodeDevice& device) { return device.info.id == id; });
    };
    return !is_there(link.a) || !is_there(link.b);
  });
  out.devices_json = format::json_text(devices);
  out.leases_json = format::json_text(leases);
  return out;
}

}  // namespace berth::agent
