// Compiles with nvcc, which stands for the users who include Berth from CUDA
// code: every public header, and our own declarations of the driver, the
// run-time compiler and the management library against the toolkit's (the last
// two where their headers are installed). It is compiled, never run.
#include "public_headers.inc"

#include "device/cuda/driver.hpp"
#include "device/cuda/nvml_api.hpp"
#include "device/cuda/nvrtc.hpp"

#include <cuda.h>
#if __has_include(<nvml.h>)
#include <nvml.h>
#endif
#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#endif

#include <cstddef>
#include <type_traits>

// What NVIDIA calls deprecated is what older drivers have.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

// The same when passed in a call: equal types, or integers and enumerations of
// the same size (the driver's enumerations are int to us), or pointers to such,
// or to structures of the same size.
template <class Ours, class Theirs>
constexpr bool same_word() {
  if constexpr (std::is_same_v<Ours, Theirs>) {
    return true;
  } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using Our = std::remove_cv_t<std::remove_pointer_t<Ours>>;
    using Their = std::remove_cv_t<std::remove_pointer_t<Theirs>>;
    if constexpr (std::is_class_v<Our> && std::is_class_v<Their>) {
      return sizeof(Our) == sizeof(Their) && alignof(Our) == alignof(Their);
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

#define BERTH_COMPARE(symbol, ...) \
  static_assert(SameCall<__VA_ARGS__, std::remove_pointer_t<decltype(&::symbol)>>::value, #symbol);

namespace driver {
using namespace berth::cuda;

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
static_assert(mode_default == CU_COMPUTEMODE_DEFAULT);
static_assert(mode_prohibited == CU_COMPUTEMODE_PROHIBITED);
static_assert(mode_exclusive == CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
static_assert(function_max_threads_per_block == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(jit_error_log_buffer == CU_JIT_ERROR_LOG_BUFFER);
static_assert(jit_error_log_buffer_size_bytes == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
static_assert(stream_non_blocking == CU_STREAM_NON_BLOCKING);
static_assert(event_default == CU_EVENT_DEFAULT);
static_assert(host_alloc_portable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(host_register_portable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(pool_release_threshold == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
static_assert(pool_bytes_reserved == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
static_assert(pool_bytes_used == CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
static_assert(green_default_stream == CU_GREEN_CTX_DEFAULT_STREAM);

static_assert(sizeof(Resource) == sizeof(CUdevResource) && alignof(Resource) == alignof(CUdevResource));
static_assert(offsetof(Resource, sm) == offsetof(CUdevResource, sm));
static_assert(resource_sm == CU_DEV_RESOURCE_TYPE_SM);
#if CUDA_VERSION >= 13000
static_assert(sizeof(Resource::sm) == sizeof(CUdevSmResource));
#endif

}  // namespace driver

#ifdef __NVRTC_H__
namespace compiler {
using namespace berth::nvrtc;

BERTH_NVRTC_CALLS(BERTH_COMPARE)
static_assert(success == NVRTC_SUCCESS);

}  // namespace compiler
#endif

// Older headers lack some of the calls, which are optional to us.
#if defined(NVML_API_VERSION) && NVML_API_VERSION >= 13
namespace management {
using namespace berth::nvml;

BERTH_NVML_REQUIRED(BERTH_COMPARE)
BERTH_NVML_OPTIONAL(BERTH_COMPARE)

static_assert(success == NVML_SUCCESS);
static_assert(not_supported == NVML_ERROR_NOT_SUPPORTED);
static_assert(no_permission == NVML_ERROR_NO_PERMISSION);
static_assert(not_found == NVML_ERROR_NOT_FOUND);
static_assert(insufficient_size == NVML_ERROR_INSUFFICIENT_SIZE);
static_assert(driver_not_loaded == NVML_ERROR_DRIVER_NOT_LOADED);
static_assert(timed_out == NVML_ERROR_TIMEOUT);
static_assert(gpu_is_lost == NVML_ERROR_GPU_IS_LOST);
static_assert(reset_required == NVML_ERROR_RESET_REQUIRED);
static_assert(version_mismatch == NVML_ERROR_LIB_RM_VERSION_MISMATCH);
static_assert(offsetof(MemoryV2, used) == offsetof(nvmlMemory_v2_t, used));
static_assert(offsetof(Process, gpu_instance) == offsetof(nvmlProcessInfo_t, gpuInstanceId));
static_assert(offsetof(PciInfo, bus_id) == offsetof(nvmlPciInfo_t, busId));
static_assert(offsetof(EventRecord, data) == offsetof(nvmlEventData_t, eventData));
static_assert(offsetof(FieldValue, value) == offsetof(nvmlFieldValue_t, value));
static_assert(offsetof(SliceAttributes, memory_mib) == offsetof(nvmlDeviceAttributes_t, memorySizeMB));
static_assert(event_ecc_double_bit == nvmlEventTypeDoubleBitEccError);
static_assert(event_xid == nvmlEventTypeXidCriticalError);
static_assert(event_gpu_unavailable == nvmlEventTypeGpuUnavailableError);
static_assert(event_recovery_action == nvmlEventTypeGpuRecoveryAction);
static_assert(field_memory_temperature == NVML_FI_DEV_MEMORY_TEMP);
static_assert(field_recovery_action == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION);
static_assert(sensor_gpu == NVML_TEMPERATURE_GPU);
static_assert(clock_sm == NVML_CLOCK_SM && clock_memory == NVML_CLOCK_MEM);
static_assert(error_corrected == NVML_MEMORY_ERROR_TYPE_CORRECTED);
static_assert(error_uncorrected == NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
static_assert(counter_volatile == NVML_VOLATILE_ECC);
static_assert(topology_internal == NVML_TOPOLOGY_INTERNAL && topology_single == NVML_TOPOLOGY_SINGLE);
static_assert(topology_multiple == NVML_TOPOLOGY_MULTIPLE && topology_host_bridge == NVML_TOPOLOGY_HOSTBRIDGE);
static_assert(topology_node == NVML_TOPOLOGY_NODE && topology_system == NVML_TOPOLOGY_SYSTEM);
static_assert(remote_gpu == NVML_NVLINK_DEVICE_TYPE_GPU && remote_switch == NVML_NVLINK_DEVICE_TYPE_SWITCH);
static_assert(affinity_node == NVML_AFFINITY_SCOPE_NODE);
static_assert(virtualization_none == NVML_GPU_VIRTUALIZATION_MODE_NONE);
static_assert(virtualization_passthrough == NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH);
static_assert(peer_read == NVML_P2P_CAPS_INDEX_READ && peer_write == NVML_P2P_CAPS_INDEX_WRITE);
static_assert(peer_ok == NVML_P2P_STATUS_OK && peer_not_supported == NVML_P2P_STATUS_NOT_SUPPORTED);
static_assert(most_links >= NVML_NVLINK_MAX_LINKS);
static_assert(uuid_bytes >= NVML_DEVICE_UUID_V2_BUFFER_SIZE);

}  // namespace management
#endif

}  // namespace
