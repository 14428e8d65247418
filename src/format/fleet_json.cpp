#include "format/fleet_json.hpp"

#include <boost/json.hpp>
#include <limits>
#include <set>

#include "fleet/bounds.hpp"
#include "format/inventory_json.hpp"
#include "format/json_text.hpp"
#include "format/plan_json.hpp"
#include "format/report_json.hpp"
#include "world/printable.hpp"

namespace berth::format {

namespace json = boost::json;

namespace {

template <class Noun>
json::array array_to_json(const std::vector<Noun>& nouns) {
  json::array out;
  for (const Noun& noun : nouns) out.push_back(to_json(noun));
  return out;
}

std::uint64_t whole(const json::object& object, std::string_view key, const std::string& where) {
  return whole_of(member(object, key, where), where + "." + std::string(key));
}
std::string text(const json::object& object, std::string_view key, const std::string& where) {
  return text_of(member(object, key, where), where + "." + std::string(key));
}
// Absent is empty.
std::string optional_text(const json::object& object, std::string_view key, const std::string& where) {
  return optional_member(object, key, where, text_of).value_or("");
}

// What an agent says of itself and of replicas is shown, logged and kept in events: a sentence of it is enough.
std::string said(const json::object& object, std::string_view key, const std::string& where) {
  return world::shortened(optional_text(object, key, where), fleet::sentence_bytes_max);
}

// Ids of devices are names in places and events, and are not truncated: two could become equal. Of two devices
// with one id the second is left out; the rest of the report is about the node and counts.
void check_devices(NodeView& node, const std::string& where) {
  if (node.devices.size() > fleet::node_devices_max)
    throw JsonError{where + ".devices has more than " + std::to_string(fleet::node_devices_max) + " entries"};
  for (const NodeDevice& device : node.devices) {
    if (device.info.id.text().size() > fleet::device_id_bytes_max)
      throw JsonError{where + ".devices has the id " + in_quotes(device.info.id.text()) + ", which is longer than " +
                      std::to_string(fleet::device_id_bytes_max) + " bytes"};
    if (world::printable(device.info.id.text()) != device.info.id.text())
      throw JsonError{where + ".devices has an id with characters that cannot be shown"};
    if (device.info.memory_bytes_total.value_or(0) > fleet::memory_bytes_max)
      throw JsonError{where + ".devices has more memory than any device"};
  }
  std::set<DeviceId> seen;
  std::erase_if(node.devices, [&](const NodeDevice& device) { return !seen.insert(device.info.id).second; });
}

template <class Noun>
Noun word(const json::object& object, std::string_view key, const std::string& where,
          std::optional<Noun> (*named)(std::string_view) noexcept) {
  const std::string given = text(object, key, where);
  const auto noun = named(given);
  if (!noun) throw JsonError{where + "." + std::string(key) + " is " + in_quotes(given) + ", which is not known"};
  return *noun;
}

// The entries of a list for display that are valid, at most `most` of them. What is not is left out and named in
// `problem`: a node whose report has a bad row is shown without that row.
template <class Read>
auto valid_entries(const json::object& report, std::string_view key, std::size_t most, std::string& problem,
                   const std::string& where, Read&& take) -> std::vector<decltype(take(json::value(), where))> {
  std::vector<decltype(take(json::value(), where))> out;
  const json::value* const list = report.if_contains(key);
  if (!list) return out;
  std::size_t left_out = 0;
  std::string first;
  const auto leave_out = [&](const std::string& why) {
    if (left_out++ == 0) first = why;
  };
  if (!list->is_array()) leave_out(where + "." + std::string(key) + " is not a list");
  for (std::size_t i = 0; list->is_array() && i < list->get_array().size(); ++i) {
    const std::string at = where + "." + std::string(key) + "[" + std::to_string(i) + "]";
    try {
      if (out.size() == most) throw JsonError{at + " is more than a server keeps of a node"};
      out.push_back(take(list->get_array()[i], at));
    } catch (const JsonError& error) {
      leave_out(error.what);
    }
  }
  if (left_out > 0 && problem.empty())
    problem =
        to_error({std::to_string(left_out) + " of its " + std::string(key) + " " + (left_out == 1 ? "is" : "are") +
                  " not valid and " + (left_out == 1 ? "is" : "are") + " not shown: " + first})
            .message;
  return out;
}

}  // namespace

json::object to_json(const fleet::Wanted& wanted) {
  json::array earlier;
  for (const DeploymentSpec& spec : wanted.earlier) earlier.push_back(spec_to_json(spec));
  json::object out{{"spec", spec_to_json(wanted.spec)}, {"revision", wanted.revision}, {"earlier", std::move(earlier)}};
  if (wanted.paused) out["paused"] = *wanted.paused;
  return out;
}

fleet::Wanted wanted_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  fleet::Wanted wanted;
  wanted.spec = spec_of(member(object, "spec", where), where + ".spec");
  wanted.revision = whole(object, "revision", where);
  if (const json::value* earlier = object.if_contains("earlier"))
    wanted.earlier = entries_of(*earlier, where + ".earlier", spec_of);
  wanted.paused = optional_member(object, "paused", where, text_of);
  return wanted;
}

