#include "device/cuda/errors.hpp"

#include <algorithm>
#include <array>

namespace berth::cuda {
namespace {

using enum ErrorCode;

constexpr std::array<DriverCode, 100> table{{
    {1, "CUDA_ERROR_INVALID_VALUE", invalid_argument},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", out_of_memory},
    {3, "CUDA_ERROR_NOT_INITIALIZED", not_initialized},
    {4, "CUDA_ERROR_DEINITIALIZED", device_lost},
    {5, "CUDA_ERROR_PROFILER_DISABLED", not_supported},
    {6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED", invalid_argument},
    {7, "CUDA_ERROR_PROFILER_ALREADY_STARTED", invalid_argument},
    {8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED", invalid_argument},
    {34, "CUDA_ERROR_STUB_LIBRARY", not_initialized},
    {36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", not_supported},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", unavailable},
    {100, "CUDA_ERROR_NO_DEVICE", no_device},
    {101, "CUDA_ERROR_INVALID_DEVICE", no_device},
    {102, "CUDA_ERROR_DEVICE_NOT_LICENSED", not_supported},
    {200, "CUDA_ERROR_INVALID_IMAGE", invalid_argument},
    {201, "CUDA_ERROR_INVALID_CONTEXT", invalid_argument},
    {202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", invalid_argument},
    {205, "CUDA_ERROR_MAP_FAILED", unavailable},
    {206, "CUDA_ERROR_UNMAP_FAILED", unavailable},
    {207, "CUDA_ERROR_ARRAY_IS_MAPPED", invalid_argument},
    {208, "CUDA_ERROR_ALREADY_MAPPED", invalid_argument},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", not_supported},
    {210, "CUDA_ERROR_ALREADY_ACQUIRED", invalid_argument},
    {211, "CUDA_ERROR_NOT_MAPPED", invalid_argument},
    {212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", invalid_argument},
    {213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER", invalid_argument},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", device_lost},
    {215, "CUDA_ERROR_UNSUPPORTED_LIMIT", invalid_argument},
    {216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", unavailable},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", not_supported},
    {218, "CUDA_ERROR_INVALID_PTX", invalid_argument},
    {219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", invalid_argument},
    {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", device_lost},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", not_initialized},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", not_supported},
    {223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", not_supported},
    {224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", not_supported},
    {225, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", not_supported},
    {226, "CUDA_ERROR_CONTAINED", device_lost},
    {300, "CUDA_ERROR_INVALID_SOURCE", invalid_argument},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", not_found},
    {302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", not_initialized},
    {303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", not_initialized},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", io},
    {400, "CUDA_ERROR_INVALID_HANDLE", invalid_argument},
    {401, "CUDA_ERROR_ILLEGAL_STATE", invalid_argument},
    {402, "CUDA_ERROR_LOSSY_QUERY", not_supported},
    {500, "CUDA_ERROR_NOT_FOUND", not_found},
    {600, "CUDA_ERROR_NOT_READY", unavailable},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", device_lost},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", invalid_argument},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", device_lost},
    {703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", invalid_argument},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", already_exists},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", invalid_argument},
    {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", invalid_argument},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", device_lost},
    {710, "CUDA_ERROR_ASSERT", device_lost},
    {711, "CUDA_ERROR_TOO_MANY_PEERS", unavailable},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", already_exists},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", invalid_argument},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", device_lost},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", device_lost},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", device_lost},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", device_lost},
    {718, "CUDA_ERROR_INVALID_PC", device_lost},
    {719, "CUDA_ERROR_LAUNCH_FAILED", device_lost},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", invalid_argument},
    {721, "CUDA_ERROR_TENSOR_MEMORY_LEAK", device_lost},
    {800, "CUDA_ERROR_NOT_PERMITTED", invalid_argument},
    {801, "CUDA_ERROR_NOT_SUPPORTED", not_supported},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", unavailable},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", not_initialized},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", not_supported},
    {805, "CUDA_ERROR_MPS_CONNECTION_FAILED", unavailable},
    {806, "CUDA_ERROR_MPS_RPC_FAILURE", unavailable},
    {807, "CUDA_ERROR_MPS_SERVER_NOT_READY", unavailable},
    {808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", unavailable},
    {809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", unavailable},
    {810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", device_lost},
    {811, "CUDA_ERROR_CDP_NOT_SUPPORTED", not_supported},
    {812, "CUDA_ERROR_CDP_VERSION_MISMATCH", not_supported},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", invalid_argument},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", invalid_argument},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", invalid_argument},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", invalid_argument},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", invalid_argument},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", invalid_argument},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", invalid_argument},
    {907, "CUDA_ERROR_CAPTURED_EVENT", invalid_argument},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", invalid_argument},
    {909, "CUDA_ERROR_TIMEOUT", timeout},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", invalid_argument},
    {911, "CUDA_ERROR_EXTERNAL_DEVICE", device_lost},
    {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", invalid_argument},
    {913, "CUDA_ERROR_FUNCTION_NOT_LOADED", invalid_argument},
    {914, "CUDA_ERROR_INVALID_RESOURCE_TYPE", invalid_argument},
    {915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", invalid_argument},
    {916, "CUDA_ERROR_KEY_ROTATION", unavailable},
    {999, "CUDA_ERROR_UNKNOWN", unavailable},
}};

const DriverCode* find(int code) noexcept {
  const auto row = std::lower_bound(table.begin(), table.end(), code,
                                    [](const DriverCode& entry, int wanted) { return entry.code < wanted; });
  return row != table.end() && row->code == code ? &*row : nullptr;
}

std::string_view advice_for(int code, ErrorCode meaning) noexcept {
  switch (code) {
    case 34: return "remove the stub libcuda from the library path; the NVIDIA driver installs the real one";
    case 803: return "reboot, or install the libcuda that belongs to the loaded kernel driver";
    default: break;
  }
  switch (meaning) {
    case device_lost: return "restart the process: a GPU context that faulted cannot be rebuilt inside it";
    case out_of_memory: return "free buffers or ask for less";
    case not_initialized: return "check the NVIDIA driver with nvidia-smi";
    case unavailable: return "try again, or check with nvidia-smi which processes use the device";
    default: return "";
  }
}

}  // namespace

std::span<const DriverCode> driver_codes() noexcept { return table; }

ErrorCode meaning_of(int code) noexcept {
  const DriverCode* row = find(code);
  return row ? row->meaning : unavailable;
}

std::string name_of(int code) {
  const DriverCode* row = find(code);
  return row ? std::string(row->name) : "CUDA_ERROR_" + std::to_string(code);
}

bool is_fatal(int code) noexcept { return meaning_of(code) == device_lost; }

Error error_of(int code, std::string_view doing, std::string where) {
  const ErrorCode meaning = meaning_of(code);
  return {meaning, "the CUDA driver failed while " + std::string(doing), std::string(advice_for(code, meaning)),
          std::move(where), DriverError{code, name_of(code)}};
}

}  // namespace berth::cuda
