#include "server/views.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "deployment/spec_description.hpp"
#include "fleet_format/fleet_json.hpp"
#include "fleet_format/plan_json.hpp"
#include "fleet_format/report_json.hpp"
#include "fleet_format/spec_json.hpp"
#include "format/inventory_json.hpp"
#include "server/history.hpp"
#include "world/wall_time.hpp"

namespace berth::server {

namespace json = boost::json;

namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

json::object reason_view(const Reason& reason) {
  json::object out{{"kind", to_string(reason.kind)}, {"text", reason.text}};
  if (reason.provider) out["provider"] = to_string(*reason.provider);
  if (reason.gpus_requested > 0) out["gpus_requested"] = reason.gpus_requested;
  if (reason.best_node) {
    out["best_node"] = reason.best_node->text();
    out["gpus_best"] = reason.gpus_best;
  }
  return out;
}

void put_evidence(json::object& why, const deployment::Evidence& evidence) {
  json::array funnel, nodes, changes;
  for (const auto& [name, count] : evidence.funnel) funnel.push_back(json::object{{"name", name}, {"left", count}});
  for (const auto& [node, fits, text] : evidence.nodes)
    nodes.push_back(json::object{{"node", node.text()}, {"fits", fits}, {"text", text}});
  for (const deployment::Evidence::Change& change : evidence.changes) changes.push_back(format::change_to_json(change));
  if (!funnel.empty()) why["funnel"] = std::move(funnel);
  if (!nodes.empty()) why["nodes"] = std::move(nodes);
  if (!changes.empty()) why["changes"] = std::move(changes);
}

// The report about an incarnation, as far as its node has given one.
const fleet::ReplicaReport* report_of(const Leader& leader, const fleet::Assigned& assigned) {
  const Heard* const heard = leader.heard(assigned.place.node);
  if (!heard) return nullptr;
  const auto found = std::find_if(heard->report.replicas.begin(), heard->report.replicas.end(),
                                  [&](const fleet::ReplicaReport& one) { return one.key == assigned.key(); });
  return found == heard->report.replicas.end() ? nullptr : &*found;
}

fleet::ReplicaState state_of(const fleet::ReplicaReport* report, const fleet::Assigned& assigned) {
  if (report) return report->state;
  return assigned.stopping ? fleet::ReplicaState::stopping : fleet::ReplicaState::waiting;
}

// Why it is in its state; empty: nothing is wrong.
std::string reason_of(const Leader& leader, const fleet::ReplicaReport* report, const fleet::Assigned& assigned) {
  const std::string said = report ? report->reason : "";
  if (leader.health(assigned.place.node) == controller::NodeHealth::lost)
    return "its node is lost" + (said.empty() ? "" : "; before: " + said);
  if (report) return said;
  return assigned.stopping ? "is stopping" : "waiting for the node to accept it";
}

json::object incarnation_view(const Leader& leader, const fleet::Assigned& assigned, bool is_current) {
  const Assignment& place = assigned.place;
  const fleet::ReplicaReport* const report = report_of(leader, assigned);
  json::array devices;
  for (const DeviceId& id : place.devices) devices.emplace_back(id.text());
  json::object out{{"name", name_of(assigned.key())},
                   {"deployment", place.deployment.text()},
                   {"replica", place.replica},
                   {"generation", assigned.generation},
                   {"revision", assigned.revision},
                   {"current", is_current},
                   {"state", to_string(state_of(report, assigned))},
                   {"node", place.node.text()},
                   {"devices", std::move(devices)},
                   {"memory_bytes", place.memory_bytes},
                   {"exclusive", place.exclusive},
                   {"assigned_at_ms", assigned.since_ms},
                   {"failures", report ? report->failures : 0}};
  if (const std::string reason = reason_of(leader, report, assigned); !reason.empty()) out["reason"] = reason;
  if (report) {
    if (report->port) {
      out["port"] = *report->port;
      if (const std::string address = leader.address_of(place.node); !address.empty()) out["address"] = address;
    }
    if (!report->job.empty()) out["job"] = report->job;
    if (report->started_ms) out["started_at_ms"] = *report->started_ms;
    if (report->memory_bytes_peak) out["memory_bytes_peak"] = *report->memory_bytes_peak;
  }
  if (const auto age = leader.report_age(place.node)) out["report_age_s"] = seconds(*age);
  return out;
}

// Sorted by deployment and index, the newest incarnation first.
std::vector<const fleet::Assigned*> sorted_assigned(const Leader& leader) {
  std::vector<const fleet::Assigned*> out;
  for (const auto& [node, list] : leader.state().assignments) {
    for (const fleet::Assigned& one : list.assigned) out.push_back(&one);
  }
  std::sort(out.begin(), out.end(), [](const fleet::Assigned* a, const fleet::Assigned* b) {
    return std::tuple(a->place.deployment, a->place.replica, b->generation) <
           std::tuple(b->place.deployment, b->place.replica, a->generation);
  });
  return out;
}

bool begins_replica(const std::vector<const fleet::Assigned*>& all, std::size_t i) {
  return i == 0 || all[i - 1]->place.deployment != all[i]->place.deployment ||
         all[i - 1]->place.replica != all[i]->place.replica;
}

}  // namespace

