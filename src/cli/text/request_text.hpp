// What happened to a request at a gateway, and what would happen to one, as sentences and tables.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "cli/text/terminal.hpp"

namespace berth::cli {

std::string request_text(const boost::json::object& answer, const Style& style);  // /requests/ID
std::string route_text(const boost::json::object& answer, const Style& style);    // /route

}  // namespace berth::cli
