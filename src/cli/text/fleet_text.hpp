// The HTTP API's answers about the fleet as text for people: tables cut to the width of the terminal, and reasons as
// whole sentences. The comment beside each function names the path of its answer.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "cli/text/terminal.hpp"

namespace berth::cli {

std::string status_text(const boost::json::object& answer, const Style& style);         // /status
std::string nodes_text(const boost::json::object& answer, const Style& style);          // /nodes
std::string fleet_devices_text(const boost::json::object& answer, const Style& style);  // the same, device by device
std::string node_text(const boost::json::object& answer, const Style& style);           // /nodes/NAME
std::string deployments_text(const boost::json::object& answer, const Style& style);    // /deployments
std::string deployment_text(const boost::json::object& answer, const Style& style);     // /deployments/NAME
std::string rollout_text(const boost::json::object& answer, const Style& style);        // the same, without its spec
std::string replicas_text(const boost::json::object& answer, const Style& style);       // /replicas
std::string replica_text(const boost::json::object& answer, const Style& style);        // /replicas/NAME/N
std::string events_text(const boost::json::object& answer, const Style& style);         // /events
std::string tokens_text(const boost::json::object& answer, const Style& style);         // /tokens

}  // namespace berth::cli
