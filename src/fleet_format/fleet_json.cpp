#include "fleet_format/fleet_json.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "fleet/bounds.hpp"
#include "fleet/endpoints_description.hpp"
#include "fleet/fleet_description.hpp"
#include "fleet/requests_description.hpp"
#include "fleet_format/described_json.hpp"
#include "fleet_format/plan_json.hpp"
#include "format/inventory_json.hpp"

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

template <class List>
void check_length(const List& list, std::size_t most, const std::string& where) {
  if (list.size() > most) throw JsonError{where + " is longer than " + std::to_string(most)};
}

void check_rows(const std::vector<fleet::RequestCounts>& rows, std::size_t most, const std::string& where) {
  constexpr std::size_t words_max = 32;  // for classes and codes, of which there are a dozen
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

}  // namespace

json::object to_json(const fleet::DesiredDeployment& wanted) { return noun_to_json(wanted); }
json::object to_json(const fleet::Assigned& assigned) { return noun_to_json(assigned); }
json::object to_json(const fleet::NodeOrders& orders) { return noun_to_json(orders); }
json::object to_json(const fleet::Event& event) { return noun_to_json(event); }
json::object to_json(const fleet::Credential& credential) { return noun_to_json(credential); }
json::object to_json(const fleet::NodeRecord& record) { return noun_to_json(record); }
json::object to_json(const fleet::ServedDeployment& deployment) { return noun_to_json(deployment); }
json::object to_json(const fleet::CallerTraffic& caller) { return noun_to_json(caller); }
json::object to_json(const fleet::GatewayView& view) { return noun_to_json(view); }
json::object to_json(const fleet::GatewayReport& report) { return noun_to_json(report); }
json::object to_json(const fleet::RequestRecord& record) { return noun_to_json(record); }
json::object to_json(const fleet::RouteAnswer& answer) { return noun_to_json(answer); }
json::object assignment_to_json(const Assignment& assignment) { return noun_to_json(assignment); }

fleet::DesiredDeployment wanted_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::DesiredDeployment>(value, where, From::record);
}
fleet::Assigned assigned_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::Assigned>(value, where, From::record);
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
  check_length(report.unconnected, fleet::report_unconnected_max, where + ".unconnected_nodes");
  for (const NodeId& node : report.unconnected)
    check_length(node.text(), fleet::report_name_bytes_max, where + ".unconnected_nodes");
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

}  // namespace berth::format
