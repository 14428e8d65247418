// The CUDA driver library, opened at run time, with declarations of the calls that Berth
// makes: building needs no SDK, and Berth works on a machine without a GPU. Names have the
// version suffix of the toolkit's header; tests/cuda_headers.cu compares every line with
// that header. The library stays loaded until the process ends.
#pragma once

#include <cstddef>
#include <string_view>

#include "berth/result.hpp"
#include "device/cuda/errors.hpp"
#include "device/cuda/identity.hpp"

// The tags of the toolkit, so that handles can be passed to code that uses it.
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUevent_st;
struct CUstream_st;
struct CUuuid_st;
struct CUgreenCtx_st;
struct CUdevResourceDesc_st;
struct CUmemPoolHandle_st;

namespace berth::cuda {

using Code = int;  // CUresult
using DeviceNumber = int;
using DevicePointer = unsigned long long;
using Context = CUctx_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;
using EventHandle = CUevent_st*;
using StreamHandle = CUstream_st*;
using GreenContext = CUgreenCtx_st*;
using ResourceDescription = CUdevResourceDesc_st*;
using MemoryPool = CUmemPoolHandle_st*;

// CUdevResource: some compute units of a device, filled by the driver. 144 bytes in every
// release so far.
struct Resource {
  struct Multiprocessors {
    unsigned count;
    unsigned part_min;   // CUDA 13: the smallest part that can be split off
    unsigned alignment;  // CUDA 13: parts are multiples of it
  };
  int type = 0;  // 1: streaming multiprocessors
  unsigned char internal[92] = {};
  union {
    Multiprocessors sm;
    unsigned char rest[48] = {};
  };
};
static_assert(sizeof(Resource) == 144);
inline constexpr int resource_sm = 1;

// Attributes of a device and a function, options of the compiler.
enum Attribute : int {
  max_threads_per_block = 1,
  max_block_dim_x = 2,
  max_block_dim_y = 3,
  max_block_dim_z = 4,
  max_grid_dim_x = 5,
  max_grid_dim_y = 6,
  max_grid_dim_z = 7,
  compute_mode = 20,
  multiprocessor_count = 16,
  pci_bus_id = 33,
  pci_device_id = 34,
  pci_domain_id = 50,
  max_threads_per_multiprocessor = 39,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  stream_priorities_supported = 78,
  memory_pools_supported = 115,
  host_numa_id = 134,
};
inline constexpr int mode_default = 0, mode_prohibited = 2, mode_exclusive = 3;  // of compute_mode
inline constexpr int function_max_threads_per_block = 0;
inline constexpr int jit_error_log_buffer = 5;
inline constexpr int jit_error_log_buffer_size_bytes = 6;
inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned event_default = 0;
inline constexpr unsigned host_alloc_portable = 1;       // pinned for every context
inline constexpr unsigned host_register_portable = 1;    // the same for registered memory
inline constexpr unsigned green_default_stream = 1;      // required, and the only flag of a green context
inline constexpr int pool_reuse_makes_streams_wait = 3;  // CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
inline constexpr int pool_release_threshold = 4;
inline constexpr int pool_bytes_reserved = 5;
inline constexpr int pool_bytes_used = 7;

// X(symbol, type). Every driver since CUDA 11.4 has the required ones.
#define BERTH_CUDA_REQUIRED(X)                                                                                         \
  X(cuInit, Code(unsigned))                                                                                            \
  X(cuDeviceGet, Code(DeviceNumber*, int))                                                                             \
  X(cuDeviceGetCount, Code(int*))                                                                                      \
  X(cuDeviceGetName, Code(char*, int, DeviceNumber))                                                                   \
  X(cuDeviceGetUuid, Code(CUuuid_st*, DeviceNumber))                                                                   \
  X(cuDeviceTotalMem_v2, Code(std::size_t*, DeviceNumber))                                                             \
  X(cuDeviceGetAttribute, Code(int*, int, DeviceNumber))                                                               \
  X(cuDevicePrimaryCtxRetain, Code(Context*, DeviceNumber))                                                            \
  X(cuDevicePrimaryCtxRelease_v2, Code(DeviceNumber))                                                                  \
  X(cuCtxGetCurrent, Code(Context*))                                                                                   \
  X(cuCtxSetCurrent, Code(Context))                                                                                    \
  X(cuCtxPushCurrent_v2, Code(Context))                                                                                \
  X(cuCtxPopCurrent_v2, Code(Context*))                                                                                \
  X(cuCtxGetStreamPriorityRange, Code(int*, int*))                                                                     \
  X(cuMemGetInfo_v2, Code(std::size_t*, std::size_t*))                                                                 \
  X(cuMemAlloc_v2, Code(DevicePointer*, std::size_t))                                                                  \
  X(cuMemFree_v2, Code(DevicePointer))                                                                                 \
  X(cuMemcpyHtoDAsync_v2, Code(DevicePointer, const void*, std::size_t, StreamHandle))                                 \
  X(cuMemcpyDtoHAsync_v2, Code(void*, DevicePointer, std::size_t, StreamHandle))                                       \
  X(cuModuleLoadDataEx, Code(Module*, const void*, unsigned, int*, void**))                                            \
  X(cuModuleUnload, Code(Module))                                                                                      \
  X(cuModuleGetFunction, Code(Function*, Module, const char*))                                                         \
  X(cuFuncGetAttribute, Code(int*, int, Function))                                                                     \
  X(cuLaunchKernel, Code(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, StreamHandle, \
                         void**, void**))                                                                              \
  X(cuStreamCreateWithPriority, Code(StreamHandle*, unsigned, int))                                                    \
  X(cuStreamDestroy_v2, Code(StreamHandle))                                                                            \
  X(cuStreamQuery, Code(StreamHandle))                                                                                 \
  X(cuEventCreate, Code(EventHandle*, unsigned))                                                                       \
  X(cuEventDestroy_v2, Code(EventHandle))                                                                              \
  X(cuEventRecord, Code(EventHandle, StreamHandle))                                                                    \
  X(cuEventQuery, Code(EventHandle))                                                                                   \
  X(cuEventSynchronize, Code(EventHandle))                                                                             \
  X(cuEventElapsedTime, Code(float*, EventHandle, EventHandle))                                                        \
  X(cuDriverGetVersion, Code(int*))                                                                                    \
  X(cuDeviceGetUuid_v2, Code(CUuuid_st*, DeviceNumber))                                                                \
  X(cuMemHostAlloc, Code(void**, std::size_t, unsigned))                                                               \
  X(cuMemFreeHost, Code(void*))                                                                                        \
  X(cuMemHostRegister_v2, Code(void*, std::size_t, unsigned))                                                          \
  X(cuMemHostUnregister, Code(void*))                                                                                  \
  X(cuMemAllocAsync, Code(DevicePointer*, std::size_t, StreamHandle))                                                  \
  X(cuMemFreeAsync, Code(DevicePointer, StreamHandle))                                                                 \
  X(cuDeviceGetDefaultMemPool, Code(MemoryPool*, DeviceNumber))                                                        \
  X(cuMemPoolSetAttribute, Code(MemoryPool, int, void*))                                                               \
  X(cuMemPoolGetAttribute, Code(MemoryPool, int, void*))                                                               \
  X(cuMemPoolTrimTo, Code(MemoryPool, std::size_t))                                                                    \
  X(cuMemcpyDtoDAsync_v2, Code(DevicePointer, DevicePointer, std::size_t, StreamHandle))                               \
  X(cuMemcpyPeerAsync, Code(DevicePointer, Context, DevicePointer, Context, std::size_t, StreamHandle))                \
  X(cuDeviceCanAccessPeer, Code(int*, DeviceNumber, DeviceNumber))                                                     \
  X(cuCtxEnablePeerAccess, Code(Context, unsigned))                                                                    \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, Code(int*, Function, int, std::size_t))                               \
  X(cuOccupancyMaxPotentialBlockSize, Code(int*, int*, Function, std::size_t (*)(int), std::size_t, int))