const fleet::DeviceIntent* operators_intent(const fleet::ReportedDevice& device, const fleet::NodeRecord& record) {
  const auto said = record.devices.find(device.info.id);
  return said != record.devices.end() && device.intent < said->second.intent ? &said->second : nullptr;
}

bool takes_work(const fleet::ReportedDevice& device, const fleet::NodeRecord& record) {
  return device.health == Health::healthy && device.error.empty() && device.intent == Intent::in_service &&
         !operators_intent(device, record) && record.intent == Intent::in_service;
}

namespace {

// What to do about a lost device; empty: not known. The driver accepts a PCI address as well as the UUID, which
// displays shorten.
std::string advice_for(const fleet::ReportedDevice& device) {
  if (device.health != Health::lost) return {};
  if (device.info.backend != "cuda") return "see the kernel log of its node: sudo dmesg | tail";
  return "stop what uses it and run nvidia-smi --gpu-reset" +
         (device.info.pci_address ? " -i " + *device.info.pci_address : std::string()) +
         " on its node, or reboot the node; it is used again once it is healthy";
}

// Why a device is not in service: set by its operator, or by a user of its machine. Empty: it is in service.
json::object intent_view(const fleet::ReportedDevice& device, const fleet::NodeRecord& record) {
  const fleet::DeviceIntent* const said = operators_intent(device, record);
  const Intent intent = said ? said->intent : device.intent;
  if (intent == Intent::in_service) return {};
  json::object out{{"intent", to_string(intent)}};
  if (const std::string& by = said ? said->by : device.intent_by; !by.empty()) out["intent_by"] = by;
  if (said && !said->reason.empty()) out["intent_reason"] = said->reason;
  return out;
}
// The same for a node as a whole.
json::object intent_view(const fleet::NodeRecord& record) {
  json::object out{{"intent", to_string(record.intent)}};
  if (!record.intent_by.empty()) out["intent_by"] = record.intent_by;
  if (!record.intent_reason.empty()) out["intent_reason"] = record.intent_reason;
  return out;
}

json::object device_view(const fleet::ReportedDevice& device, const fleet::NodeRecord& record) {
  json::object out = format::to_json(device);
  if (!is_measured(device)) {
    for (const char* figure : {"memory_bytes_free", "memory_bytes_own", "memory_bytes_berth", "memory_bytes_foreign",
                               "memory_bytes_unattributed", "utilization", "memory_utilization", "active_streams",
                               "queue_depth", "power_watts", "temperature_celsius", "memory_temperature_celsius",
                               "clock_mhz", "memory_clock_mhz", "throttle_reasons", "processes"})
      out.erase(figure);
  }
  if (const std::string advice = advice_for(device); !advice.empty()) out["advice"] = advice;
  if (operators_intent(device, record)) {
    for (const auto& [key, value] : intent_view(device, record)) out[key] = value;
    out.erase("intent_age_ms");
  }
  return out;
}

// Counts of GPUs, and of all devices. Free memory means memory available to new work: on GPUs that accept new
// work, minus what is promised.
struct DeviceCounts {
  std::uint64_t total = 0, gpus = 0, free = 0, in_use = 0, unavailable = 0, bytes_total = 0, bytes_free = 0;
  json::array unhealthy, cordoned;
};
DeviceCounts count_devices(const Leader& leader) {
  DeviceCounts counts;
  for (const auto& [id, record] : leader.state().nodes) {
    const Heard* const known = leader.known(id);
    if (!known || leader.health(id) == controller::NodeHealth::lost) continue;
    for (const fleet::ReportedDevice& device : known->report.devices) {
      const bool is_usable = takes_work(device, record);
      ++counts.total;
      if (device.is_accelerator()) {
        ++(!is_usable ? counts.unavailable : !device.holders.empty() ? counts.in_use : counts.free);
        const std::uint64_t total = device.info.memory_bytes_total.value_or(0);
        const std::uint64_t free = std::min(device.memory_bytes_free.value_or(0), total);
        ++counts.gpus;
        counts.bytes_total += total;
        if (is_usable) counts.bytes_free += free - std::min(free, device.memory_bytes_promised.value_or(0));
      }
      if (json::object intent = intent_view(device, record); !intent.empty()) {
        intent["node"] = id.text();
        intent["device"] = device.info.id.text();
        counts.cordoned.push_back(std::move(intent));
      }
      if (device.health == Health::healthy) continue;
      json::object unhealthy{
          {"node", id.text()}, {"device", device.info.id.text()}, {"health", to_string(device.health)}};
      if (const std::string advice = advice_for(device); !advice.empty()) unhealthy["advice"] = advice;
      counts.unhealthy.push_back(std::move(unhealthy));
    }
  }
  return counts;
}

}  // namespace

