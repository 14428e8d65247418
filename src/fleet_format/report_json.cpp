#include "fleet_format/report_json.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <iterator>
#include <set>

#include "fleet/bounds.hpp"
#include "fleet/report_description.hpp"
#include "fleet_format/described_json.hpp"
#include "format/inventory_json.hpp"
#include "world/printable.hpp"

namespace berth::format {

namespace json = boost::json;

namespace {

template <class Container>
void cut(Container& container) {
  while (container.size() > fleet::device_words_max) container.erase(std::prev(container.end()));
}

DeviceInfo bounded_info_of(const json::value& value, const std::string& where) {
  DeviceInfo info = device_info_of(value, where);
  detail::checked_id(info.id.text(), where + ".id");
  if (info.parent) detail::checked_id(info.parent->text(), where + ".parent");
  if (info.former_id) detail::checked_id(info.former_id->text(), where + ".former_id");
  if (info.memory_bytes_total.value_or(0) > fleet::memory_bytes_max)
    throw JsonError{where + ".memory_bytes_total is more memory than any device has"};
  for (std::string* const text : {&info.backend, &info.name, &info.memory_domain, &info.fault_domain})
    *text = world::shortened(std::move(*text), fleet::sentence_bytes_max);
  if (info.pci_address) info.pci_address = world::shortened(*info.pci_address, fleet::sentence_bytes_max);
  cut(info.features);
  cut(info.labels);
  return info;
}

// A second device with the same id is left out; the rest of the report is still used.
void check_inventory(NodeView& node, const std::string& where) {
  if (node.devices.size() > fleet::node_devices_max)
    throw JsonError{where + ".devices has more than " + std::to_string(fleet::node_devices_max) + " entries"};
  for (const NodeDevice& device : node.devices) {
    detail::checked_id(device.info.id.text(), where + ".devices: an id");
    if (device.info.memory_bytes_total.value_or(0) > fleet::memory_bytes_max)
      throw JsonError{where + ".devices has more memory than any device"};
  }
  std::set<DeviceId> seen;
  std::erase_if(node.devices, [&](const NodeDevice& device) { return !seen.insert(device.info.id).second; });
}

}  // namespace

// The parts that also occur in separate files.
template <>
struct JsonOf<NodeView> {
  static json::value encode(const NodeView& node) { return node_view_to_json(node); }
  static NodeView decode(const json::value& value, const std::string& where, const world::FieldRules&, From) {
    NodeView node = node_view_of(value, where);
    check_inventory(node, where);
    return node;
  }
};
template <>
struct JsonOf<fleet::ReportedDevice> {
  static json::value encode(const fleet::ReportedDevice& device) { return to_json(device); }
  static fleet::ReportedDevice decode(const json::value& value, const std::string& where, const world::FieldRules&,
                                      From) {
    return reported_device_of(value, where);
  }
};

json::object to_json(const fleet::ReportedDevice& device) {
  json::object out = device_info_to_json(device.info);
  for (auto& entry : noun_to_json(device)) out.insert(entry);
  return out;
}
json::object to_json(const fleet::ReportedLease& lease) { return noun_to_json(lease); }
json::object to_json(const fleet::ReplicaReport& report) { return noun_to_json(report); }
json::object to_json(const fleet::NodeReport& report) { return noun_to_json(report); }

fleet::ReportedDevice reported_device_of(const json::value& value, const std::string& where) {
  auto device = noun_of<fleet::ReportedDevice>(value, where, From::report);
  device.info = bounded_info_of(value, where);
  return device;
}
fleet::ReportedLease reported_lease_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::ReportedLease>(value, where, From::report);
}
fleet::ReplicaReport replica_report_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::ReplicaReport>(value, where, From::report);
}

fleet::NodeReport node_report_of(const json::value& value, const std::string& where) {
  return noun_of<fleet::NodeReport>(value, where, From::report);
}

}  // namespace berth::format
