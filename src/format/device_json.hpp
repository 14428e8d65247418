// One observed device as JSON, as `berth devices --json` and `berth inventory` print it.
#pragma once

#include <boost/json.hpp>

#include "inventory/device_row.hpp"

namespace berth::format {

boost::json::object device_to_json(const inventory::DeviceRow& row, TimePoint now);

}  // namespace berth::format
