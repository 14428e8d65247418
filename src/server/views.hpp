// The answers of the API as JSON, from the leader's state. docs/reference/openapi.json describes them.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <string>

#include "fleet/fleet.hpp"
#include "server/leader.hpp"

namespace berth::server {

boost::json::object status_view(const Leader& leader, const std::string& version, std::uint64_t started_ms);
boost::json::object node_view(const Leader& leader, const fleet::NodeRecord& record);
boost::json::array nodes_view(const Leader& leader);
boost::json::object deployment_view(const Leader& leader, const controller::DeploymentStatus& status, bool whole);
// Returns nullopt if there is no such deployment.
std::optional<boost::json::object> deployment_view(const Leader& leader, const DeploymentId& name);
boost::json::array deployments_view(const Leader& leader);
// All incarnations and pending replicas, or those of one deployment.
boost::json::array replicas_view(const Leader& leader, const std::optional<DeploymentId>& only);
boost::json::array pending_view(const Leader& leader, const std::optional<DeploymentId>& only = std::nullopt);
// One replica: its incarnations, the reasons for its place or for having none, and its last events.
boost::json::object replica_view(const Leader& leader, const DeploymentId& name, std::uint32_t replica);
boost::json::array jobs_view(const Leader& leader);
boost::json::value plan_view(const Leader& leader, const Plan& plan, const deployment::SmallestChanges& changes = {});
boost::json::object applied_view(const Leader& leader, const Leader::Applied& applied,
                                 const controller::Preview& preview, bool dry_run);
boost::json::array credentials_view(const Leader& leader);

}  // namespace berth::server
