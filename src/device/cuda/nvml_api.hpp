// The NVIDIA management library, opened at run time, with declarations of the calls that
// Berth makes: building needs no SDK, and Berth works without the library.
// tests/cuda_headers.cu compares them with the toolkit's header if it is installed. The
// library numbers devices in its own order, so devices are identified by UUID. It stays
// loaded until the process ends.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "berth/result.hpp"

// The tags of the library.
struct nvmlDevice_st;
struct nvmlEventSet_st;

namespace berth::nvml {

using Code = int;  // nvmlReturn_t
using DeviceHandle = nvmlDevice_st*;
using EventSet = nvmlEventSet_st*;

inline constexpr Code success = 0;
inline constexpr Code invalid_argument = 2;
inline constexpr Code not_supported = 3;
inline constexpr Code no_permission = 4;
inline constexpr Code not_found = 6;
inline constexpr Code insufficient_size = 7;
inline constexpr Code driver_not_loaded = 9;
inline constexpr Code timed_out = 10;
inline constexpr Code gpu_is_lost = 15;
inline constexpr Code reset_required = 16;
inline constexpr Code blocked = 17;           // by the operating system or the rules of a container
inline constexpr Code version_mismatch = 18;  // library and kernel module differ

struct Memory {
  unsigned long long total, free, used;
};
// `version` is sizeof(MemoryV2) | 2 << 24. Unlike in Memory, `used` does not include
// `reserved`.
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Utilization {
  unsigned gpu;     // percent of the last sample period in which a kernel ran
  unsigned memory;  // percent in which memory was read or written
};
struct Process {
  unsigned pid;
  unsigned long long used_bytes;            // all ones: not known
  unsigned gpu_instance, compute_instance;  // all ones: not a slice
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct EventRecord {
  DeviceHandle device;
  unsigned long long type, data;  // data: the Xid, for an Xid event
  unsigned gpu_instance, compute_instance;
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp_us, latency_us;
  int value_type;
  Code code;
  union {
    double as_double;
    int as_int;
    unsigned as_unsigned;
    unsigned long long as_long;
  } value;
};
struct SliceAttributes {
  unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
  unsigned long long memory_mib;
};

// nvmlEventType*
inline constexpr unsigned long long event_ecc_double_bit = 0x2;
inline constexpr unsigned long long event_xid = 0x8;
inline constexpr unsigned long long event_gpu_unavailable = 0x4000;
inline constexpr unsigned long long event_recovery_action = 0x8000;
// NVML_FI_DEV_*
inline constexpr unsigned field_memory_temperature = 82;
inline constexpr unsigned field_recovery_action = 230;
// nvmlTemperatureSensors_t, nvmlClockType_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t
inline constexpr int sensor_gpu = 0;
inline constexpr int clock_sm = 1, clock_memory = 2;
inline constexpr int error_corrected = 0, error_uncorrected = 1;
inline constexpr int counter_volatile = 0;
// nvmlGpuTopologyLevel_t
inline constexpr int topology_internal = 0, topology_single = 10, topology_multiple = 20, topology_host_bridge = 30,
                     topology_node = 40, topology_system = 50;
// nvmlAffinityScope_t, nvmlGpuVirtualizationMode_t, nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t
inline constexpr unsigned affinity_node = 0;
inline constexpr int virtualization_none = 0, virtualization_passthrough = 1;
inline constexpr int peer_read = 0, peer_write = 1;
inline constexpr int peer_ok = 0, peer_not_supported = 5;
// nvmlIntNvLinkDeviceType_t
inline constexpr int remote_gpu = 0, remote_switch = 2;
inline constexpr unsigned most_links = 36;
inline constexpr std::size_t uuid_bytes = 96;

// X(symbol, type). Without these there is no telemetry.
#define BERTH_NVML_REQUIRED(X)                                    \
  X(nvmlInit_v2, Code())                                          \
  X(nvmlDeviceGetCount_v2, Code(unsigned*))                       \
  X(nvmlDeviceGetHandleByIndex_v2, Code(unsigned, DeviceHandle*)) \
  X(nvmlDeviceGetHandleByUUID, Code(const char*, DeviceHandle*))  \
  X(nvmlDeviceGetUUID, Code(DeviceHandle, char*, unsigned))       \
  X(nvmlDeviceGetMemoryInfo, Code(DeviceHandle, Memory*))

// Null if the driver is too old: the value is absent then.
#define BERTH_NVML_OPTIONAL(X)                                                                 \
  X(nvmlShutdown, Code())                                                                      \
  X(nvmlSystemGetDriverVersion, Code(char*, unsigned))                                         \
  X(nvmlSystemGetCudaDriverVersion_v2, Code(int*))                                             \
  X(nvmlErrorString, const char*(Code))                                                        \
  X(nvmlDeviceGetName, Code(DeviceHandle, char*, unsigned))                                    \
  X(nvmlDeviceGetMinorNumber, Code(DeviceHandle, unsigned*))                                   \
  X(nvmlDeviceGetPciInfo_v3, Code(DeviceHandle, PciInfo*))                                     \
  X(nvmlDeviceGetMemoryInfo_v2, Code(DeviceHandle, MemoryV2*))                                 \
  X(nvmlDeviceGetUtilizationRates, Code(DeviceHandle, Utilization*))                           \
  X(nvmlDeviceGetComputeRunningProcesses_v3, Code(DeviceHandle, unsigned*, Process*))          \
  X(nvmlDeviceGetGraphicsRunningProcesses_v3, Code(DeviceHandle, unsigned*, Process*))         \
  X(nvmlDeviceGetPowerUsage, Code(DeviceHandle, unsigned*))                                    \
  X(nvmlDeviceGetEnforcedPowerLimit, Code(DeviceHandle, unsigned*))                            \
  X(nvmlDeviceGetTemperature, Code(DeviceHandle, int, unsigned*))                              \
  X(nvmlDeviceGetClockInfo, Code(DeviceHandle, int, unsigned*))                                \
  X(nvmlDeviceGetCurrentClocksEventReasons, Code(DeviceHandle, unsigned long long*))           \
  X(nvmlDeviceGetCurrentClocksThrottleReasons, Code(DeviceHandle, unsigned long long*))        \
  X(nvmlDeviceGetTotalEccErrors, Code(DeviceHandle, int, int, unsigned long long*))            \
  X(nvmlDeviceGetRemappedRows, Code(DeviceHandle, unsigned*, unsigned*, unsigned*, unsigned*)) \
  X(nvmlDeviceGetFieldValues, Code(DeviceHandle, int, FieldValue*))                            \
  X(nvmlDeviceGetComputeMode, Code(DeviceHandle, int*))                                        \
  X(nvmlDeviceGetPersistenceMode, Code(DeviceHandle, int*))                                    \
  X(nvmlDeviceGetCudaComputeCapability, Code(DeviceHandle, int*, int*))                        \
  X(nvmlDeviceGetNumGpuCores, Code(DeviceHandle, unsigned*))                                   \
  X(nvmlDeviceGetMaxClockInfo, Code(DeviceHandle, int, unsigned*))                             \
  X(nvmlDeviceGetMemoryAffinity, Code(DeviceHandle, unsigned, unsigned long*, unsigned))       \
  X(nvmlDeviceGetVirtualizationMode, Code(DeviceHandle, int*))                                 \
  X(nvmlDeviceGetP2PStatus, Code(DeviceHandle, DeviceHandle, int, int*))                       \
  X(nvmlDeviceGetNvLinkState, Code(DeviceHandle, unsigned, int*))                              \
  X(nvmlDeviceGetNvLinkRemotePciInfo_v2, Code(DeviceHandle, unsigned, PciInfo*))               \
  X(nvmlDeviceGetNvLinkRemoteDeviceType, Code(DeviceHandle, unsigned, int*))                   \
  X(nvmlDeviceGetTopologyCommonAncestor, Code(DeviceHandle, DeviceHandle, int*))               \
  X(nvmlDeviceGetMigMode, Code(DeviceHandle, unsigned*, unsigned*))                            \
  X(nvmlDeviceGetMaxMigDeviceCount, Code(DeviceHandle, unsigned*))                             \
  X(nvmlDeviceGetMigDeviceHandleByIndex, Code(DeviceHandle, unsigned, DeviceHandle*))          \
  X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, Code(DeviceHandle, DeviceHandle*))           \
  X(nvmlDeviceGetGpuInstanceId, Code(DeviceHandle, unsigned*))                                 \
  X(nvmlDeviceGetComputeInstanceId, Code(DeviceHandle, unsigned*))                             \
  X(nvmlDeviceGetAttributes_v2, Code(DeviceHandle, SliceAttributes*))                          \
  X(nvmlEventSetCreate, Code(EventSet*))                                                       \
  X(nvmlEventSetFree, Code(EventSet))                                                          \
  X(nvmlDeviceGetSupportedEventTypes, Code(DeviceHandle, unsigned long long*))                 \
  X(nvmlDeviceRegisterEvents, Code(DeviceHandle, unsigned long long, EventSet))                \
  X(nvmlEventSetWait_v2, Code(EventSet, EventRecord*, unsigned))

struct Library {
#define BERTH_NVML_MEMBER(symbol, ...) \
  using symbol##_type = __VA_ARGS__;   \
  symbol##_type* symbol = nullptr;
  BERTH_NVML_REQUIRED(BERTH_NVML_MEMBER)
  BERTH_NVML_OPTIONAL(BERTH_NVML_MEMBER)
#undef BERTH_NVML_MEMBER

  // The library, loaded and started once per process. not_initialized: it is missing, too
  // old or does not start; a later call tries again. Thread-safe; the first call takes
  // about 10 ms.
  static Result<const Library*> load();
};

// "NVML_ERROR_GPU_IS_LOST"; unlisted codes: "NVML_ERROR_<code>".
std::string name_of(Code code);
// A failed call as an error of the device `where` (a UUID; empty: of no device).
Error error_of(Code code, std::string_view doing, std::string where);

}  // namespace berth::nvml
