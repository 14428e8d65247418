#include "device/cuda/nvml_api.hpp"

#include <dlfcn.h>

#include <array>

#include "berth/xid.hpp"
#include "device/load_once.hpp"

namespace berth::nvml {
namespace {

struct Meaning {
  Code code;
  std::string_view name;
  ErrorCode meaning;
  std::string_view words;   // replaces "failed while doing" if not empty
  std::string_view advice;  // may be empty
};

constexpr std::string_view reload = "reboot, or unload and load the NVIDIA kernel modules";
constexpr std::array meanings{
    Meaning{1, "NVML_ERROR_UNINITIALIZED", ErrorCode::not_initialized, {}, {}},
    Meaning{invalid_argument, "NVML_ERROR_INVALID_ARGUMENT", ErrorCode::not_found, {}, {}},
    Meaning{not_supported, "NVML_ERROR_NOT_SUPPORTED", ErrorCode::not_supported, {}, {}},
    Meaning{no_permission, "NVML_ERROR_NO_PERMISSION", ErrorCode::unavailable,
            "this user has no permission to use the NVIDIA driver",
            "give the user access to /dev/nvidiactl and /dev/nvidia0, 1, ..."},
    Meaning{not_found, "NVML_ERROR_NOT_FOUND", ErrorCode::not_found, {}, {}},
    Meaning{driver_not_loaded, "NVML_ERROR_DRIVER_NOT_LOADED", ErrorCode::not_initialized,
            "the NVIDIA kernel driver is not loaded",
            "load it with `modprobe nvidia`, or reboot if it was just installed"},
    Meaning{timed_out, "NVML_ERROR_TIMEOUT", ErrorCode::timeout, {}, {}},
    Meaning{
        gpu_is_lost, "NVML_ERROR_GPU_IS_LOST", ErrorCode::device_lost, "the driver can no longer reach the GPU", {}},
    Meaning{
        reset_required, "NVML_ERROR_RESET_REQUIRED", ErrorCode::device_lost, "the GPU must be reset before use", {}},
    Meaning{blocked, "NVML_ERROR_OPERATING_SYSTEM", ErrorCode::unavailable,
            "the operating system denies this process access to the NVIDIA driver",
            "start the container with its GPUs, or allow /dev/nvidia* in its device rules"},
    Meaning{version_mismatch, "NVML_ERROR_LIB_RM_VERSION_MISMATCH", ErrorCode::not_initialized,
            "the NVIDIA libraries and the loaded kernel driver have different versions, as after an update", reload},
};

Error missing(std::string message, std::string advice) {
  return {ErrorCode::not_initialized, std::move(message), std::move(advice)};
}

Result<const Library*> open_library() {
  static Library library;
  // Never closed: the library keeps threads and state.
  void* opened = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    return missing("this machine has no NVIDIA management library (libnvidia-ml.so.1)",
                   "install the NVIDIA driver; in a container, ask for the driver capability `utility`");
  }
#define BERTH_NVML_FIND(symbol, ...) library.symbol = reinterpret_cast<Library::symbol##_type*>(dlsym(opened, #symbol));
  BERTH_NVML_REQUIRED(BERTH_NVML_FIND)
  BERTH_NVML_OPTIONAL(BERTH_NVML_FIND)
#undef BERTH_NVML_FIND
#define BERTH_NVML_CHECK(symbol, ...)                                                                           \
  if (library.symbol == nullptr) {                                                                              \
    return missing("the NVIDIA management library is too old: it has no " #symbol, "update the NVIDIA driver"); \
  }
  BERTH_NVML_REQUIRED(BERTH_NVML_CHECK)
#undef BERTH_NVML_CHECK
  if (const Code code = library.nvmlInit_v2(); code != success) {
    Error error = error_of(code, "starting", "");
    error.code = ErrorCode::not_initialized;
    if (error.advice.empty()) error.advice = "see the output of `nvidia-smi`";
    return error;
  }
  return &library;
}

const Meaning* find(Code code) noexcept {
  for (const Meaning& row : meanings) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

}  // namespace

Result<const Library*> Library::load() {
  static auto& library = *new device::LoadOnce<Library>(open_library);  // used until after the end of main
  return library.get();
}

std::string name_of(Code code) {
  const Meaning* row = find(code);
  return row ? std::string(row->name) : "NVML_ERROR_" + std::to_string(code);
}

Error error_of(Code code, std::string_view doing, std::string where) {
  const Meaning* row = find(code);
  Error error{row ? row->meaning : ErrorCode::unavailable,
              row && !row->words.empty() ? std::string(row->words)
                                         : "the NVIDIA management library failed while " + std::string(doing),
              row ? std::string(row->advice) : std::string(), std::move(where), DriverError{code, name_of(code)}};
  if (error.code == ErrorCode::device_lost) error.advice = reset_advice(error.where);
  return error;
}

}  // namespace berth::nvml
