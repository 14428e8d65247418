// POCL_DEVICES, which says what devices PoCL (the OpenCL driver for processors)
// makes. PoCL leaves out every name that it does not know without a word, so a
// typing error costs a device and nobody says why: Berth says it. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "berth/result.hpp"

namespace berth {

constexpr const char* pocl_devices_variable = "POCL_DEVICES";
constexpr std::string_view pocl_platform_name = "Portable Computing Language";

// What is wrong with the value of the variable; absent: nothing.
std::optional<Error> pocl_devices_problem(std::string_view value);

}  // namespace berth
