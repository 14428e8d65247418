// docs/reference/openapi.json, embedded in the program.
#pragma once

#include <string_view>

namespace berth::server {

std::string_view openapi_document() noexcept;

}  // namespace berth::server