json::object to_json(const fleet::Desired& desired) {
  json::array deployments;
  for (const auto& [name, wanted] : desired.deployments) deployments.push_back(to_json(wanted));
  return {{"version", desired.version},
          {"cluster", desired.cluster},
          {"deployments", std::move(deployments)},
          {"egress_preference", egress_preference_to_json(desired.egress_preference)}};
}

fleet::Desired desired_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  fleet::Desired desired;
  desired.version = whole(object, "version", where);
  desired.cluster = text(object, "cluster", where);
  for (fleet::Wanted& wanted : entries_of(member(object, "deployments", where), where + ".deployments", wanted_of)) {
    const DeploymentId name = wanted.spec.name;
    if (!desired.deployments.emplace(name, std::move(wanted)).second)
      throw JsonError{where + ".deployments has two entries for " + in_quotes(name.text())};
  }
  desired.egress_preference =
      optional_member(object, "egress_preference", where, egress_preference_of).value_or(EgressPreference{});
  return desired;
}

json::object to_json(const fleet::Assigned& assigned) {
  json::object out = assignment_to_json(assigned.place);
  out["generation"] = assigned.generation;
  out["revision"] = assigned.revision;
  out["stopping"] = assigned.stopping;
  out["since_at_ms"] = assigned.since_ms;
  out["replace_s"] = assigned.replace_s;
  return out;
}

fleet::Assigned assigned_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  fleet::Assigned assigned;
  assigned.place = assignment_of(value, where);
  assigned.generation = whole(object, "generation", where);
  assigned.revision = whole(object, "revision", where);
  assigned.stopping = optional_member(object, "stopping", where, bool_of).value_or(false);
  assigned.since_ms = optional_member(object, "since_at_ms", where, whole_of).value_or(0);
  assigned.replace_s = optional_member(object, "replace_s", where, whole_of).value_or(0);
  return assigned;
}

json::object to_json(const fleet::ReplicaReport& report) {
  json::object out{{"deployment", report.key.deployment.text()},
                   {"replica", report.key.replica},
                   {"generation", report.key.generation},
                   {"state", to_string(report.state)}};
  if (!report.reason.empty()) out["reason"] = report.reason;
  out["failures"] = report.failures;
  if (report.port) out["port"] = *report.port;
  if (!report.job.empty()) out["job"] = report.job;
  if (report.started_ms) out["started_at_ms"] = *report.started_ms;
  if (report.memory_bytes_peak) out["memory_bytes_peak"] = *report.memory_bytes_peak;
  return out;
}

fleet::ReplicaReport replica_report_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  fleet::ReplicaReport report;
  report.key.deployment = DeploymentId(text(object, "deployment", where));
  report.key.replica = small_of(member(object, "replica", where), where + ".replica");
  report.key.generation = whole(object, "generation", where);
  report.state = word(object, "state", where, fleet::replica_state_named);
  report.reason = said(object, "reason", where);
  report.failures = optional_member(object, "failures", where, small_of).value_or(0);
  report.port = optional_member(object, "port", where, port_of);
  report.job = said(object, "job", where);
  report.started_ms = optional_member(object, "started_at_ms", where, whole_of);
  report.memory_bytes_peak = optional_member(object, "memory_bytes_peak", where, whole_of);
  return report;
}

json::object to_json(const fleet::NodeReport& report) {
  json::object out{{"agent", report.agent},
                   {"version", report.version},
                   {"boot", report.boot},
                   {"agent_start_monotonic_ms", report.agent_start_monotonic_ms},
                   {"now_at_ms", report.now_ms},
                   {"number", report.number},
                   {"epoch", report.epoch},
                   {"revision", report.orders_number},
                   {"epoch_seen", report.epoch_seen},
                   {"inventory", node_view_to_json(report.node)},
                   {"replicas", array_to_json(report.replicas)}};
  out["devices"] = array_to_json(report.devices);
  out["leases"] = array_to_json(report.leases);
  return out;
}

