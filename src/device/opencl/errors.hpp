// The table from OpenCL error codes to their names and to ErrorCode, with every code
// of the OpenCL headers, extensions included. Nothing else in the back end classifies
// an error number.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth::opencl {

struct ErrorRow {
  int code;
  std::string_view name;
  ErrorCode error;
};
// Sorted by code, highest (-1) first.
std::span<const ErrorRow> error_table() noexcept;

// Returns null for a code that is not in the table.
const ErrorRow* find_error(int code) noexcept;
const ErrorRow* find_error(std::string_view name) noexcept;

// `what` is the message, `where` the id of the device. A code that is not in the table
// keeps its number and is work_failed: nothing is known that would justify a retry.
Error error_of(int code, std::string what, std::string where = {});

}  // namespace berth::opencl
