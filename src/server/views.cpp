#include "server/views.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "deployment/spec_description.hpp"
#include "fleet_format/fleet_json.hpp"
#include "fleet_format/plan_json.hpp"
#include "fleet_format/report_json.hpp"
#include "fleet_format/spec_json.hpp"
#include "format/inventory_json.hpp"
#include "server/device_view.hpp"
#include "world/duration.hpp"
#include "world/wall_time.hpp"

namespace berth::server {

namespace json = boost::json;

namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// A node that has not reported to this server is neither healthy nor suspect.
bool is_awaited(const Leader& leader, const NodeId& node) {
  return !leader.last_report(node) && leader.health(node) != controller::NodeHealth::lost;
}

// "30 s", or "30 s to 60 s" if its replicas differ: when they start elsewhere; empty: it has none.
std::string replace_time(const Leader& leader, const NodeId& node) {
  const auto list = leader.state().assignments.find(node);
  if (list == leader.state().assignments.end() || list->second.assigned.empty()) return {};
  const auto [first, last] =
      std::minmax_element(list->second.assigned.begin(), list->second.assigned.end(),
                          [](const fleet::Assigned& a, const fleet::Assigned& b) { return a.replace_s < b.replace_s; });
  const auto text = [](const fleet::Assigned& replica) {
    return world::duration_text(std::chrono::seconds(replica.replace_s));
  };
  return text(*first) + (first->replace_s == last->replace_s ? "" : " to " + text(*last));
}

// Adds the health of a node, and what a silent node means.
void put_health(json::object& out, const Leader& leader, const NodeId& node) {
  const controller::NodeHealth health = leader.health(node);
  if (is_awaited(leader, node)) {
    out["health"] = "unknown";
    out["health_reason"] = "it has not reported to this server yet";
    return;
  }
  out["health"] = to_string(health);
  if (health == controller::NodeHealth::healthy) return;
  std::string reason =
      "no report for " +
      world::duration_text(std::chrono::floor<std::chrono::seconds>(leader.now() - leader.silent_since(node)));
  if (health == controller::NodeHealth::lost)
    reason += "; check that the machine is running and that its agent can reach this server";
  else if (const std::string time = replace_time(leader, node); !time.empty())
    reason += "; its replicas start elsewhere after " + time;
  out["health_reason"] = std::move(reason);
}

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

// The report about an incarnation, or null if its node has not sent one.
const fleet::ReplicaReport* report_of(const Leader& leader, const fleet::Assigned& assigned) {
  const LastReport* const last = leader.last_report(assigned.place.node);
  if (!last) return nullptr;
  const auto found = std::find_if(last->report.replicas.begin(), last->report.replicas.end(),
                                  [&](const fleet::ReplicaReport& report) { return report.key == assigned.key(); });
  return found == last->report.replicas.end() ? nullptr : &*found;
}

fleet::ReplicaState state_of(const fleet::ReplicaReport* report, const fleet::Assigned& assigned) {
  // Its node has not read the order to stop it yet, if it still reports another state.
  if (assigned.stopping && !(report && report->state == fleet::ReplicaState::gone))
    return fleet::ReplicaState::stopping;
  return report ? report->state : fleet::ReplicaState::waiting;
}

// Why an incarnation is in its state, or an empty text if nothing is wrong.
std::string reason_of(const Leader& leader, const fleet::ReplicaReport* report, const fleet::Assigned& assigned) {
  const std::string reason = report ? report->reason : "";
  if (leader.health(assigned.place.node) == controller::NodeHealth::lost)
    return "its node is lost" + (reason.empty() ? "" : "; before: " + reason);
  if (report && report->state == fleet::ReplicaState::unready) {
    const auto wanted = leader.state().desired.deployments.find(assigned.place.deployment);
    const DeploymentSpec* const spec = wanted == leader.state().desired.deployments.end()
                                           ? nullptr
                                           : controller::spec_of(wanted->second, assigned.revision);
    if (spec && spec->unready_within)
      return reason + "; it is restarted if this lasts " + world::duration_text(*spec->unready_within) +
             " (unready_within)";
  }
  if (report) return reason;
  return assigned.stopping ? "is stopping" : "waiting for the node to accept it";
}

// When a replica is restarted, such as ", in 20 s"; empty if no restart is planned or its time is not known.
std::string restart_time(const Leader& leader, const fleet::ReplicaReport* report, const fleet::Assigned& assigned) {
  const LastReport* const last = leader.last_report(assigned.place.node);
  if (!last || !report || !report->next_start_ms) return {};
  const double at_s = static_cast<double>(*report->next_start_ms) / 1000 - last->clock_offset_s;
  const double left_s = std::min(at_s - static_cast<double>(world::wall_time_ms()) / 1000, 86'400.0);
  return left_s < 1 ? "" : ", in " + world::duration_text(std::chrono::seconds(static_cast<std::int64_t>(left_s)));
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
    if (report->next_start_ms) out["next_start_at_ms"] = *report->next_start_ms;
  }
  if (const auto age = leader.report_age(place.node)) out["report_age_s"] = seconds(*age);
  return out;
}

// Sorted by deployment and index, the newest incarnation first.
std::vector<const fleet::Assigned*> sorted_assigned(const Leader& leader) {
  std::vector<const fleet::Assigned*> out;
  for (const auto& [node, list] : leader.state().assignments) {
    for (const fleet::Assigned& replica : list.assigned) out.push_back(&replica);
  }
  std::sort(out.begin(), out.end(), [](const fleet::Assigned* a, const fleet::Assigned* b) {
    return std::tuple(a->place.deployment, a->place.replica, b->generation) <
           std::tuple(b->place.deployment, b->place.replica, a->generation);
  });
  return out;
}

bool is_newest_incarnation(const std::vector<const fleet::Assigned*>& all, std::size_t i) {
  return i == 0 || all[i - 1]->place.deployment != all[i]->place.deployment ||
         all[i - 1]->place.replica != all[i]->place.replica;
}

}  // namespace

