#include "format/inventory_json.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>

#include "berth/bytes.hpp"
#include "deployment/identifiers.hpp"
#include "format/device_json.hpp"
#include "format/json_reading.hpp"
#include "format/json_text.hpp"
#include "inventory/device_description.hpp"
#include "inventory/device_row.hpp"

namespace berth::format {

namespace json = boost::json;

namespace {

std::int32_t signed_number(const json::value& value, const std::string& where) {
  return static_cast<std::int32_t>(number_of(value, std::numeric_limits<std::int32_t>::max(), where));
}

// Bytes as in a fleet file: a number, or text such as "64GiB".
std::uint64_t bytes_of(const json::value& value, const std::string& where) {
  if (!value.is_string()) return whole_of(value, where);
  const auto bytes = parse_bytes(text_of(value, where));
  if (!bytes) throw JsonError{where + ": " + bytes.error().message};
  return *bytes;
}

Health health_of(const json::value& value, const std::string& where) {
  return word_of<Health>(value, world::words<Health>, where);
}

std::string not_empty(std::string text, const std::string& where) {
  if (text.empty()) throw JsonError{where + " is empty"};
  return text;
}

}  // namespace

DeviceInfo device_info_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  DeviceInfo info;
  info.id = DeviceId(not_empty(text_of(member(object, "id", where), where + ".id"), where + ".id"));
  info.backend = not_empty(text_of(member(object, "backend", where), where + ".backend"), where + ".backend");
  info.name = optional_member(object, "name", where, text_of).value_or("");
  info.ordinal = optional_member(object, "ordinal", where, signed_number).value_or(0);
  info.memory_bytes_total = optional_member(object, "memory_bytes_total", where, bytes_of);
  info.capability = optional_member(object, "capability", where, capability_of);
  info.compute_units = optional_member(object, "compute_units", where, small_of);
  info.pci_address = optional_member(object, "pci_address", where, text_of);
  info.numa_node = optional_member(object, "numa_node", where, signed_number);
  if (auto former = optional_member(object, "former_id", where, text_of)) info.former_id = DeviceId(*std::move(former));
  if (auto parent = optional_member(object, "parent", where, text_of)) info.parent = DeviceId(*std::move(parent));
  info.memory_domain = optional_member(object, "memory_domain", where, text_of).value_or(info.id.text());
  info.fault_domain = optional_member(object, "fault_domain", where, text_of).value_or(info.id.text());
  info.concurrency = std::max(1u, optional_member(object, "concurrency", where, small_of).value_or(1));
  info.is_fallback = optional_member(object, "is_fallback", where, bool_of).value_or(false);
  for (std::string& feature : optional_member(object, "features", where, texts_of).value_or(std::vector<std::string>{}))
    info.features.insert(std::move(feature));
  info.labels = optional_member(object, "labels", where, labels_of).value_or(std::map<std::string, std::string>{});
  return info;
}

Link link_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  Link link;
  link.a = DeviceId(text_of(member(object, "a", where), where + ".a"));
  link.b = DeviceId(text_of(member(object, "b", where), where + ".b"));
  const std::string kind = text_of(member(object, "kind", where), where + ".kind");
  const auto known = link_kind_named(kind);
  if (!known) throw JsonError{where + ".kind is \"" + kind + "\", which is not known"};
  link.kind = *known;
  link.lanes = optional_member(object, "lanes", where, small_of).value_or(0);
  link.peer_access = optional_member(object, "peer_access", where, bool_of);
  return link;
}

namespace {

DeviceProcess process_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  DeviceProcess process;
  process.kind = word_of<ProcessKind>(member(object, "kind", where), world::words<ProcessKind>, where + ".kind");
  process.memory_bytes = optional_member(object, "memory_bytes", where, bytes_of);
  process.graphics = optional_member(object, "graphics", where, bool_of).value_or(false);
  return process;
}

// Only the fields that show whether other processes use the device.
Telemetry telemetry_of(const json::object& object, const std::string& where) {
  Telemetry seen;
  seen.load.memory_bytes_total = optional_member(object, "memory_bytes_total", where, bytes_of);
  // Until 0.1.0 the name was "utilisation".
  seen.load.utilization =
      optional_member(object, object.contains("utilization") ? "utilization" : "utilisation", where, real_of);
  seen.memory_use.foreign = optional_member(object, "memory_bytes_foreign", where, bytes_of);
  seen.memory_use.unattributed = optional_member(object, "memory_bytes_unattributed", where, bytes_of);
  if (const json::value* processes = object.if_contains("processes")) {
    seen.processes.emplace();
    for (const json::value& process : array_of(*processes, where + ".processes"))
      seen.processes->push_back(process_of(process, where + ".processes"));
  }
  return seen;
}

