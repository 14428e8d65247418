// The inventory of a machine as JSON, and a fleet read from one such object or an array
// of them, one per node. Values that placement does not need (loads, processes,
// temperatures) are written for other tools and ignored when reading.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <span>
#include <string>
#include <string_view>

#include "deployment/names.hpp"
#include "inventory/device_row.hpp"

namespace berth::format {

inline constexpr int inventory_format = 1;

boost::json::array links_to_json(std::span<const Link> links);
boost::json::object device_info_to_json(const DeviceInfo& info);
// Both throw a JsonError (json_reading.hpp).
Link link_of(const boost::json::value& value, const std::string& where);
DeviceInfo device_info_of(const boost::json::value& value, const std::string& where);

// A node with exactly what placement needs, in the form of an inventory without telemetry.
boost::json::object node_view_to_json(const NodeView& node);
// Reads both forms; throws a JsonError.
NodeView node_view_of(const boost::json::value& value, const std::string& where);

// One line: node, devices (as `berth devices --json` has them), links, islands.
// `rows` are the devices of the node, in its order.
std::string inventory_to_json(const NodeView& node, std::span<const inventory::DeviceRow> rows, TimePoint now);

// Decides between JSON and TOML by the first characters.
bool looks_like_json(std::string_view text);
// invalid_argument names the file and the position; not_supported: a newer version
// wrote it.
Result<Fleet> read_fleet_json(std::string_view text, std::string_view filename);

}  // namespace berth::format
