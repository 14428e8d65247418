#include "device/opencl/errors.hpp"

#include <algorithm>
#include <array>

namespace berth::opencl {
namespace {

using enum ErrorCode;

// Handles are checked before they are passed to the driver. If the driver still reports an invalid queue or context, a
// fault has destroyed it.
constexpr ErrorRow rows[] = {
    {-1, "CL_DEVICE_NOT_FOUND", no_device},
    {-2, "CL_DEVICE_NOT_AVAILABLE", unavailable},
    {-3, "CL_COMPILER_NOT_AVAILABLE", not_supported},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE", out_of_memory},
    {-5, "CL_OUT_OF_RESOURCES", out_of_memory},
    {-6, "CL_OUT_OF_HOST_MEMORY", out_of_memory},
    {-7, "CL_PROFILING_INFO_NOT_AVAILABLE", not_supported},
    {-8, "CL_MEM_COPY_OVERLAP", invalid_argument},
    {-9, "CL_IMAGE_FORMAT_MISMATCH", invalid_argument},
    {-10, "CL_IMAGE_FORMAT_NOT_SUPPORTED", not_supported},
    {-11, "CL_BUILD_PROGRAM_FAILURE", invalid_argument},
    {-12, "CL_MAP_FAILURE", unavailable},
    {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET", invalid_argument},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", work_failed},
    {-15, "CL_COMPILE_PROGRAM_FAILURE", invalid_argument},
    {-16, "CL_LINKER_NOT_AVAILABLE", not_supported},
    {-17, "CL_LINK_PROGRAM_FAILURE", invalid_argument},
    {-18, "CL_DEVICE_PARTITION_FAILED", unavailable},
    {-19, "CL_KERNEL_ARG_INFO_NOT_AVAILABLE", not_supported},
    {-30, "CL_INVALID_VALUE", invalid_argument},
    {-31, "CL_INVALID_DEVICE_TYPE", invalid_argument},
    {-32, "CL_INVALID_PLATFORM", invalid_argument},
    {-33, "CL_INVALID_DEVICE", no_device},
    {-34, "CL_INVALID_CONTEXT", device_lost},
    {-35, "CL_INVALID_QUEUE_PROPERTIES", not_supported},
    {-36, "CL_INVALID_COMMAND_QUEUE", device_lost},
    {-37, "CL_INVALID_HOST_PTR", invalid_argument},
    {-38, "CL_INVALID_MEM_OBJECT", invalid_argument},
    {-39, "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR", invalid_argument},
    {-40, "CL_INVALID_IMAGE_SIZE", invalid_argument},
    {-41, "CL_INVALID_SAMPLER", invalid_argument},
    {-42, "CL_INVALID_BINARY", invalid_argument},
    {-43, "CL_INVALID_BUILD_OPTIONS", invalid_argument},
    {-44, "CL_INVALID_PROGRAM", invalid_argument},
    {-45, "CL_INVALID_PROGRAM_EXECUTABLE", invalid_argument},
    {-46, "CL_INVALID_KERNEL_NAME", not_found},
    {-47, "CL_INVALID_KERNEL_DEFINITION", invalid_argument},
    {-48, "CL_INVALID_KERNEL", invalid_argument},
    {-49, "CL_INVALID_ARG_INDEX", invalid_argument},
    {-50, "CL_INVALID_ARG_VALUE", invalid_argument},
    {-51, "CL_INVALID_ARG_SIZE", invalid_argument},
    {-52, "CL_INVALID_KERNEL_ARGS", invalid_argument},
    {-53, "CL_INVALID_WORK_DIMENSION", invalid_argument},
    {-54, "CL_INVALID_WORK_GROUP_SIZE", invalid_argument},
    {-55, "CL_INVALID_WORK_ITEM_SIZE", invalid_argument},
    {-56, "CL_INVALID_GLOBAL_OFFSET", invalid_argument},
    {-57, "CL_INVALID_EVENT_WAIT_LIST", invalid_argument},
    {-58, "CL_INVALID_EVENT", invalid_argument},
    {-59, "CL_INVALID_OPERATION", not_supported},
    {-60, "CL_INVALID_GL_OBJECT", invalid_argument},
    {-61, "CL_INVALID_BUFFER_SIZE", invalid_argument},
    {-62, "CL_INVALID_MIP_LEVEL", invalid_argument},
    {-63, "CL_INVALID_GLOBAL_WORK_SIZE", invalid_argument},
    {-64, "CL_INVALID_PROPERTY", not_supported},
    {-65, "CL_INVALID_IMAGE_DESCRIPTOR", invalid_argument},
    {-66, "CL_INVALID_COMPILER_OPTIONS", invalid_argument},
    {-67, "CL_INVALID_LINKER_OPTIONS", invalid_argument},
    {-68, "CL_INVALID_DEVICE_PARTITION_COUNT", invalid_argument},
    {-69, "CL_INVALID_PIPE_SIZE", invalid_argument},
    {-70, "CL_INVALID_DEVICE_QUEUE", invalid_argument},
    {-71, "CL_INVALID_SPEC_ID", invalid_argument},
    {-72, "CL_MAX_SIZE_RESTRICTION_EXCEEDED", invalid_argument},
    {-1000, "CL_INVALID_GL_SHAREGROUP_REFERENCE_KHR", invalid_argument},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR", no_device},
    {-1057, "CL_DEVICE_PARTITION_FAILED_EXT", unavailable},
    {-1058, "CL_INVALID_PARTITION_COUNT_EXT", invalid_argument},
    {-1059, "CL_INVALID_PARTITION_NAME_EXT", invalid_argument},
    {-1092, "CL_EGL_RESOURCE_NOT_ACQUIRED_KHR", invalid_argument},
    {-1093, "CL_INVALID_EGL_OBJECT_KHR", invalid_argument},
    {-1094, "CL_INVALID_ACCELERATOR_INTEL", invalid_argument},
    {-1095, "CL_INVALID_ACCELERATOR_TYPE_INTEL", invalid_argument},
    {-1096, "CL_INVALID_ACCELERATOR_DESCRIPTOR_INTEL", invalid_argument},
    {-1097, "CL_ACCELERATOR_TYPE_NOT_SUPPORTED_INTEL", not_supported},
    {-1098, "CL_INVALID_VA_API_MEDIA_ADAPTER_INTEL", invalid_argument},
    {-1099, "CL_INVALID_VA_API_MEDIA_SURFACE_INTEL", invalid_argument},
    {-1100, "CL_VA_API_MEDIA_SURFACE_ALREADY_ACQUIRED_INTEL", invalid_argument},
    {-1101, "CL_VA_API_MEDIA_SURFACE_NOT_ACQUIRED_INTEL", invalid_argument},
    {-1108, "CL_COMMAND_TERMINATED_ITSELF_WITH_FAILURE_ARM", work_failed},
    {-1121, "CL_CONTEXT_TERMINATED_KHR", device_lost},
    {-1138, "CL_INVALID_COMMAND_BUFFER_KHR", invalid_argument},
    {-1139, "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR", invalid_argument},
    {-1140, "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR", invalid_argument},
    {-1141, "CL_INVALID_MUTABLE_COMMAND_KHR", invalid_argument},
    {-1142, "CL_INVALID_SEMAPHORE_KHR", invalid_argument},
    // This code is in no header. NVIDIA's driver returns it after an illegal address, and from then on for every new
    // context of the process.
    {-9999, "illegal address (NVIDIA)", device_lost},
};

std::string advice_for(ErrorCode code) {
  switch (code) {
    case no_device: return "see what clinfo lists on this machine";
    case unavailable: return "try again, or use another device";
    case out_of_memory: return "free buffers of this device, or ask for less";
    case device_lost: return "restart the process; this one can no longer use the device";
    case work_failed: return "look for a fault in the work before this point";
    case not_supported: return "use another device or another driver";
    default: return "correct the call";
  }
}

}  // namespace

std::span<const ErrorRow> error_table() noexcept { return rows; }

const ErrorRow* find_error(int code) noexcept {
  const auto* row = std::ranges::lower_bound(rows, code, std::ranges::greater{}, &ErrorRow::code);
  return row != std::end(rows) && row->code == code ? row : nullptr;
}

const ErrorRow* find_error(std::string_view name) noexcept {
  const auto* row = std::ranges::find(rows, name, &ErrorRow::name);
  return row != std::end(rows) ? row : nullptr;
}

Error error_of(int code, std::string what, std::string where) {
  const ErrorRow* row = find_error(code);
  const ErrorCode error = row ? row->error : work_failed;
  return {error, std::move(what), advice_for(error), std::move(where),
          DriverError{code, row ? std::string(row->name) : "unknown OpenCL error"}};
}

}  // namespace berth::opencl
