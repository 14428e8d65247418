// Compiles with nvcc, which stands for the users who include Berth from CUDA
// code: every public header, and our own declarations of the driver against the
// toolkit's. It is compiled, never run.
#include "public_headers.inc"

#include "device/cuda_driver.hpp"

#include <cuda.h>

#include <cstddef>
#include <type_traits>

namespace {

// The same when passed in a call: equal types, or integers and enumerations of
// the same size (the driver's enumerations are int to us), or pointers to such.
template <class Ours, class Theirs>
constexpr bool same_word() {
  if constexpr (std::is_same_v<Ours, Theirs>) {
    return true;
  } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using Our = std::remove_cv_t<std::remove_pointer_t<Ours>>;
    using Their = std::remove_cv_t<std::remove_pointer_t<Theirs>>;
    if constexpr (std::is_same_v<Our, berth::cuda::Resource>) {
      return std::is_same_v<Their, CUdevResource>;
    } else {
      return std::is_enum_v<Their> && sizeof(Our) == sizeof(int) && sizeof(Their) == sizeof(int);
    }
  } else {
    return std::is_integral_v<Ours> && std::is_enum_v<Theirs> && sizeof(Ours) == sizeof(Theirs);
  }
}

template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class R, class... As, class S, class... Bs>
struct SameCall<R(As...), S(Bs...)> {
  static constexpr bool check() {
    if constexpr (sizeof...(As) == sizeof...(Bs)) {
      return same_word<R, S>() && (same_word<As, Bs>() && ...);
    } else {
      return false;
    }
  }
  static constexpr bool value = check();
};

using namespace berth::cuda;

#define BERTH_COMPARE(symbol, ...) \
  static_assert(SameCall<__VA_ARGS__, std::remove_pointer_t<decltype(&::symbol)>>::value, #symbol);
BERTH_CUDA_REQUIRED(BERTH_COMPARE)
BERTH_CUDA_OPTIONAL(BERTH_COMPARE)

static_assert(std::is_same_v<DevicePointer, CUdeviceptr>);
static_assert(sizeof(CUuuid) == sizeof(UuidBytes));
static_assert(code_success == CUDA_SUCCESS);
static_assert(code_not_initialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(code_no_device == CUDA_ERROR_NO_DEVICE);
static_assert(code_not_ready == CUDA_ERROR_NOT_READY);
static_assert(int{max_threads_per_block} == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(int{max_block_dim_x} == CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
static_assert(int{max_block_dim_y} == CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
static_assert(int{max_block_dim_z} == CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
static_assert(int{max_grid_dim_x} == CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
static_assert(int{max_grid_dim_y} == CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
static_assert(int{max_grid_dim_z} == CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
static_assert(int{multiprocessor_count} == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(int{pci_bus_id} == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
static_assert(int{pci_device_id} == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
static_assert(int{pci_domain_id} == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
static_assert(int{compute_capability_major} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(int{compute_capability_minor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(int{stream_priorities_supported} == CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
static_assert(int{memory_pools_supported} == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
static_assert(int{host_numa_id} == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
static_assert(int{compute_mode} == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
static_assert(int{max_threads_per_multiprocessor} == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
static_assert(function_max_threads_per_block == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(jit_error_log_buffer == CU_JIT_ERROR_LOG_BUFFER);
static_assert(jit_error_log_buffer_size_bytes == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
static_assert(stream_non_blocking == CU_STREAM_NON_BLOCKING);
static_assert(event_default == CU_EVENT_DEFAULT);
static_assert(host_alloc_portable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(host_register_portable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(pool_release_threshold == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
static_assert(green_default_stream == CU_GREEN_CTX_DEFAULT_STREAM);

static_assert(sizeof(Resource) == sizeof(CUdevResource) && alignof(Resource) == alignof(CUdevResource));
static_assert(offsetof(Resource, sm) == offsetof(CUdevResource, sm));
static_assert(resource_sm == CU_DEV_RESOURCE_TYPE_SM);
#if CUDA_VERSION >= 13000
static_assert(sizeof(Resource::sm) == sizeof(CUdevSmResource));
#endif

}  // namespace