json::object status_view(const Leader& leader, const std::string& version, std::uint64_t started_ms) {
  const store::State& state = leader.state();
  std::uint64_t healthy = 0, suspect = 0, lost = 0, cordoned = 0, ignoring = 0, awaited = 0;
  json::array unavailable;
  for (const auto& [id, record] : state.nodes) {
    const controller::NodeHealth health = leader.health(id);
    ++(leader.is_ignored_by(id)                    ? ignoring
       : health == controller::NodeHealth::healthy ? healthy
       : health == controller::NodeHealth::suspect ? suspect
                                                   : lost);
    cordoned += record.intent != Intent::in_service;
    awaited += !leader.heard(id) && health != controller::NodeHealth::lost;
    if (health == controller::NodeHealth::healthy && record.intent == Intent::in_service) continue;
    json::object node = intent_view(record);
    node["node"] = id.text();
    node["health"] = to_string(health);
    unavailable.push_back(std::move(node));
  }
  DeviceCounts devices = count_devices(leader);
  json::array deployments;
  for (const controller::DeploymentStatus& status : leader.deployments())
    deployments.push_back(deployment_view(leader, status, false));
  json::object project{{"version", state.desired.version}};
  if (!state.desired.cluster.empty()) project["name"] = state.desired.cluster;
  json::object out{{"version", version},
                   {"server", leader.server()},
                   {"epoch", leader.epoch()},
                   {"revision", leader.change_count()},
                   {"now_at_ms", world::wall_time_us() / 1000},
                   {"started_at_ms", started_ms},
                   {"project", std::move(project)},
                   {"nodes",
                    {{"total", state.nodes.size()},
                     {"healthy", healthy},
                     {"suspect", suspect},
                     {"lost", lost},
                     {"ignoring", ignoring},
                     {"cordoned", cordoned},
                     {"awaited", awaited}}},
                   {"devices",
                    {{"total", devices.total},
                     {"gpus", devices.gpus},
                     {"free", devices.free},
                     {"in_use", devices.in_use},
                     {"unavailable", devices.unavailable},
                     {"memory_bytes_total", devices.bytes_total},
                     {"memory_bytes_free", devices.bytes_free}}},
                   {"unavailable_nodes", std::move(unavailable)},
                   {"unhealthy_devices", std::move(devices.unhealthy)},
                   {"cordoned_devices", std::move(devices.cordoned)},
                   {"deployments", std::move(deployments)},
                   {"pending", pending_view(leader)}};
  if (!leader.problem().empty()) out["problem"] = leader.problem();
  json::array warnings;
  for (const auto& [subject, text] : leader.warnings())
    warnings.push_back(json::object{{"subject", subject}, {"text", text}});
  if (!warnings.empty()) out["warnings"] = std::move(warnings);
  return out;
}