json::object status_view(const Leader& leader, const std::string& version, std::uint64_t started_ms) {
  const store::State& state = leader.state();
  std::uint64_t healthy = 0, suspect = 0, lost = 0, cordoned = 0, ignoring = 0, awaited = 0;
  json::array unavailable;
  for (const auto& [id, record] : state.nodes) {
    const controller::NodeHealth health = leader.health(id);
    ++(leader.is_ignored_by(id)                    ? ignoring
       : is_awaited(leader, id)                    ? awaited
       : health == controller::NodeHealth::healthy ? healthy
       : health == controller::NodeHealth::suspect ? suspect
                                                   : lost);
    cordoned += record.intent != Intent::in_service;
    const bool is_healthy = health == controller::NodeHealth::healthy && !is_awaited(leader, id);
    if (is_healthy && record.intent == Intent::in_service) continue;
    json::object node = intent_view(record);
    node["node"] = id.text();
    put_health(node, leader, id);
    const auto list = state.assignments.find(id);
    node["replicas"] = list == state.assignments.end() ? 0 : list->second.assigned.size();
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
  const LastReport* const known = leader.known(record.id);
  json::object out{{"name", record.id.text()}, {"joined_at_ms", record.joined_ms}};
  put_health(out, leader, record.id);
  for (const auto& [key, value] : intent_view(record)) out[key] = value;
  if (const auto age = leader.report_age(record.id)) out["last_report_age_s"] = seconds(*age);
  if (const std::string problem = leader.node_problem(record.id); !problem.empty()) out["problem"] = problem;
  if (const std::string address = leader.address_of(record.id); !address.empty()) out["address"] = address;
  json::array devices, links;
  if (known) {
    const bool is_known_now = leader.health(record.id) != controller::NodeHealth::lost;
    for (const fleet::ReportedDevice& device : known->report.devices)
      devices.push_back(device_view(device, record, is_known_now));
    const NodeView& node = known->report.node;
    if (!known->report.version.empty()) out["version"] = known->report.version;
    if (node.cpus) out["cpus"] = *node.cpus;
    if (node.memory_bytes) out["memory_bytes"] = *node.memory_bytes;
    out["labels"] = format::labels_to_json(node.labels);
    json::array taints;
    for (const std::string& taint : node.taints) taints.emplace_back(taint);
    out["taints"] = std::move(taints);
    out["egress"] = node.egress;
    if (leader.last_report(record.id)) out["clock_offset_s"] = known->clock_offset_s;
    links = format::links_to_json(node.links);
  }
  out["devices"] = std::move(devices);
  out["links"] = std::move(links);
  json::array replicas;
  const std::vector<const fleet::Assigned*> all = sorted_assigned(leader);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i]->place.node == record.id)
      replicas.push_back(incarnation_view(leader, *all[i], is_newest_incarnation(all, i)));
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
  const fleet::DesiredDeployment* const wanted =
      found == leader.state().desired.deployments.end() ? nullptr : &found->second;
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
                       {"undo_revisions", std::count_if(wanted->earlier.begin(), wanted->earlier.end(),
                                                        [&](const DeploymentSpec& earlier) {
                                                          return !same_but_replicas(earlier, wanted->spec);
                                                        })}};
  if (wanted->paused) rollout["reason"] = *wanted->paused;
  json::array earlier;
  std::uint64_t revision = wanted->revision;
  for (const DeploymentSpec& spec : wanted->earlier) {
    DeploymentSpec with_count = spec;  // an undo keeps the number of replicas
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
      out.push_back(incarnation_view(leader, *all[i], is_newest_incarnation(all, i)));
  }
  return out;
}