// Null on drivers that are too old; features that need them are not_supported.
#define BERTH_CUDA_OPTIONAL(X)                                                                               \
  X(cuEventElapsedTime_v2, Code(float*, EventHandle, EventHandle))                                           \
  X(cuFuncGetParamInfo, Code(Function, std::size_t, std::size_t*, std::size_t*))                             \
  X(cuDeviceGetDevResource, Code(DeviceNumber, Resource*, int))                                              \
  X(cuDevSmResourceSplitByCount, Code(Resource*, unsigned*, const Resource*, Resource*, unsigned, unsigned)) \
  X(cuDevResourceGenerateDesc, Code(ResourceDescription*, Resource*, unsigned))                              \
  X(cuGreenCtxCreate, Code(GreenContext*, ResourceDescription, DeviceNumber, unsigned))                      \
  X(cuGreenCtxDestroy, Code(GreenContext))                                                                   \
  X(cuCtxFromGreenCtx, Code(Context*, GreenContext))                                                         \
  X(cuGreenCtxStreamCreate, Code(StreamHandle*, GreenContext, unsigned, int))

struct Driver {
#define BERTH_CUDA_MEMBER(symbol, ...) \
  using symbol##_type = __VA_ARGS__;   \
  symbol##_type* symbol = nullptr;
  BERTH_CUDA_REQUIRED(BERTH_CUDA_MEMBER)
  BERTH_CUDA_OPTIONAL(BERTH_CUDA_MEMBER)
#undef BERTH_CUDA_MEMBER
  void* library = nullptr;

  // The loaded driver, before cuInit. not_initialized: the library or a required symbol is
  // missing; a later call tries again. Thread-safe; loads once.
  static Result<const Driver*> load();
  // Whether the library exists, usable or not.
  static bool is_installed();

  // For calls that only tests and benchmarks make; null when absent.
  template <class F>
  F* find(const char* symbol) const {
    return reinterpret_cast<F*>(find_symbol(symbol));
  }

 private:
  void* find_symbol(const char* symbol) const;
};

}  // namespace berth::cuda
