// Gateways and endpoints of replicas as a table.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "cli/text/terminal.hpp"

namespace berth::cli {

std::string endpoints_text(const boost::json::object& answer, const Style& style);

}  // namespace berth::cli
