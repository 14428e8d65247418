// Deployments and projects as JSON: the form of the API and of the store (deployment/spec_description.hpp). The names
// are those of the TOML file with the unit in the name: durations in seconds (`stop_grace_s`), memory in bytes
// (`memory_bytes`). Members with their default value are not written.
#pragma once

#include <boost/json/fwd.hpp>
#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "deployment/names.hpp"

namespace berth::format {

// Durations have a resolution of a millisecond, `cpus` of a thousandth.
boost::json::object spec_to_json(const DeploymentSpec& spec);
boost::json::object project_to_json(const Project& project);
boost::json::value egress_preference_to_json(const EgressPreference& preference);

// All throw a JsonError (json_reading.hpp) and check the form only; see validate().
// In a request, unknown members and values out of bounds are refused.
DeploymentSpec spec_of(const boost::json::value& value, const std::string& where);
// In a record or an order, unknown members are kept, so that an agent refuses only this replica and not all of its
// orders.
DeploymentSpec spec_in_record(const boost::json::value& value, const std::string& where);
Project project_of(const boost::json::value& value, const std::string& where);
EgressPreference egress_preference_of(const boost::json::value& value, const std::string& where);

// Reads and validates. invalid_argument names the position; not_supported: a newer version wrote it.
Result<Project> read_project_json(std::string_view text, std::string_view filename);

}  // namespace berth::format
