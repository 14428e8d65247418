// Described nouns (world/description.hpp) as schemas for docs/reference/openapi.json.
#pragma once

#include <boost/json/fwd.hpp>
#include <boost/json/object.hpp>

namespace berth::format {

// The schemas by name. These nouns occur in requests, so other members are not allowed in them.
boost::json::object described_schemas();

}  // namespace berth::format