NodeDevice device_of(const json::value& value, const std::string& where) {
  NodeDevice device;
  device.info = device_info_of(value, where);
  const json::object& object = object_of(value, where);
  device.intent = optional_member(object, "intent", where, intent_of).value_or(Intent::in_service);
  device.health = optional_member(object, "health", where, health_of).value_or(Health::healthy);
  device.memory_bytes_promised = optional_member(object, "memory_bytes_promised", where, bytes_of).value_or(0);
  device.holders = optional_member(object, "holders", where, small_of).value_or(0);
  device.held_exclusively = optional_member(object, "held_exclusively", where, bool_of).value_or(false);
  device.answers = !object.contains("error");
  const inventory::OtherUse others = inventory::use_by_others(telemetry_of(object, where));
  // Stated explicitly by node_view_to_json(), which does not write the processes.
  device.other_processes = optional_member(object, "other_processes", where, small_of).value_or(others.processes);
  device.used_by_others = optional_member(object, "used_by_others", where, bool_of).value_or(others.used);
  device.memory_bytes_used = optional_member(object, "memory_bytes_used", where, bytes_of);
  const auto total = device.info.memory_bytes_total,
             free = optional_member(object, "memory_bytes_free", where, bytes_of);
  if (!device.memory_bytes_used && total && free) device.memory_bytes_used = *total - std::min(*total, *free);
  // Until 0.1.0, node_view_to_json() wrote the field under this name.
  if (!device.memory_bytes_used)
    device.memory_bytes_used = optional_member(object, "memory_bytes_foreign", where, bytes_of);
  return device;
}

}  // namespace

NodeView node_view_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  const auto format = optional_member(object, "format", where, whole_of);
  if (format.value_or(inventory_format) > inventory_format)
    throw JsonError{where + " was written by a newer version of berth (format " + std::to_string(*format) + ")",
                    ErrorCode::not_supported};
  const std::string at = where + ".node";
  const json::object& source = object_of(member(object, "node", where), at);
  NodeView node;
  const std::string name = text_of(member(source, "name", at), at + ".name");
  if (!deployment::is_name(name))
    throw JsonError{at + ".name is \"" + name +
                    "\"; a name consists of letters, digits, '.', '_' and '-', starting with a letter or digit"};
  node.id = NodeId(name);
  node.cpus = optional_member(source, "cpus", at, small_of);
  node.memory_bytes = optional_member(source, "memory", at, bytes_of);
  node.egress = optional_member(source, "egress", at, bool_of).value_or(false);
  node.labels = optional_member(source, "labels", at, labels_of).value_or(std::map<std::string, std::string>{});
  for (std::string& taint : optional_member(source, "taints", at, texts_of).value_or(std::vector<std::string>{}))
    node.taints.insert(std::move(taint));
  node.intent = optional_member(source, "intent", at, intent_of).value_or(Intent::in_service);
  node.health = optional_member(source, "health", at, health_of).value_or(Health::healthy);

  std::vector<DeviceId> ids;
  for (const json::value& device : array_of(member(object, "devices", where), where + ".devices")) {
    node.devices.push_back(device_of(device, where + ".devices[" + std::to_string(node.devices.size()) + "]"));
    ids.push_back(node.devices.back().info.id);
  }
  if (const json::value* links = object.if_contains("links")) {
    for (const json::value& link : array_of(*links, where + ".links"))
      node.links.push_back(link_of(link, where + ".links[" + std::to_string(node.links.size()) + "]"));
  }
  auto topology = make_topology(std::move(ids), std::move(node.links));
  if (!topology) throw JsonError{where + ".links: " + topology.error().message};
  node.links = std::move(topology->links);
  return node;
}

json::object device_info_to_json(const DeviceInfo& info) {
  json::object out{{"id", info.id.text()}, {"backend", info.backend}, {"name", info.name}, {"ordinal", info.ordinal}};
  if (info.former_id) out["former_id"] = info.former_id->text();
  if (info.parent) out["parent"] = info.parent->text();
  if (info.memory_bytes_total) out["memory_bytes_total"] = *info.memory_bytes_total;
  if (info.capability) out["capability"] = to_string(*info.capability);
  if (info.compute_units) out["compute_units"] = *info.compute_units;
  if (info.pci_address) out["pci_address"] = *info.pci_address;
  if (info.numa_node) out["numa_node"] = *info.numa_node;
  out["concurrency"] = info.concurrency;
  out["is_fallback"] = info.is_fallback;
  out["memory_domain"] = info.memory_domain;
  out["fault_domain"] = info.fault_domain;
  out["features"] = json::array(info.features.begin(), info.features.end());
  out["labels"] = labels_to_json(info.labels);
  return out;
}

