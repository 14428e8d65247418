#include "format/fleet_json.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>
#include <set>

#include "fleet/bounds.hpp"
#include "fleet/endpoints_description.hpp"
#include "fleet/fleet_description.hpp"
#include "fleet/requests_description.hpp"
#include "format/described_json.hpp"
#include "format/inventory_json.hpp"
#include "format/json_text.hpp"
#include "format/plan_json.hpp"
#include "format/report_json.hpp"
#include "world/printable.hpp"

namespace berth::format {

namespace json = boost::json;

// A list, with the id of the device in each entry.
template <>
struct JsonOf<std::map<DeviceId, fleet::DeviceIntent>> {
  static json::value encode(const std::map<DeviceId, fleet::DeviceIntent>& devices);
  static std::map<DeviceId, fleet::DeviceIntent> decode(const json::value& value, const std::string& where,
                                                        const world::FieldRules& rules, From from);
};

namespace {
struct DeviceEntry {
  DeviceId device;
  fleet::DeviceIntent intent;
};
}  // namespace

}  // namespace berth::format

template <>
inline constexpr auto berth::world::fields<berth::format::DeviceEntry> =
    std::tuple{Field{"device", &format::DeviceEntry::device}.required(), Inline{&format::DeviceEntry::intent}};

namespace berth::format {

json::value JsonOf<std::map<DeviceId, fleet::DeviceIntent>>::encode(
    const std::map<DeviceId, fleet::DeviceIntent>& devices) {
  json::array out;
  for (const auto& [id, intent] : devices) out.push_back(noun_to_json(DeviceEntry{id, intent}));
  return out;
}

std::map<DeviceId, fleet::DeviceIntent> JsonOf<std::map<DeviceId, fleet::DeviceIntent>>::decode(
    const json::value& value, const std::string& where, const world::FieldRules&, From from) {
  std::map<DeviceId, fleet::DeviceIntent> out;
  for (const json::value& given : array_of(value, where)) {
    DeviceEntry entry = noun_of<DeviceEntry>(given, where, from);
    out[entry.device] = std::move(entry.intent);
  }
  return out;
}

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

template <class List>
void check_length(const List& list, std::size_t most, const std::string& where) {
  if (list.size() > most) throw JsonError{where + " is longer than " + std::to_string(most)};
}

void check_rows(const std::vector<fleet::RequestCounts>& rows, std::size_t most, const std::string& where) {
  constexpr std::size_t words_max = 32;  // of classes and codes, of which there are a dozen
  check_length(rows, most, where);
  std::set<std::string_view> names;
  for (const fleet::RequestCounts& row : rows) {
    if (!names.insert(row.name).second) throw JsonError{where + " has two rows named " + in_quotes(row.name)};
    check_length(row.name, fleet::report_name_bytes_max, where + ".name");
    for (const auto* counts : {&row.answered, &row.rejected}) {
      check_length(*counts, words_max, where + ".answered or rejected");
      for (const auto& [word, count] : *counts) check_length(word, words_max, where + ".answered or rejected");
    }
    for (const fleet::TimeHistogram* times : {&row.first_byte, &row.total})
      check_length(times->counts, fleet::time_buckets + 1, where + ".counts");
  }
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

json::object to_json(const fleet::Wanted& wanted) { return noun_to_json(wanted); }
json::object to_json(const fleet::Assigned& assigned) { return noun_to_json(assigned); }
json::object to_json(const fleet::ReplicaReport& report) { return noun_to_json(report); }
json::object to_json(const fleet::NodeOrders& orders) { return noun_to_json(orders); }
json::object to_json(const fleet::Event& event) { return noun_to_json(event); }
json::object to_json(const fleet::Credential& credential) { return noun_to_json(credential); }
json::object to_json(const fleet::NodeRecord& record) { return noun_to_json(record); }
json::object to_json(const fleet::ServedDeployment& deployment) { return noun_to_json(deployment); }
json::object to_json(const fleet::GatewayView& view) { return noun_to_json(view); }
json::object to_json(const fleet::GatewayReport& report) { return noun_to_json(report); }
json::object to_json(const fleet::RequestRecord& record) { return noun_to_json(record); }
json::object to_json(const fleet::RouteAnswer& answer) { return noun_to_json(answer); }
json::object assignment_to_json(const Assignment& assignment) { return noun_to_json(assignment); }

fleet::Wanted wanted_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::Wanted>(value, where, From::record);
}
fleet::Assigned assigned_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::Assigned>(value, where, From::record);
}
fleet::ReplicaReport replica_report_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::ReplicaReport>(value, where, From::record);
}
fleet::NodeOrders node_orders_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::NodeOrders>(value, where, From::record);
}
fleet::Event event_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::Event>(value, where, From::record);
}
fleet::Credential credential_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::Credential>(value, where, From::record);
}
fleet::NodeRecord node_record_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::NodeRecord>(value, where, From::record);
}
fleet::GatewayView gateway_view_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::GatewayView>(value, where, From::record);
}
fleet::GatewayReport gateway_report_of(const json::value& value, const std::string& where) {
  auto report = noun_of<fleet::GatewayReport>(value, where, From::record);
  check_rows(report.deployments, fleet::report_deployments_max, where + ".deployments");
  check_rows(report.replicas, fleet::report_replicas_max, where + ".replicas");
  check_rows(report.callers, fleet::report_callers_max, where + ".callers");
  check_length(report.requests, fleet::report_records_max, where + ".requests");
  for (const fleet::RequestRecord& record : report.requests) {
    check_length(record.id, fleet::request_id_bytes_max, where + ".requests.id");
    check_length(record.candidates, fleet::candidates_max, where + ".requests.candidates");
    check_length(record.attempts, fleet::attempts_max, where + ".requests.attempts");
    for (const std::string* name : {&record.caller, &record.deployment.text(), &record.policy})
      check_length(*name, fleet::report_name_bytes_max, where + ".requests");
    for (const fleet::RequestCandidate& candidate : record.candidates)
      check_length(candidate.replica, fleet::report_name_bytes_max, where + ".requests.candidates.replica");
    for (const fleet::RequestAttempt& attempt : record.attempts)
      check_length(attempt.replica + attempt.node.text(), 2 * fleet::report_name_bytes_max,
                   where + ".requests.attempts");
  }
  return report;
}
Assignment assignment_of(const json::value& value, const std::string& where) {
  auto assignment = noun_of<Assignment>(value, where, From::record);
  std::sort(assignment.devices.begin(), assignment.devices.end());
  return assignment;
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

}  // namespace berth::format