json::array pending_view(const Leader& leader, const std::optional<DeploymentId>& only) {
  // In a large fleet with many pending replicas, the next request computes the evidence that is still missing.
  const TimePoint until = leader.now() + std::chrono::milliseconds(50);
  json::array out;
  for (const Pending& pending : leader.pending()) {
    if (only && pending.deployment != *only) continue;
    json::array replicas;
    for (const std::uint32_t replica : pending.replicas) replicas.emplace_back(replica);
    json::object row{{"deployment", pending.deployment.text()},
                     {"replicas", std::move(replicas)},
                     {"reason", reason_view(pending.reason)}};
    const deployment::Evidence* const evidence = leader.evidence(pending, until);
    if (evidence && !evidence->changes.empty()) row["change"] = format::change_to_json(evidence->changes.front());
    out.push_back(std::move(row));
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
    incarnations.push_back(incarnation_view(leader, *all[i], is_newest_incarnation(all, i)));
    if (!text.empty()) continue;
    const fleet::ReplicaReport* const report = report_of(leader, *all[i]);
    text = subject + " is " + std::string(fleet::state_in_words(to_string(state_of(report, *all[i])))) + " on " +
           all[i]->place.node.text() + restart_time(leader, report, *all[i]);
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
    const LastReport* const last = leader.last_report(id);
    if (!last) continue;
    for (const fleet::ReportedLease& lease : last->report.leases) {
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
  std::vector<std::pair<std::string, fleet::Credential>> credentials(leader.state().credentials.begin(),
                                                                     leader.state().credentials.end());
  // "t9" comes before "t10". The ids of nodes and gateways contain their names.
  const auto number_of = [](const std::string& id) {
    const bool is_numbered = id.starts_with('t') && id.find_first_not_of("0123456789", 1) == std::string::npos;
    return is_numbered ? id.size() : std::string::npos;
  };
  std::stable_sort(credentials.begin(), credentials.end(),
                   [&](const auto& a, const auto& b) { return number_of(a.first) < number_of(b.first); });
  for (const auto& [id, credential] : credentials) {
    json::object row{{"id", id},
                     {"role", to_string(credential.role)},
                     {"made_by", credential.made_by},
                     {"made_at_ms", credential.made_ms}};
    if (credential.node) row["node"] = credential.node->text();
    if (credential.for_gateway) row["gateway"] = true;
    if (credential.deployment) row["deployment"] = credential.deployment->text();
    if (credential.name) row["name"] = *credential.name;
    if (credential.may_explain) row["explain"] = true;
    if (credential.expires_ms) row["expires_at_ms"] = *credential.expires_ms;
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace berth::server
