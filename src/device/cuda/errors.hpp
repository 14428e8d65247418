// The table from codes of the CUDA driver to their names and to ErrorCode. A code that
// leaves the process without a usable context is device_lost: a faulted GPU context cannot
// be rebuilt inside the process. Unknown codes of newer drivers are unavailable and keep
// their number. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth::cuda {

inline constexpr int code_success = 0;
inline constexpr int code_invalid_value = 1;
inline constexpr int code_out_of_memory = 2;
inline constexpr int code_not_initialized = 3;
inline constexpr int code_no_device = 100;
inline constexpr int code_not_ready = 600;

struct DriverCode {
  int code;
  std::string_view name;
  ErrorCode meaning;
};

// Sorted by code.
std::span<const DriverCode> driver_codes() noexcept;

ErrorCode meaning_of(int code) noexcept;
std::string name_of(int code);  // "CUDA_ERROR_ILLEGAL_ADDRESS"; unlisted codes: "CUDA_ERROR_<code>"
bool is_fatal(int code) noexcept;

// The error for a failed driver call. `doing` completes "the CUDA driver failed while ...".
Error error_of(int code, std::string_view doing, std::string where);

}  // namespace berth::cuda