json::object node_view(const Leader& leader, const fleet::NodeRecord& record) {
  const Heard* const known = leader.known(record.id);
  json::object out{
      {"name", record.id.text()}, {"health", to_string(leader.health(record.id))}, {"joined_at_ms", record.joined_ms}};
  for (const auto& [key, value] : intent_view(record)) out[key] = value;
  if (const auto age = leader.report_age(record.id)) out["last_report_age_s"] = seconds(*age);
  if (const std::string problem = leader.node_problem(record.id); !problem.empty()) out["problem"] = problem;
  if (const std::string address = leader.address_of(record.id); !address.empty()) out["address"] = address;
  json::array devices, links;
  if (known) {
    for (const fleet::ReportedDevice& device : known->report.devices) devices.push_back(device_view(device, record));
    const NodeView& node = known->report.node;
    if (!known->report.version.empty()) out["version"] = known->report.version;
    if (node.cpus) out["cpus"] = *node.cpus;
    if (node.memory_bytes) out["memory_bytes"] = *node.memory_bytes;
    out["labels"] = format::labels_to_json(node.labels);
    json::array taints;
    for (const std::string& taint : node.taints) taints.emplace_back(taint);
    out["taints"] = std::move(taints);
    out["egress"] = node.egress;
    if (leader.heard(record.id)) out["clock_offset_s"] = known->clock_offset_s;
    links = format::links_to_json(node.links);
  }
  out["devices"] = std::move(devices);
  out["links"] = std::move(links);
  json::array replicas;
  const std::vector<const fleet::Assigned*> all = sorted_assigned(leader);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i]->place.node == record.id) replicas.push_back(incarnation_view(leader, *all[i], begins_replica(all, i)));
  }
  out["replicas"] = std::move(replicas);
  return out;
}

json::array nodes_view(const Leader& leader) {
  json::array out;
  for (const auto& [id, record] : leader.state().nodes) out.push_back(node_view(leader, record));
  return out;
}

json::object deployment_view(const Leader& leader, const controller::DeploymentStatus& status, bool whole_one) {
  json::object out{{"name", status.deployment.text()}};
  const auto found = leader.state().desired.deployments.find(status.deployment);
  const fleet::Wanted* const wanted = found == leader.state().desired.deployments.end() ? nullptr : &found->second;
  out["revision"] = wanted ? wanted->revision : 0;
  out["replicas"] = status.replicas;
  out["ready"] = status.ready;
  out["updated"] = status.updated;
  out["state"] = to_string(status.state);
  if (!status.reason.empty()) out["reason"] = status.reason;
  if (!whole_one || !wanted) return out;
  out["spec"] = format::spec_to_json(wanted->spec);
  json::object rollout{{"revision", wanted->revision},
                       {"surge", wanted->spec.rollout.surge},
                       {"unavailable", wanted->spec.rollout.unavailable},
                       {"paused", wanted->paused.has_value()},
                       {"undo_revisions", wanted->earlier.size()}};
  if (wanted->paused) rollout["reason"] = *wanted->paused;
  json::array earlier;
  std::uint64_t revision = wanted->revision;
  for (const DeploymentSpec& spec : wanted->earlier) {
    DeploymentSpec with_count = spec;  // which an undo keeps
    with_count.replicas = wanted->spec.replicas;
    earlier.push_back(json::object{{"revision", --revision},
                                   {"fields", json::value_from(deployment::changed_fields(with_count, wanted->spec))}});
  }
  rollout["earlier"] = std::move(earlier);
  out["rollout"] = std::move(rollout);
  return out;
}

std::optional<json::object> deployment_view(const Leader& leader, const DeploymentId& name) {
  for (const controller::DeploymentStatus& status : leader.deployments()) {
    if (status.deployment == name) return deployment_view(leader, status, true);
  }
  return std::nullopt;
}

json::array deployments_view(const Leader& leader) {
  json::array out;
  for (const controller::DeploymentStatus& status : leader.deployments())
    out.push_back(deployment_view(leader, status, true));
  return out;
}

json::array replicas_view(const Leader& leader, const std::optional<DeploymentId>& only) {
  json::array out;
  const std::vector<const fleet::Assigned*> all = sorted_assigned(leader);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!only || all[i]->place.deployment == *only)
      out.push_back(incarnation_view(leader, *all[i], begins_replica(all, i)));
  }
  return out;
}

json::array pending_view(const Leader& leader, const std::optional<DeploymentId>& only) {
  // In a large fleet with many pending replicas, the next request continues.
  const TimePoint until = leader.now() + std::chrono::milliseconds(50);
  json::array out;
  for (const Pending& pending : leader.pending()) {
    if (only && pending.deployment != *only) continue;
    json::array replicas;
    for (const std::uint32_t replica : pending.replicas) replicas.emplace_back(replica);
    json::object one{{"deployment", pending.deployment.text()},
                     {"replicas", std::move(replicas)},
                     {"reason", reason_view(pending.reason)}};
    const deployment::Evidence* const evidence = leader.evidence(pending, until);
    if (evidence && !evidence->changes.empty()) one["change"] = format::change_to_json(evidence->changes.front());
    out.push_back(std::move(one));
  }
  return out;
}

