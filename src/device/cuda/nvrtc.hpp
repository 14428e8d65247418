// Compiles CUDA C++ to PTX with NVIDIA's run-time compiler, opened at run time, with declarations
// of the calls that Berth makes (tests/cuda_headers.cu compares them with the toolkit's header).
// The compiler comes with the toolkit, not with the driver, so many machines do not have it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "berth/device_info.hpp"
#include "berth/result.hpp"

// The tag of the toolkit.
struct _nvrtcProgram;

namespace berth::nvrtc {

using Code = int;  // nvrtcResult
using Program = _nvrtcProgram*;

inline constexpr Code success = 0;

// X(symbol, type)
#define BERTH_NVRTC_CALLS(X)                                                                           \
  X(nvrtcCreateProgram,                                                                                \
    Code(Program*, const char* source, const char* name, int, const char* const*, const char* const*)) \
  X(nvrtcCompileProgram, Code(Program, int, const char* const*))                                       \
  X(nvrtcGetPTXSize, Code(Program, std::size_t*))                                                      \
  X(nvrtcGetPTX, Code(Program, char*))                                                                 \
  X(nvrtcGetProgramLogSize, Code(Program, std::size_t*))                                               \
  X(nvrtcGetProgramLog, Code(Program, char*))                                                          \
  X(nvrtcDestroyProgram, Code(Program*))                                                               \
  X(nvrtcGetErrorString, const char*(Code))                                                            \
  X(nvrtcGetNumSupportedArchs, Code(int*))                                                             \
  X(nvrtcGetSupportedArchs, Code(int*))

// PTX that runs on a device of this capability. invalid_argument: the source does not
// compile, with the compiler's log; not_supported: no compiler, or one that does not know
// the device. Thread-safe; the first call loads the library.
Result<std::string> compile(const std::string& source, const std::string& name, Capability device);

// The newest architecture of `known` (90 is 9.0) that the device can run: PTX runs on its
// own generation and later ones. Pure.
std::optional<int> newest_for(std::span<const int> known, Capability device);

}  // namespace berth::nvrtc
