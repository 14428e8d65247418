// What a node shows of its devices and leases (fleet/reported_device.hpp) as JSON, both ways.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>

#include "fleet/reported_device.hpp"

namespace berth::format {

boost::json::object to_json(const fleet::ReportedDevice& device);
boost::json::object to_json(const fleet::ReportedLease& lease);

// Both throw a JsonError. Texts are cut, and lists end, at the bounds of fleet/bounds.hpp; members that are not known
// are left out, so that none gets past the server.
fleet::ReportedDevice reported_device_of(const boost::json::value& value, const std::string& where);
fleet::ReportedLease reported_lease_of(const boost::json::value& value, const std::string& where);

}  // namespace berth::format