json::array links_to_json(std::span<const Link> links) {
  json::array out;
  for (const Link& link : links) {
    json::object entry{{"a", link.a.text()}, {"b", link.b.text()}, {"kind", to_string(link.kind)}};
    if (link.lanes > 0) entry["lanes"] = link.lanes;
    if (link.peer_access) entry["peer_access"] = *link.peer_access;
    out.push_back(std::move(entry));
  }
  return out;
}

namespace {

json::object about_node(const NodeView& node) {
  json::object out{{"name", node.id.text()}};
  if (node.cpus) out["cpus"] = *node.cpus;
  if (node.memory_bytes) out["memory"] = *node.memory_bytes;
  out["egress"] = node.egress;
  return out;
}

}  // namespace

json::object node_view_to_json(const NodeView& node) {
  json::object about = about_node(node);
  if (!node.labels.empty()) about["labels"] = labels_to_json(node.labels);
  if (!node.taints.empty()) about["taints"] = json::array(node.taints.begin(), node.taints.end());
  if (node.intent != Intent::in_service) about["intent"] = to_string(node.intent);
  if (node.health != Health::healthy) about["health"] = to_string(node.health);
  json::array devices;
  for (const NodeDevice& device : node.devices) {
    json::object entry = device_info_to_json(device.info);
    entry["health"] = to_string(device.health);
    if (device.intent != Intent::in_service) entry["intent"] = to_string(device.intent);
    if (device.memory_bytes_used) {
      entry["memory_bytes_used"] = *device.memory_bytes_used;
      // Also written in the form that servers of 0.1.0 read, because agents are upgraded before their server.
      if (const auto total = device.info.memory_bytes_total)
        entry["memory_bytes_free"] = *total - std::min(*total, *device.memory_bytes_used);
    }
    if (device.memory_bytes_promised) entry["memory_bytes_promised"] = device.memory_bytes_promised;
    if (device.holders) entry["holders"] = device.holders;
    if (device.held_exclusively) entry["held_exclusively"] = true;
    entry["other_processes"] = device.other_processes;
    entry["used_by_others"] = device.used_by_others;
    if (!device.answers) entry["error"] = "its driver does not answer";
    devices.push_back(std::move(entry));
  }
  return {{"format", inventory_format},
          {"node", std::move(about)},
          {"devices", std::move(devices)},
          {"links", links_to_json(node.links)}};
}

std::string inventory_to_json(const NodeView& node, std::span<const inventory::DeviceRow> rows, TimePoint now) {
  json::array devices;
  std::vector<DeviceId> ids;
  for (const inventory::DeviceRow& row : rows) {
    devices.push_back(device_to_json(row, now));
    ids.push_back(row.info.id);
  }
  json::array groups;
  for (const auto& island : islands(make_topology(std::move(ids), node.links).value())) {
    json::array members;
    for (const DeviceId& id : island) members.emplace_back(id.text());
    groups.push_back(std::move(members));
  }
  const json::object out{{"format", inventory_format},
                         {"node", about_node(node)},
                         {"devices", std::move(devices)},
                         {"links", links_to_json(node.links)},
                         {"islands", std::move(groups)}};
  return json_text(out) + "\n";
}

bool looks_like_json(std::string_view text) {
  // An array of objects, not the [[table]] or [table] of TOML.
  const auto next = [&](std::size_t from) { return text.find_first_not_of(" \t\r\n", from); };
  const std::size_t first = next(0);
  if (first == std::string_view::npos) return false;
  if (text[first] == '{') return true;
  const std::size_t second = next(first + 1);
  return text[first] == '[' && second != std::string_view::npos && (text[second] == '{' || text[second] == ']');
}

Result<Fleet> read_fleet_json(std::string_view text, std::string_view filename) {
  const std::string advice = "give what berth inventory --json has printed, or an array of such objects";
  const auto parsed = parse_json(text, filename, advice);
  if (!parsed) return parsed.error();
  try {
    Fleet fleet;
    deployment::FleetIds ids;
    const auto add = [&](const json::value& value, const std::string& where) {
      fleet.nodes.push_back(node_view_of(value, where));
      if (auto wrong = ids.add(fleet.nodes.back())) throw JsonError{*std::move(wrong)};
    };
    if (parsed->is_array()) {
      for (const json::value& value : parsed->get_array()) add(value, "[" + std::to_string(fleet.nodes.size()) + "]");
    } else {
      add(*parsed, "the inventory");
    }
    return fleet;
  } catch (const JsonError& error) {
    return Error{
        ErrorCode::invalid_argument, std::string(filename) + " is not an inventory: " + error.what, advice, {}, {}};
  }
}

}  // namespace berth::format
