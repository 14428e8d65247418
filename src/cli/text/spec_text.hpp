// The spec of a deployment as the file of a project has it: `unready_within` and "5 min", where the API has
// `unready_within_s` and 300.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <string>

#include "cli/text/terminal.hpp"

namespace berth::cli {

// One line for each field but its name.
std::string spec_text(const boost::json::object& spec, const Style& style);
// Names of fields of a spec, separated by commas.
std::string field_names_text(const boost::json::array& names);

}  // namespace berth::cli
