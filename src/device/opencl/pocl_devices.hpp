// Checks POCL_DEVICES, which selects the devices that PoCL (the OpenCL driver for processors)
// creates. PoCL silently ignores names that it does not know, so a typo would silently remove a
// device. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "berth/result.hpp"

namespace berth::opencl {

constexpr const char* pocl_devices_variable = "POCL_DEVICES";
constexpr std::string_view pocl_platform_name = "Portable Computing Language";

// The error in the value of the variable; absent if it is correct.
std::optional<Error> pocl_devices_problem(std::string_view value);

}  // namespace berth::opencl
