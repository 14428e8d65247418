// JSON as text for people and scripts: Boost.JSON writes 11.6 as 1.16E1, which is correct but unusual.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace berth::format {

// Numbers with a fraction as plain decimals that read back as the same number ("11.6", "2.0"); others as Boost.JSON
// does.
std::string json_text(const boost::json::value& value);
std::string json_text(const boost::json::object& object);
std::string json_text(const boost::json::array& array);

}  // namespace berth::format
