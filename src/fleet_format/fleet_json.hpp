// The nouns of a fleet (fleet/fleet.hpp) as JSON: what the store keeps, and what servers and agents send each other.
// document() makes a text of such an object, and read_document() reads one (json_reading.hpp):
//   const std::string text = document(to_json(wanted));
//   const Result<fleet::DesiredDeployment> wanted = read_document(text, "deployment/chat", wanted_of);
// Unknown members are ignored, so that neighbouring versions understand each other; only a deployment's spec is read
// strictly (spec_json.hpp). Wall times end in `_at_ms`.
#pragma once

#include <boost/json/fwd.hpp>
#include <boost/json/object.hpp>
#include <string>

#include "fleet/endpoints.hpp"
#include "fleet/fleet.hpp"
#include "fleet/requests.hpp"
#include "fleet_format/report_json.hpp"
#include "fleet_format/spec_json.hpp"
#include "format/json_reading.hpp"

namespace berth::format {

boost::json::object to_json(const fleet::DesiredDeployment& wanted);
boost::json::object to_json(const fleet::Assigned& assigned);
boost::json::object to_json(const fleet::NodeOrders& orders);
boost::json::object to_json(const fleet::Event& event);
boost::json::object to_json(const fleet::Credential& credential);
boost::json::object to_json(const fleet::NodeRecord& record);
boost::json::object to_json(const fleet::ServedDeployment& deployment);
boost::json::object to_json(const fleet::CallerTraffic& caller);
boost::json::object to_json(const fleet::GatewayView& view);
boost::json::object to_json(const fleet::GatewayReport& report);
boost::json::object to_json(const fleet::RequestRecord& record);
boost::json::object to_json(const fleet::RouteAnswer& answer);

// All throw a JsonError.
fleet::DesiredDeployment wanted_of(const boost::json::value& value, const std::string& where);
fleet::Assigned assigned_of(const boost::json::value& value, const std::string& where);
fleet::NodeOrders node_orders_of(const boost::json::value& value, const std::string& where);
fleet::Event event_of(const boost::json::value& value, const std::string& where);
fleet::Credential credential_of(const boost::json::value& value, const std::string& where);
fleet::NodeRecord node_record_of(const boost::json::value& value, const std::string& where);
fleet::GatewayView gateway_view_of(const boost::json::value& value, const std::string& where);
// Applies the bounds of fleet/requests.hpp.
fleet::GatewayReport gateway_report_of(const boost::json::value& value, const std::string& where);

}  // namespace berth::format
