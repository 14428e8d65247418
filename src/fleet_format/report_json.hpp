// What an agent reports about its node (fleet/fleet.hpp, fleet/reported_device.hpp) as JSON, both ways:
// see fleet/report_description.hpp.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>

#include "fleet/fleet.hpp"

namespace berth::format {

boost::json::object to_json(const fleet::ReportedDevice& device);
boost::json::object to_json(const fleet::ReportedLease& lease);
boost::json::object to_json(const fleet::ReplicaReport& report);
boost::json::object to_json(const fleet::NodeReport& report);

// All throw a JsonError. Texts are cut, and lists end, at the bounds of fleet/bounds.hpp; unknown members are left
// out, so that none gets through the server. Invalid devices and leases are left out of their report.
fleet::ReportedDevice reported_device_of(const boost::json::value& value, const std::string& where);
fleet::ReportedLease reported_lease_of(const boost::json::value& value, const std::string& where);
fleet::ReplicaReport replica_report_of(const boost::json::value& value, const std::string& where);
fleet::NodeReport node_report_of(const boost::json::value& value, const std::string& where);

}  // namespace berth::format
