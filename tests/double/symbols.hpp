// Every symbol of the double, declared from the lists that the back end loads:
// a definition of another type does not compile, and one that is missing does
// not link (symbols.cpp takes the address of each). A few more are looked up by
// tests, benchmarks and NVRTC alone.
#pragma once

#include "device/cuda/driver.hpp"
#include "device/cuda/nvml_api.hpp"

#define BERTH_DOUBLE_TESTED(X)                                       \
  X(cuDevicePrimaryCtxGetState, Code(DeviceNumber, unsigned*, int*)) \
  X(cuCtxCreate_v2, Code(Context*, unsigned, DeviceNumber))          \
  X(cuCtxDestroy_v2, Code(Context))                                  \
  X(cuStreamGetPriority, Code(StreamHandle, int*))                   \
  X(cuGetExportTable, Code(const void**, const CUuuid_st*))

#define BERTH_DOUBLE_DECLARE(symbol, ...) \
  using symbol##_exported = __VA_ARGS__;  \
  extern "C" symbol##_exported symbol;

namespace berth::cuda {
BERTH_CUDA_REQUIRED(BERTH_DOUBLE_DECLARE)
BERTH_CUDA_OPTIONAL(BERTH_DOUBLE_DECLARE)
BERTH_DOUBLE_TESTED(BERTH_DOUBLE_DECLARE)
}  // namespace berth::cuda

namespace berth::nvml {
BERTH_NVML_REQUIRED(BERTH_DOUBLE_DECLARE)
BERTH_NVML_OPTIONAL(BERTH_DOUBLE_DECLARE)
}  // namespace berth::nvml
