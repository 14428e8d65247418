// Described nouns (world/description.hpp) as schemas for docs/reference/openapi.json.
#pragma once

#include <boost/json/fwd.hpp>
#include <boost/json/object.hpp>

namespace berth::format {

// By name. Requests have these nouns, so nothing else may be in them.
boost::json::object described_schemas();

}  // namespace berth::format
