// What the numbers of OpenCL mean to a caller: one table from the driver's code
// to its name and to our ErrorCode. It holds every error code of the OpenCL
// headers, extensions included. The table is the only place that knows; nothing
// else in the back end compares against an error number to classify it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth {

struct OpenclErrorRow {
  int code;
  std::string_view name;
  ErrorCode error;
};
// Sorted by code, highest (-1) first.
std::span<const OpenclErrorRow> opencl_error_table() noexcept;

// Null for a code that is not in the table.
const OpenclErrorRow* find_opencl_error(int code) noexcept;
const OpenclErrorRow* find_opencl_error(std::string_view name) noexcept;

// `what` is the sentence, `where` the device's id. A code without a row keeps its
// number and counts as work_failed: nothing is known that would justify a retry.
Error opencl_error(int code, std::string what, std::string where = {});

}  // namespace berth
