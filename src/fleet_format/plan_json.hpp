// Plans and fleets as JSON: what `-o` writes, `--current` reads and `--json`
// prints. A plan file contains the version of its format and the name of its cluster,
// so that a newer or foreign plan is refused.
#pragma once

#include <boost/json/fwd.hpp>
#include <boost/json/object.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "deployment/evidence.hpp"
#include "deployment/names.hpp"

namespace berth::format {

inline constexpr int plan_format = 1;

// `changes`: for entries of plan.pending, in their order; may be shorter.
std::string plan_to_json(const Plan& plan, std::string_view cluster, const deployment::SmallestChanges& changes = {});
boost::json::object change_to_json(const deployment::Evidence::Change& change);
std::string fleet_to_json(const Fleet& fleet);

boost::json::object assignment_to_json(const Assignment& assignment);
// Throws a JsonError (json_reading.hpp).
Assignment assignment_of(const boost::json::value& value, const std::string& where);

// The assignments of a plan file. invalid_argument names the file and the position;
// not_supported: a newer version wrote it.
Result<std::vector<Assignment>> read_plan(std::string_view text, std::string_view filename, std::string_view cluster);

}  // namespace berth::format