fleet::NodeReport node_report_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  fleet::NodeReport report;
  report.node = node_view_of(member(object, "inventory", where), where + ".inventory");
  check_devices(report.node, where + ".inventory");
  report.agent = world::shortened(text(object, "agent", where), fleet::sentence_bytes_max);
  report.version = said(object, "version", where);
  report.boot = said(object, "boot", where);
  report.now_ms = whole(object, "now_at_ms", where);
  report.agent_start_monotonic_ms = optional_member(object, "agent_start_monotonic_ms", where, whole_of).value_or(0);
  if (object.contains("number")) report.number = whole(object, "number", where);
  report.replicas = entries_of(member(object, "replicas", where), where + ".replicas", replica_report_of);
  report.epoch = whole(object, "epoch", where);
  report.orders_number = whole(object, "revision", where);
  report.epoch_seen = optional_member(object, "epoch_seen", where, whole_of).value_or(0);
  std::set<DeviceId> ids;
  report.devices = valid_entries(object, "devices", fleet::node_devices_max, report.problem, where,
                                 [&](const json::value& entry, const std::string& at) {
                                   fleet::ReportedDevice device = reported_device_of(entry, at);
                                   if (!ids.insert(device.info.id).second)
                                     throw JsonError{at + " has the id of another device"};
                                   return device;
                                 });
  report.leases = valid_entries(object, "leases", fleet::node_leases_max, report.problem, where, reported_lease_of);
  return report;
}

json::object to_json(const fleet::NodeOrders& orders) {
  json::array list;
  for (const fleet::ReplicaOrder& order : orders.orders)
    list.push_back(json::object{{"assigned", to_json(order.assigned)}, {"spec", spec_to_json(order.spec)}});
  return {{"epoch", orders.epoch}, {"revision", orders.number}, {"orders", std::move(list)}};
}

fleet::NodeOrders node_orders_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  fleet::NodeOrders orders;
  orders.epoch = whole(object, "epoch", where);
  orders.number = whole(object, "revision", where);
  orders.orders = entries_of(member(object, "orders", where), where + ".orders",
                             [](const json::value& entry, const std::string& at) -> fleet::ReplicaOrder {
                               const json::object& order = object_of(entry, at);
                               return {assigned_of(member(order, "assigned", at), at + ".assigned"),
                                       spec_of(member(order, "spec", at), at + ".spec")};
                             });
  return orders;
}

json::object to_json(const fleet::Event& event) {
  return {{"id", event.id},       {"at_ms", event.at_ms},     {"kind", to_string(event.kind)},
          {"actor", event.actor}, {"subject", event.subject}, {"text", event.text}};
}

fleet::Event event_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  return {whole(object, "id", where),
          whole(object, "at_ms", where),
          word(object, "kind", where, fleet::event_kind_named),
          text(object, "actor", where),
          text(object, "subject", where),
          text(object, "text", where)};
}

json::object to_json(const fleet::Credential& credential) {
  json::object out{{"id", credential.id}, {"role", to_string(credential.role)}, {"sha256", credential.sha256}};
  if (credential.node) out["node"] = credential.node->text();
  if (credential.expires_ms) out["expires_at_ms"] = *credential.expires_ms;
  out["made_by"] = credential.made_by;
  out["made_at_ms"] = credential.made_ms;
  return out;
}

fleet::Credential credential_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  fleet::Credential credential;
  credential.id = text(object, "id", where);
  credential.role = word(object, "role", where, fleet::role_named);
  credential.sha256 = text(object, "sha256", where);
  if (auto node = optional_member(object, "node", where, text_of)) credential.node = NodeId(*std::move(node));
  credential.expires_ms = optional_member(object, "expires_at_ms", where, whole_of);
  credential.made_by = optional_text(object, "made_by", where);
  credential.made_ms = optional_member(object, "made_at_ms", where, whole_of).value_or(0);
  return credential;
}

json::object to_json(const fleet::NodeRecord& record) {
  json::object out{{"name", record.id.text()},
                   {"intent", to_string(record.intent)},
                   {"intent_by", record.intent_by},
                   {"inventory", record.inventory},
                   {"joined_at_ms", record.joined_ms}};
  json::array devices;
  for (const auto& [id, device] : record.devices)
    devices.push_back(json::object{{"device", id.text()},
                                   {"intent", to_string(device.intent)},
                                   {"intent_by", device.by},
                                   {"reason", device.reason}});
  if (!devices.empty()) out["devices"] = std::move(devices);
  return out;
}

fleet::NodeRecord node_record_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  fleet::NodeRecord record;
  record.id = NodeId(text(object, "name", where));
  record.intent = intent_of(member(object, "intent", where), where + ".intent");
  record.intent_by = optional_text(object, "intent_by", where);
  record.inventory = optional_text(object, "inventory", where);
  record.joined_ms = optional_member(object, "joined_at_ms", where, whole_of).value_or(0);
  if (const json::value* const devices = object.if_contains("devices")) {
    for (const json::value& entry : array_of(*devices, where + ".devices")) {
      const std::string at = where + ".devices";
      const json::object& device = object_of(entry, at);
      record.devices[DeviceId(text(device, "device", at))] = {intent_of(member(device, "intent", at), at + ".intent"),
                                                              optional_text(device, "intent_by", at),
                                                              optional_text(device, "reason", at)};
    }
  }
  return record;
}

}  // namespace berth::format