json::object replica_view(const Leader& leader, const DeploymentId& name, std::uint32_t replica) {
  const std::string subject = name.text() + "/" + std::to_string(replica);
  json::array incarnations, events;
  std::string text;
  const std::vector<const fleet::Assigned*> all = sorted_assigned(leader);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i]->place.deployment != name || all[i]->place.replica != replica) continue;
    incarnations.push_back(incarnation_view(leader, *all[i], begins_replica(all, i)));
    if (!text.empty()) continue;
    const fleet::ReplicaReport* const report = report_of(leader, *all[i]);
    text = subject + " is " + std::string(to_string(state_of(report, *all[i]))) + " on " + all[i]->place.node.text();
    if (const std::string reason = reason_of(leader, report, *all[i]); !reason.empty()) text += ": " + reason;
  }
  json::object why;
  for (const Pending& pending : leader.pending()) {
    const bool is_meant = pending.replicas.empty() || std::find(pending.replicas.begin(), pending.replicas.end(),
                                                                replica) != pending.replicas.end();
    if (pending.deployment != name || !is_meant) continue;
    text = pending.reason.text;
    why["reason"] = reason_view(pending.reason);
    if (const deployment::Evidence* const evidence = leader.evidence(pending, TimePoint::max()))
      put_evidence(why, *evidence);
    break;
  }
  why["text"] = text.empty() ? subject + " has no place yet" : text;
  const std::vector<fleet::Event>& recent = leader.recent_events();
  std::size_t first = recent.size(), found = 0;
  while (first > 0 && found < 20) found += recent[--first].subject == subject;
  for (; first < recent.size(); ++first) {
    if (recent[first].subject == subject) events.push_back(format::to_json(recent[first]));
  }
  return {{"revision", leader.change_count()},
          {"name", subject},
          {"deployment", name.text()},
          {"replica", replica},
          {"incarnations", std::move(incarnations)},
          {"why", std::move(why)},
          {"events", std::move(events)}};
}

json::array jobs_view(const Leader& leader) {
  json::array out;
  for (const auto& [id, record] : leader.state().nodes) {
    const Heard* const heard = leader.heard(id);
    if (!heard) continue;
    for (const fleet::ReportedLease& lease : heard->report.leases) {
      json::object row = format::to_json(lease);
      row["node"] = id.text();
      out.push_back(std::move(row));
    }
  }
  return out;
}

json::value plan_view(const Leader& leader, const Plan& plan, const deployment::SmallestChanges& changes) {
  return json::parse(format::plan_to_json(plan, leader.state().desired.cluster, changes));
}

json::object applied_view(const Leader& leader, const Leader::Applied& applied, const controller::Preview& preview,
                          bool dry_run) {
  json::array changes;
  const auto add = [&](const DeploymentId& name, const char* change) -> json::object& {
    changes.push_back(json::object{{"deployment", name.text()}, {"change", change}});
    return changes.back().as_object();
  };
  for (const DeploymentId& name : applied.added) add(name, "added");
  for (const auto& [name, specs] : applied.altered)
    add(name, "changed")["fields"] = json::value_from(deployment::changed_fields(specs.first, specs.second));
  for (const DeploymentId& name : applied.removed) add(name, "removed");
  json::array restarts;
  for (const auto& [name, replica] : preview.restarts)
    restarts.emplace_back(name.text() + "/" + std::to_string(replica));
  json::object out{{"version", applied.version},
                   {"changed", applied.changed},
                   {"dry_run", dry_run},
                   {"changes", std::move(changes)},
                   {"plan", plan_view(leader, preview.plan, preview.changes)}};
  if (!restarts.empty()) out["restarts"] = std::move(restarts);
  return out;
}

json::array credentials_view(const Leader& leader) {
  json::array out;
  for (const auto& [id, credential] : leader.state().credentials) {
    json::object one{{"id", id},
                     {"role", to_string(credential.role)},
                     {"made_by", credential.made_by},
                     {"made_at_ms", credential.made_ms}};
    if (credential.node) one["node"] = credential.node->text();
    if (credential.for_gateway) one["gateway"] = true;
    if (credential.deployment) one["deployment"] = credential.deployment->text();
    if (credential.name) one["name"] = *credential.name;
    if (credential.may_explain) one["explain"] = true;
    if (credential.expires_ms) one["expires_at_ms"] = *credential.expires_ms;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace berth::server
